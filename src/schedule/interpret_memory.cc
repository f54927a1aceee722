#include "schedule/interpret_memory.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "schedule/shared_states.h"
#include "schedule/kernel_buffers.h"

namespace coil {
namespace {

constexpr uint8_t kNothing = 0xff;    // NaN in every floating type
constexpr int64_t kMost = 1LL << 33;  // bytes of one piece of memory
constexpr size_t kRoom = 8;           // so that the memory of nothing is somewhere

std::vector<uint8_t> fresh(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= kMost, "more memory than an interpreter has");
  return std::vector<uint8_t>(static_cast<size_t>(bytes) + kRoom, kNothing);
}

}  // namespace

PlanMemory::PlanMemory(const KernelPlan& plan, const PlanSettings& settings, std::vector<int64_t> symbols, std::vector<uint8_t> states)
    : plan_(plan), settings_(settings), symbols_(std::move(symbols)), states_(std::move(states)), inputs_(plan.inputs.size()), late_(plan.late_memory.size()) {
  symbol_of_ = [this](SymbolId id) {
    CHECK(id.valid() && static_cast<size_t>(id.index) < symbols_.size(), "a symbol without a value");
    return symbols_[static_cast<size_t>(id.index)];
  };
  arena_ = fresh(value(plan.arena_bytes));
  if (states_.empty()) load_states();
}

std::vector<int64_t> PlanMemory::values(const std::vector<Expr>& exprs) const {
  std::vector<int64_t> out;
  for (Expr e : exprs) out.push_back(value(e));
  return out;
}

void PlanMemory::load_states() {
  states_ = fresh(static_cast<int64_t>(plan_.state_bytes));
  for (size_t b = 0; b < plan_.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan_.buffers[b];
    if (buffer.placement.kind != Placement::Kind::state) continue;
    const Bytes& begin = plain(BufferId(b));
    const Piece to = piece(BufferId(b));
    std::copy_n(begin.begin(), std::min<size_t>(begin.size(), static_cast<size_t>(to.bytes)), to.data);
  }
}

void PlanMemory::read_symbol(SymbolId id, int64_t value) {
  set_symbol(id, value);
  for (size_t i = 0; i < late_.size(); ++i) {
    if (plan_.late_memory[i].after == id) late_[i] = fresh(this->value(plan_.late_memory[i].bytes));
  }
}

void PlanMemory::set_input(size_t position, const TensorData& data) {
  const LoopInput& in = plan_.inputs[position];
  if (!in.buffer.valid()) return;
  const BufferInfo& b = plan_.buffer(in.buffer).info;
  const std::vector<int64_t> sizes = values(b.sizes), strides = values(b.strides);
  Bytes& to = inputs_[position] = fresh(bytes_of(b));
  const auto item = static_cast<size_t>(byte_size(b.dtype));
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s <= 0; })) return;
  std::vector<int64_t> at(sizes.size(), 0);
  for (bool more = true; more;) {
    int64_t from = data.offset, place = 0;
    for (size_t d = 0; d < at.size(); ++d) from += at[d] * data.strides[d], place += at[d] * strides[d];
    std::memcpy(to.data() + static_cast<size_t>(place) * item, data.bytes.data() + static_cast<size_t>(from) * item, item);
    more = false;
    for (size_t d = at.size(); d-- > 0 && !more;) {
      more = ++at[d] < sizes[d];
      if (!more) at[d] = 0;
    }
  }
}

int64_t PlanMemory::bytes_of(const BufferInfo& b) const {
  return spanned_elements(b, [&](Expr e) { return value(e); }) * byte_size(b.dtype);
}

PlanMemory::Piece PlanMemory::within(Bytes& memory, int64_t begin, int64_t bytes, BufferId id) const {
  const bool inside = begin >= 0 && begin + bytes + static_cast<int64_t>(kRoom) <= static_cast<int64_t>(memory.size());
  CHECK(inside, fmt::format("'{}' at byte {} of {} bytes is not within its memory", plan_.buffer(id).info.name, begin, bytes));
  return {memory.data() + begin, bytes};
}

PlanMemory::Piece PlanMemory::piece(BufferId id) {
  const PlanBuffer& b = plan_.buffer(id);
  const Placement& p = b.placement;
  const auto row = static_cast<size_t>(p.index);
  if (p.kind == Placement::Kind::constant) {
    Bytes& all = constant(row);
    return {all.data(), static_cast<int64_t>(all.size() - kRoom)};
  }
  if (p.kind == Placement::Kind::part) return piece_of_part(b);
  const int64_t bytes = bytes_of(b.info);
  switch (p.kind) {
    case Placement::Kind::input: return within(inputs_[row], 0, bytes, id);
    case Placement::Kind::output: {
      const auto [found, first] = outputs_.try_emplace(p.index);
      if (first) found->second = fresh(bytes);
      return within(found->second, 0, bytes, id);
    }
    case Placement::Kind::state: return within(states_, value(p.offset), bytes, id);
    case Placement::Kind::arena: return within(arena_, value(p.offset), bytes, id);
    case Placement::Kind::late: return within(late_[row], value(p.offset), bytes, id);
    case Placement::Kind::row: {
      const Piece whole = piece(BufferId(p.index));
      CHECK(image_, fmt::format("'{}' is a row of a buffer where there is no image", b.info.name));
      const int64_t begin = image_->number * value(p.offset);
      CHECK(begin >= 0 && begin + bytes <= whole.bytes, fmt::format("'{}' is no row of its buffer", b.info.name));
      return {whole.data + begin, bytes};
    }
    default: break;
  }
  CHECK(false, fmt::format("'{}' has no place", b.info.name));
  return {};
}

// In the memory of an image the number of workers is that of those which share it.
PlanMemory::Piece PlanMemory::piece_of_part(const PlanBuffer& b) {
  CHECK(image_, fmt::format("'{}' has its place in the memory of an image, where there is none", b.info.name));
  int64_t& workers = symbols_[static_cast<size_t>(plan_.workers.index)];
  const int64_t all = std::exchange(workers, image_->workers);
  const int64_t begin = value(b.placement.offset), bytes = bytes_of(b.info);
  workers = all;
  CHECK(begin >= 0 && begin + bytes <= image_->part.bytes, fmt::format("'{}' is not within the memory of an image", b.info.name));
  return {image_->part.data + begin, bytes};
}

interpreter::Tensor PlanMemory::linear(BufferId id) {
  const Piece p = piece(id);
  const DType dtype = plan_.buffer(id).info.dtype;
  return {dtype, p.data, {p.bytes / byte_size(dtype)}, {1}};
}

PlanMemory::Bytes& PlanMemory::constant(size_t row) {
  const auto [found, first] = constants_.try_emplace(static_cast<int>(row));
  if (first) {
    found->second = settings_.constant_bytes(plan_, plan_.constants[row]);
    found->second.resize(found->second.size() + kRoom, kNothing);
  }
  return found->second;
}

const std::vector<uint8_t>& PlanMemory::plain(BufferId id) {
  const auto [found, first] = plain_.try_emplace(id);
  PlanConstant as_it_is;
  as_it_is.buffer = id;
  if (first) found->second = settings_.constant_bytes(plan_, as_it_is);
  return found->second;
}

void PlanMemory::spoil(BufferId id) {
  if (!id.valid()) return;
  const Piece p = piece(id);
  std::fill_n(p.data, p.bytes, kNothing);
}

}  // namespace coil
