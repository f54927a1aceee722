#include "frontend/block_rows.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace coil {

// What the parts of a matrix have in common.
struct BlockRows::Data {
  const BlockForm* form;
  std::span<const uint8_t> bytes;
  bool mapped;
  int64_t blocks;  // of a row
  std::vector<int64_t> order;
  mutable std::once_flag hashed;
  mutable Hash128 contents;
  mutable std::atomic<uint64_t> unreturned{0};

  uint64_t rows() const { return order.empty() ? bytes.size() / row_bytes() : order.size(); }
  uint64_t row_bytes() const { return static_cast<uint64_t>(blocks) * form->bytes; }
  const uint8_t* row(uint64_t number) const { return bytes.data() + (order.empty() ? number : static_cast<uint64_t>(order[number])) * row_bytes(); }
  // Pages of a file that have been read leave this process's memory (the system keeps them as it likes), and come back where they are read again. Only those
  // that lie in the tensor whole.
  void let_go() const {
    if (!mapped) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), address = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes.size()) / page * page;
    if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  // So many bytes were read, by any thread: every few MB all of them go.
  void was_read(uint64_t count) const {
    constexpr uint64_t kMost = 16 << 20;
    const uint64_t parts = (bytes.size() + kMost - 1) / kMost,
                   part = bytes.size() / std::max<uint64_t>(parts, 1) / 16 * 15;  // (somewhat less: the last one counts)
    if (!mapped || unreturned.fetch_add(count) + count < part) return;
    unreturned = 0;
    let_go();
  }
  Hash128 hash() const {
    std::call_once(hashed, [&] {
      const Hash128 own = hash128(bytes);
      let_go();
      std::string text = fmt::format("{} {} {} {}", form->name, blocks, hex(own), order.size());
      text.append(reinterpret_cast<const char*>(order.data()), order.size() * sizeof(int64_t));
      contents = hash128(text);
    });
    return contents;
  }
};

class BlockRows::Source : public ByteSource {
 public:
  enum class Part : uint8_t { numbers, scale, zero, halves };
  Source(std::shared_ptr<const Data> data, Part part) : data_(std::move(data)), part_(part) {}

  uint64_t size() const override { return data_->rows() * static_cast<uint64_t>(data_->blocks) * of_block(); }
  bool has_4_bits() const override { return part_ == Part::numbers && data_->form->has_4_bits; }
  Hash128 hash() const override {
    const Hash128 own = data_->hash();
    return hash128(fmt::format("{} {}", hex(own), static_cast<int>(part_)));
  }

  std::shared_ptr<const ByteSource> in_halves() const override {
    return part_ == Part::scale && data_->form->has_halves ? std::make_shared<Source>(data_, Part::halves) : nullptr;
  }

  void read(uint64_t begin, std::span<uint8_t> out) const override {
    const uint64_t unit = of_block(), touched = out.size() / unit * data_->form->bytes, of_row = unit * static_cast<uint64_t>(data_->blocks);
    for (uint64_t row = begin / of_row, at = begin % of_row; !out.empty(); ++row, at = 0) {
      const auto count = static_cast<size_t>(std::min<uint64_t>(of_row - at, out.size()));
      read_row(data_->row(row) + at / unit * data_->form->bytes, at % unit, out.first(count));
      out = out.subspan(count);
    }
    data_->was_read(touched);
  }

 private:
  static constexpr size_t kMost = 256;  // bytes of a block's part

  // From a block on; `skipped`: of its part, before the first byte that is wanted.
  void read_row(const uint8_t* block, size_t skipped, std::span<uint8_t> out) const {
    const size_t unit = of_block(), step = data_->form->bytes;
    for (; !out.empty(); block += step, skipped = 0) {
      const size_t count = std::min(unit - skipped, out.size());
      if (count == unit) {
        make(block, out.data());
      } else {  // the range begins or ends within a block
        alignas(8) uint8_t whole[kMost];
        make(block, whole);
        std::memcpy(out.data(), whole + skipped, count);
      }
      out = out.subspan(count);
    }
  }

  uint64_t of_block() const {
    const BlockForm& f = *data_->form;
    if (part_ == Part::numbers) return static_cast<uint64_t>(f.numbers);
    return static_cast<uint64_t>(f.numbers / f.group) * (part_ == Part::halves ? sizeof(uint16_t) : sizeof(float));
  }

  void make(const uint8_t* block, uint8_t* out) const {
    if (part_ == Part::numbers) return data_->form->take(block, reinterpret_cast<int8_t*>(out));
    if (part_ == Part::halves) return static_cast<void>(std::memcpy(out, block, sizeof(uint16_t)));
    float scale[kMost / sizeof(float)], zero[kMost / sizeof(float)];
    data_->form->scales(block, scale, zero);
    std::memcpy(out, part_ == Part::scale ? scale : zero, of_block());
  }

  std::shared_ptr<const Data> data_;
  Part part_;
};

Result<BlockRows> BlockRows::over(std::string_view type, std::span<const uint8_t> data, bool mapped, int64_t columns, std::vector<int64_t> order) {
  const auto wrong = [&](std::string_view what) { return Error{ErrorCode::bad_weights, fmt::format("a matrix of {}: {}", type, what), "", ""}; };
  const BlockForm* form = block_form(type);
  if (!form) return wrong("the type is not known");
  if (columns <= 0 || columns % form->numbers != 0) return wrong(fmt::format("{} columns are no blocks of {}", columns, form->numbers));
  auto own = std::make_shared<Data>();
  own->form = form, own->bytes = data, own->mapped = mapped, own->blocks = columns / form->numbers, own->order = std::move(order);
  const auto rows = static_cast<int64_t>(data.size() / own->row_bytes());
  if (data.size() % own->row_bytes() != 0) return wrong(fmt::format("{} bytes are no rows of {}", data.size(), own->row_bytes()));
  if (std::any_of(own->order.begin(), own->order.end(), [&](int64_t row) { return row < 0 || row >= rows; })) return wrong("it has no such row");
  BlockRows made;
  made.data_ = std::move(own);
  return made;
}

std::shared_ptr<const ByteSource> BlockRows::numbers() const { return std::make_shared<Source>(data_, Source::Part::numbers); }
std::shared_ptr<const ByteSource> BlockRows::scale() const { return std::make_shared<Source>(data_, Source::Part::scale); }
std::shared_ptr<const ByteSource> BlockRows::zero() const { return data_->form->has_zero ? std::make_shared<Source>(data_, Source::Part::zero) : nullptr; }

}  // namespace coil
