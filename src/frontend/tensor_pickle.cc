#include "frontend/tensor_pickle.h"

#include <fmt/format.h>

#include <deque>

namespace coil {
namespace {

using Tensors = std::map<std::string, TensorData, std::less<>>;

// Objects live in a table and refer to each other by index, so that cycles are harmless. A byte of the file may make one: they are small, and
// what few of them have lies in tables of its own.
using Ref = uint32_t;
struct Object {
  enum class Kind : uint8_t { none, mark, boolean, integer, text, global, sequence, dictionary, storage, tensor };
  Kind kind = Kind::none;
  uint32_t place = 0;  // of sequence and dictionary: in lists_; of storage and tensor: in tensors_
  int64_t integer = 0;
  std::string_view text;  // of text and global ("torch FloatStorage")
};
using Kind = Object::Kind;

// Memory that the objects of a pickle may take, by its size. PyTorch's take some 3 bytes for each byte.
constexpr uint64_t budget_of(size_t code) { return (uint64_t{64} << 20) + 48 * static_cast<uint64_t>(code); }
constexpr uint64_t kListBytes = 48, kMemoBytes = 64, kTensorBytes = 256;

struct StorageType {
  std::string_view global;
  DType dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch FloatStorage", DType::f32},    {"torch DoubleStorage", DType::f64},       {"torch HalfStorage", DType::f16},
    {"torch LongStorage", DType::i64},     {"torch BFloat16Storage", DType::bf16},    {"torch IntStorage", DType::i32},
    {"torch ShortStorage", DType::i16},    {"torch CharStorage", DType::i8},          {"torch ByteStorage", DType::u8},
    {"torch BoolStorage", DType::boolean}, {"torch ComplexFloatStorage", DType::c64}, {"torch ComplexDoubleStorage", DType::c128},
};

class Unpickler {
 public:
  Unpickler(std::string_view code, const ProgramArchive& files, const std::string& name)
      : code_(code), files_(files), name_(name), left_(budget_of(code.size())) {}

  Result<Tensors> run() {
    while (true) {
      if (at_ >= code_.size()) return bad("it ends early");
      char op = code_[at_++];
      if (op == '.') break;
      TRY_STATUS(step(op));
    }
    if (stack_.size() != 1) return bad("it does not hold one object");
    return tensors(objects_[stack_[0]]);
  }

 private:
  Error bad(std::string_view what) const {
    return Error{ErrorCode::bad_weights,
                 fmt::format("the pickled weights in {} cannot be read: {}", name_, what),
                 {},
                 "export the program again with PyTorch 2.9 or later"};
  }

  // Counts memory before it is taken.
  Status spend(uint64_t bytes) {
    if (bytes > left_) {
      return Error{ErrorCode::archive_limit,
                   fmt::format("the pickled weights in {} make objects of more than {} bytes, the limit for {} bytes of pickle", name_, budget_of(code_.size()),
                               code_.size()),
                   {},
                   "export the program again with PyTorch 2.9 or later"};
    }
    left_ -= bytes;
    return ok_status();
  }

  const std::vector<Ref>& items(const Object& o) const { return lists_[o.place]; }

  Result<Tensors> tensors(const Object& root) {
    if (root.kind != Kind::dictionary) return bad("it is not a dictionary");
    Tensors result;
    const std::vector<Ref>& all = items(root);
    for (size_t i = 0; i + 1 < all.size(); i += 2) {
      const Object& key = objects_[all[i]];
      const Object& value = objects_[all[i + 1]];
      if (key.kind != Kind::text || value.kind != Kind::tensor) return bad("it holds something that is not a tensor");
      const TensorData& tensor = tensors_[value.place];
      TRY_STATUS(spend(kTensorBytes + key.text.size() + 16 * tensor.sizes.size()));
      result.insert_or_assign(std::string(key.text), tensor);
    }
    return result;
  }

  Result<uint64_t> number(size_t bytes) {
    if (code_.size() - at_ < bytes) return bad("it ends early");
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i) v |= static_cast<uint64_t>(static_cast<uint8_t>(code_[at_ + i])) << (8 * i);
    at_ += bytes;
    return v;
  }
  Result<std::string_view> take(uint64_t size) {
    if (code_.size() - at_ < size) return bad("it ends early");
    std::string_view s = code_.substr(at_, size);
    at_ += size;
    return s;
  }

  Status push(const Object& object) {
    TRY_STATUS(spend(sizeof(Object) + 2 * sizeof(Ref)));
    objects_.push_back(object);
    stack_.push_back(static_cast<Ref>(objects_.size() - 1));
    return ok_status();
  }
  Status push_ref(Ref r) {
    TRY_STATUS(spend(2 * sizeof(Ref)));
    stack_.push_back(r);
    return ok_status();
  }
  Status push_list(Kind kind, std::vector<Ref> items) {
    TRY_STATUS(spend(kListBytes + items.size() * sizeof(Ref)));
    Object o;
    o.kind = kind;
    o.place = static_cast<uint32_t>(lists_.size());
    lists_.push_back(std::move(items));
    return push(o);
  }
  Status push_tensor(Kind kind, TensorData tensor) {
    TRY_STATUS(spend(kTensorBytes + 16 * tensor.sizes.size()));
    Object o;
    o.kind = kind;
    o.place = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back(std::move(tensor));
    return push(o);
  }
  Status push_integer(int64_t v, Kind kind = Kind::integer) {
    Object o;
    o.kind = kind;
    o.integer = v;
    return push(o);
  }
  Status push_text(std::string_view text, Kind kind = Kind::text) {
    Object o;
    o.kind = kind;
    o.text = text;
    return push(o);
  }

  Result<Ref> pop() {
    if (stack_.empty()) return bad("its stack is empty");
    Ref r = stack_.back();
    stack_.pop_back();
    return r;
  }
  // The objects above the last mark, which goes.
  Result<std::vector<Ref>> pop_to_mark() {
    size_t i = stack_.size();
    while (i > 0 && objects_[stack_[i - 1]].kind != Kind::mark) --i;
    if (i == 0) return bad("it has no mark");
    std::vector<Ref> items(stack_.begin() + static_cast<ptrdiff_t>(i), stack_.end());
    stack_.resize(i - 1);
    return items;
  }
  Status push_sequence(std::vector<Ref> items) { return push_list(Kind::sequence, std::move(items)); }
  Status push_last(size_t count) {
    if (stack_.size() < count) return bad("its stack is empty");
    std::vector<Ref> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return push_sequence(std::move(items));
  }
  Status add_items(const std::vector<Ref>& items) {
    if (stack_.empty() || objects_[stack_.back()].kind != Kind::dictionary || items.size() % 2) return bad("items without a dictionary");
    TRY_STATUS(spend(2 * items.size() * sizeof(Ref)));
    std::vector<Ref>& into = lists_[objects_[stack_.back()].place];
    into.insert(into.end(), items.begin(), items.end());
    return ok_status();
  }
  Status remember(uint64_t slot) {
    if (stack_.empty() || slot > code_.size()) return bad("a bad memo");
    if (!memo_.contains(slot)) TRY_STATUS(spend(kMemoBytes));
    memo_[slot] = stack_.back();
    return ok_status();
  }
  Status recall(uint64_t slot) {
    auto it = memo_.find(slot);
    if (it == memo_.end()) return bad("a bad memo");
    return push_ref(it->second);
  }

  Status step(char op) {
    switch (op) {
      case '\x80': return number(1).ok() ? ok_status() : bad("it ends early");
      case '}': return push_list(Kind::dictionary, {});
      case ')':
      case ']': return push_sequence({});
      case '(': return push_integer(0, Kind::mark);
      case 'N': return push_integer(0, Kind::none);
      case '\x88': return push_integer(1, Kind::boolean);
      case '\x89': return push_integer(0, Kind::boolean);
      case '\x85': return push_last(1);
      case '\x86': return push_last(2);
      case '\x87': return push_last(3);
      case 't': {
        TRY(std::vector<Ref> items, pop_to_mark());
        return push_sequence(std::move(items));
      }
      case 'u': {
        TRY(std::vector<Ref> items, pop_to_mark());
        return add_items(items);
      }
      case 's': {
        TRY(Ref value, pop());
        TRY(Ref key, pop());
        return add_items({key, value});
      }
      case 'b': return pop().ok() ? ok_status() : bad("its stack is empty");  // attributes of a dictionary: not ours
      case 'c': return global();
      case 'R': return reduce();
      case 'Q': return storage();
      default: return literal(op);
    }
  }

  Status literal(char op) {
    switch (op) {
      case 'K': {
        TRY(uint64_t v, number(1));
        return push_integer(static_cast<int64_t>(v));
      }
      case 'M': {
        TRY(uint64_t v, number(2));
        return push_integer(static_cast<int64_t>(v));
      }
      case 'J': {
        TRY(uint64_t v, number(4));
        return push_integer(static_cast<int32_t>(v));
      }
      case '\x8a': {  // a long of up to 8 bytes
        TRY(uint64_t size, number(1));
        if (size > 8) return bad("a number is too large");
        TRY(uint64_t v, number(size));
        if (size > 0 && size < 8 && (v >> (8 * size - 1)) != 0) return bad("a number is negative");
        return push_integer(static_cast<int64_t>(v));
      }
      case 'X': {
        TRY(uint64_t size, number(4));
        TRY(std::string_view text, take(size));
        return push_text(text);
      }
      case 'q': {
        TRY(uint64_t slot, number(1));
        return remember(slot);
      }
      case 'r': {
        TRY(uint64_t slot, number(4));
        return remember(slot);
      }
      case 'h': {
        TRY(uint64_t slot, number(1));
        return recall(slot);
      }
      case 'j': {
        TRY(uint64_t slot, number(4));
        return recall(slot);
      }
      default: return bad(fmt::format("it uses the operation 0x{:02x}, which tensors do not need", static_cast<uint8_t>(op)));
    }
  }

  // "torch\nFloatStorage\n" -> "torch FloatStorage", which the code text holds but for the line break.
  Status global() {
    size_t first = code_.find('\n', at_);
    size_t second = first == std::string_view::npos ? first : code_.find('\n', first + 1);
    if (second == std::string_view::npos || second - at_ > 200) return bad("a bad name");
    TRY_STATUS(spend(64 + second - at_));
    std::string& text = names_.emplace_back(code_.substr(at_, second - at_));
    text[first - at_] = ' ';
    at_ = second + 1;
    return push_text(text, Kind::global);
  }

  Status reduce() {
    TRY(Ref args_ref, pop());
    TRY(Ref function_ref, pop());
    const Object& args = objects_[args_ref];
    const Object& function = objects_[function_ref];
    if (args.kind != Kind::sequence || function.kind != Kind::global) return bad("a bad call");
    const std::vector<Ref>& given = items(args);
    if (function.text == "collections OrderedDict" && given.empty()) return push_list(Kind::dictionary, {});
    if (function.text == "torch._utils _rebuild_parameter" && !given.empty() && objects_[given[0]].kind == Kind::tensor) return push_ref(given[0]);
    if (function.text == "torch._utils _rebuild_tensor_v2" && given.size() >= 4) return tensor(given);
    return bad(fmt::format("it holds a '{}'", function.text));
  }

  Result<std::vector<int64_t>> integers(const Object& o) const {
    if (o.kind != Kind::sequence || items(o).size() > 64) return bad("bad sizes");
    std::vector<int64_t> list;
    for (Ref r : items(o)) {
      if (objects_[r].kind != Kind::integer) return bad("bad sizes");
      list.push_back(objects_[r].integer);
    }
    return list;
  }

  // _rebuild_tensor_v2(storage, offset, sizes, strides, ...)
  Status tensor(const std::vector<Ref>& args) {
    const Object& source = objects_[args[0]];
    const Object& offset = objects_[args[1]];
    if (source.kind != Kind::storage || offset.kind != Kind::integer) return bad("a bad tensor");
    TensorData made = tensors_[source.place];
    made.offset = offset.integer;
    TRY(made.sizes, integers(objects_[args[2]]));
    TRY(made.strides, integers(objects_[args[3]]));
    return push_tensor(Kind::tensor, std::move(made));
  }

  // ("storage", type, key, location, count)
  Status storage() {
    TRY(Ref ref, pop());
    const Object& id = objects_[ref];
    if (id.kind != Kind::sequence || items(id).size() != 5) return bad("a bad storage");
    const Object& type = objects_[items(id)[1]];
    const Object& key = objects_[items(id)[2]];
    if (objects_[items(id)[0]].text != "storage" || type.kind != Kind::global || key.kind != Kind::text) return bad("a bad storage");
    TensorData made;
    bool known = false;
    for (const StorageType& t : kStorageTypes) {
      if (t.global != type.text) continue;
      made.dtype = t.dtype;
      known = true;
    }
    if (!known) return Error{ErrorCode::unsupported_dtype, fmt::format("the weights in {} hold a '{}', which is not supported", name_, type.text), {}, {}};
    // Once each: a deflated one is inflated into memory, and three bytes of pickle name it again.
    auto known_bytes = storages_.find(key.text);
    if (known_bytes == storages_.end()) {
      TRY_STATUS(spend(kMemoBytes + 64));
      TRY(ProgramArchive::Bytes bytes, files_.bytes("data/" + std::string(key.text), false));
      known_bytes = storages_.emplace(key.text, std::move(bytes)).first;
    }
    made.owner = known_bytes->second.owner;
    made.bytes = known_bytes->second.bytes;
    return push_tensor(Kind::storage, std::move(made));
  }

  std::string_view code_;
  const ProgramArchive& files_;
  const std::string& name_;
  size_t at_ = 0;
  uint64_t left_;  // of the budget
  // Deques do not move their elements.
  std::deque<Object> objects_;
  std::deque<std::vector<Ref>> lists_;  // keys and values in turn of a dictionary
  std::deque<TensorData> tensors_;      // of a storage: bytes and dtype only
  std::deque<std::string> names_;
  std::map<std::string_view, ProgramArchive::Bytes> storages_;
  std::vector<Ref> stack_;
  std::map<uint64_t, Ref> memo_;
};

// Keeps what the views need alive: the inner archive's reader, and the bytes that it reads from.
struct Holder {
  std::shared_ptr<const void> outer, inner;
};

}  // namespace

Result<Tensors> read_tensor_pickle(const ProgramArchive::Bytes& content, const std::string& name) {
  if (content.bytes.empty()) return Tensors();  // torch writes nothing for an empty dictionary
  ZipLimits limits;
  limits.file_bytes = content.file_bytes;
  TRY(ZipReader zip, ZipReader::from_bytes(content.bytes, name, limits));
  ProgramArchive files(zip);
  TRY(std::string code, files.text("data.pkl", uint64_t{1} << 30));
  if (files.has("byteorder")) {
    TRY(std::string order, files.text("byteorder", 64));
    if (order != "little") return Error{ErrorCode::bad_weights, fmt::format("the weights in {} have the byte order '{}'", name, order), {}, {}};
  }
  TRY(Tensors tensors, Unpickler(code, files, name).run());
  for (auto& [fqn, data] : tensors) data.owner = std::make_shared<const Holder>(Holder{content.owner, data.owner});
  return tensors;
}

}  // namespace coil
