#include "base/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/zip_writer.h"
#include "device/model_abi.h"

namespace coil {
namespace {

struct TypeRow {
  int32_t dtype;
  char kind;  // NumPy's letter
  size_t bytes;
};
constexpr TypeRow kTypes[] = {{COIL_BOOL, 'b', 1},   {COIL_UINT8, 'u', 1},   {COIL_INT8, 'i', 1},      {COIL_INT16, 'i', 2},      {COIL_INT32, 'i', 4},
                              {COIL_INT64, 'i', 8},  {COIL_FLOAT16, 'f', 2}, {COIL_FLOAT32, 'f', 4},   {COIL_FLOAT64, 'f', 8},    {COIL_UINT16, 'u', 2},
                              {COIL_UINT32, 'u', 4}, {COIL_UINT64, 'u', 8},  {COIL_COMPLEX64, 'c', 8}, {COIL_COMPLEX128, 'c', 16}};

constexpr uint8_t kMagic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
constexpr uint64_t kMaxArrayBytes = uint64_t{1} << 40;
constexpr size_t kMaxRank = 64;

const TypeRow* row_of(int32_t dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

struct Header {
  const TypeRow* type = nullptr;
  bool swap = false;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// Reads the header: the text of a Python dict with the keys descr, fortran_order and shape, and nothing else.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Result<Header> run() {
    if (!take('{')) return bad("the header is not a dict");
    bool descr = false, order = false, shape = false;
    while (!take('}')) {
      TRY(const std::string_view key, quoted());
      if (!take(':')) return bad("the header is malformed");
      if (key == "descr" && !descr) {
        descr = true;
        TRY_STATUS(read_descr());
      } else if (key == "fortran_order" && !order) {
        order = true;
        if (take_word("True")) {
          header_.fortran = true;
        } else if (!take_word("False")) {
          return bad("fortran_order is not True or False");
        }
      } else if (key == "shape" && !shape) {
        shape = true;
        TRY_STATUS(read_shape());
      } else {
        return bad(fmt::format("unexpected key '{}' in the header", key));
      }
      if (!take(',') && peek() != '}') return bad("the header is malformed");
    }
    skip_space();
    if (at_ != text_.size() || !descr || !order || !shape) return bad("the header is incomplete or has a tail");
    return header_;
  }

 private:
  Error bad(std::string message) const { return {ErrorCode::bad_array, std::move(message), source_, ""}; }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Result<std::string_view> quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return bad("the header is malformed");
    const size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) return bad("the header is malformed");
    const std::string_view result = text_.substr(at_, end - at_);
    at_ = end + 1;
    return result;
  }

  Status read_descr() {
    if (peek() == '[') return bad("structured arrays are not supported");
    TRY(const std::string_view descr, quoted());
    const std::string_view all = "<>|=";
    if (descr.size() >= 3 && all.find(descr[0]) != std::string_view::npos) {
      for (const TypeRow& row : kTypes) {
        if (row.kind == descr[1] && fmt::format("{}", row.bytes) == descr.substr(2)) {
          header_.type = &row;
          header_.swap = descr[0] == '>' && row.bytes > 1;
          return ok_status();
        }
      }
    }
    return Error{
        ErrorCode::bad_array, fmt::format("arrays of type '{}' are not supported", descr), source_,
        "supported: bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, complex64, complex128; convert with .astype()"};
  }

  Status read_shape() {
    if (!take('(')) return bad("the shape is not a tuple");
    while (!take(')')) {
      skip_space();
      int64_t size = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) return bad("the shape holds something else than sizes");
      at_ += static_cast<size_t>(end - begin);
      header_.shape.push_back(size);
      if (header_.shape.size() > kMaxRank) return bad("the array has too many dimensions");
      if (!take(',') && peek() != ')') return bad("the shape is malformed");
    }
    return ok_status();
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
  Header header_;
};

// Bytes of the array, or nothing when the sizes' product is absurd. A size of 0 makes it 0 whatever the others are.
std::optional<uint64_t> array_bytes(const Header& header) {
  if (std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end()) return 0;
  uint64_t bytes = header.type->bytes;
  for (const int64_t size : header.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) || bytes > kMaxArrayBytes) return std::nullopt;
  }
  return bytes;
}

void swap_items(std::vector<uint8_t>& data, size_t item) {
  for (size_t i = 0; i + item <= data.size(); i += item)
    std::reverse(data.begin() + static_cast<ptrdiff_t>(i), data.begin() + static_cast<ptrdiff_t>(i + item));
}

// Column-major to row-major: walks the result in order and steps through the source by its strides.
std::vector<uint8_t> to_row_major(std::span<const uint8_t> source, const std::vector<int64_t>& shape, size_t item) {
  std::vector<uint8_t> result(source.size());
  std::vector<size_t> strides(shape.size());
  size_t stride = item;
  for (size_t d = 0; d < shape.size(); ++d) {
    strides[d] = stride;
    stride *= static_cast<size_t>(shape[d]);
  }
  std::vector<int64_t> index(shape.size(), 0);
  size_t from = 0;
  for (size_t to = 0; to < result.size(); to += item) {
    std::memcpy(result.data() + to, source.data() + from, item);
    for (size_t d = shape.size(); d-- > 0;) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * static_cast<size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return result;
}

}  // namespace

int64_t NpyArray::count() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;  // whose other sizes may be too large to multiply
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

size_t npy_item_bytes(int32_t dtype) {
  const TypeRow* row = row_of(dtype);
  return row != nullptr ? row->bytes : 0;
}

std::string npy_descr(int32_t dtype) {
  const TypeRow* row = row_of(dtype);
  return row != nullptr ? fmt::format("{}{}{}", row->bytes == 1 ? '|' : '<', row->kind, row->bytes) : "";
}

Result<NpyArray> parse_npy(std::span<const uint8_t> bytes, const std::string& source) {
  const auto bad = [&](std::string message) { return Error{ErrorCode::bad_array, std::move(message), source, ""}; };
  if (bytes.size() < 12 || !std::equal(std::begin(kMagic), std::end(kMagic), bytes.begin())) return bad("not a .npy file");
  const int major = bytes[6];
  if (major < 1 || major > 3) return bad(fmt::format("version {} of the .npy format is not supported", major));
  const size_t length_bytes = major == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, length_bytes);
  const size_t begin = 8 + length_bytes;
  if (length > bytes.size() - begin) return bad("the file is truncated within its header");
  if (length > (1u << 20)) return bad("the header is absurdly long");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + begin, length);
  TRY(Header header, HeaderParser(text, source).run());
  const std::span<const uint8_t> data = bytes.subspan(begin + length);
  const std::optional<uint64_t> expected = array_bytes(header);
  if (!expected.has_value()) return bad("the array's shape is absurdly large");
  if (*expected != data.size()) return bad(fmt::format("the shape asks for {} bytes of data, the file has {}", *expected, data.size()));
  NpyArray array;
  array.dtype = header.type->dtype;
  array.data =
      header.fortran && header.shape.size() > 1 ? to_row_major(data, header.shape, header.type->bytes) : std::vector<uint8_t>(data.begin(), data.end());
  array.shape = std::move(header.shape);
  const size_t parts = header.type->kind == 'c' ? 2 : 1;
  if (header.swap) swap_items(array.data, header.type->bytes / parts);
  return array;
}

std::vector<uint8_t> to_npy(const NpyArray& array) {
  CHECK(row_of(array.dtype) != nullptr, "NumPy has this type");
  std::string shape = "(";
  for (const int64_t size : array.shape) shape += fmt::format("{}, ", size);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  if (array.shape.size() == 1) shape.pop_back();  // "(3,)"
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}), }}", npy_descr(array.dtype), shape);
  header.append(63 - (10 + header.size()) % 64, ' ');  // the data begins at a multiple of 64
  header += '\n';
  CHECK(header.size() < 65536);
  std::vector<uint8_t> out(std::begin(kMagic), std::end(kMagic));
  const std::array<uint8_t, 4> fixed = {1, 0, static_cast<uint8_t>(header.size() & 255), static_cast<uint8_t>(header.size() >> 8)};
  out.insert(out.end(), fixed.begin(), fixed.end());
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), array.data.begin(), array.data.end());
  return out;
}

Result<NamedArrays> parse_npz(const ZipReader& zip) {
  NamedArrays arrays;
  for (const ZipEntry& entry : zip.entries()) {
    std::string name = entry.name;
    if (!name.ends_with(".npy")) {
      return Error{ErrorCode::bad_array, fmt::format("entry '{}' is not a .npy array", name), zip.name(), ""};
    }
    TRY(const std::vector<uint8_t> bytes, zip.read(entry, kMaxArrayBytes));
    TRY(NpyArray array, parse_npy(bytes, fmt::format("{}: {}", zip.name(), name)));
    name.resize(name.size() - 4);
    arrays.emplace_back(std::move(name), std::move(array));
  }
  return arrays;
}

Result<NamedArrays> read_npz(const std::string& path) {
  TRY(const ZipReader zip, ZipReader::open(path));
  return parse_npz(zip);
}

Status write_npz(const std::string& path, const NamedArrays& arrays) {
  TRY(ZipWriter zip, ZipWriter::create(path));
  for (const auto& [name, array] : arrays) TRY_STATUS(zip.add(name + ".npy", to_npy(array)));
  return zip.finish();
}

}  // namespace coil
