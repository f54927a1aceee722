// See slots.h.
#include "runtime/slots.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "coil/coil.h"
#include "runtime/saved_state.h"

namespace coil::runtime {
namespace {

// Slots hold one conversation of any: saved ones are told from saved whole states.
uint64_t identity_of(const Model& model) { return model.identity() ^ 0x9E3779B97F4A7C15; }

// -1: more than there can be.
int64_t bytes_of(const ManifestState& s) {
  auto bytes = static_cast<int64_t>(coil_dtype_bytes(s.dtype));
  for (const int64_t size : s.sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

}  // namespace

Status check_slots(const Model& model, int64_t slots) {
  const auto fail = [&](const std::string& what, const std::string& hint) {
    return Error{ErrorCode::unsupported_feature, "the program does not generate text for " + std::to_string(slots) + " conversations at a time: " + what, "",
                 hint};
  };
  if (!model.state()) return fail("it keeps no state", "export it with its caches as buffers, [" + std::to_string(slots) + ", ...]");
  if (model.target().states.empty()) return fail("the package does not tell what its state consists of", "compile it again with this version of coil");
  for (const ManifestState& s : model.target().states) {
    if (s.sizes.empty() || s.sizes[0] != slots)
      return fail("its buffer '" + s.name + "' is not one for each conversation",
                  "give each buffer that it changes a first dimension of " + std::to_string(slots));
    if (s.offset < 0 || bytes_of(s) < 0 || s.offset > static_cast<int64_t>(model.code().state_bytes) - bytes_of(s))
      return Error{ErrorCode::bad_package, "the state's buffer '" + s.name + "' lies outside of the state", "", "compile the program again"};
  }
  return ok_status();
}

Slots::Slots(std::shared_ptr<const Model> model, int64_t slots) : model_(std::move(model)), slots_(slots) {
  for (const ManifestState& s : model_->target().states) pieces_.push_back({s.offset, bytes_of(s) / slots});
}

int64_t Slots::slot_bytes() const {
  return std::accumulate(pieces_.begin(), pieces_.end(), int64_t{0}, [](int64_t sum, const Piece& p) { return sum + p.bytes; });
}

std::unique_ptr<Slot> Slots::free_in(const std::shared_ptr<SlotBlock>& block) {
  std::lock_guard lock(block->mutex);
  for (size_t i = 0; i < block->uses.size(); ++i) {
    if (block->uses[i].taken) continue;
    block->uses[i] = {true, 0, 0};
    return std::unique_ptr<Slot>(new Slot(shared_from_this(), block, static_cast<int64_t>(i)));
  }
  return nullptr;
}

Result<std::unique_ptr<Slot>> Slots::take(const SlotBlock* wish) {
  std::lock_guard lock(mutex_);
  const auto taken = [](const std::shared_ptr<SlotBlock>& b) {
    std::lock_guard in(b->mutex);
    return std::count_if(b->uses.begin(), b->uses.end(), [](const SlotBlock::Use& u) { return u.taken; });
  };
  std::erase_if(blocks_, [&](const std::shared_ptr<SlotBlock>& b) { return b.use_count() == 1 && blocks_.size() > 1; });  // empty ones, but for one
  std::vector<std::pair<std::ptrdiff_t, std::shared_ptr<SlotBlock>>> order;
  for (const auto& b : blocks_) order.emplace_back(b.get() == wish ? PTRDIFF_MAX : taken(b), b);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [count, block] : order) {
    if (auto slot = free_in(block)) return slot;
  }
  auto block = std::make_shared<SlotBlock>();
  TRY(block->state, State::make(*model_, false));
  block->uses.resize(static_cast<size_t>(slots_));
  blocks_.push_back(block);
  return free_in(block);
}

Status Slots::read(const Slot& slot, std::vector<uint8_t>* to) {
  to->resize(static_cast<size_t>(slot_bytes()));
  std::span<uint8_t> rest(*to);
  for (const Piece& p : pieces_) {
    TRY_STATUS(slot.block_->state->read(p.offset + slot.row_ * p.bytes, rest.first(static_cast<size_t>(p.bytes))));
    rest = rest.subspan(static_cast<size_t>(p.bytes));
  }
  return ok_status();
}

Status Slots::write(const Slot& slot, std::span<const uint8_t> from) {
  for (const Piece& p : pieces_) {
    TRY_STATUS(slot.block_->state->write(p.offset + slot.row_ * p.bytes, from.first(static_cast<size_t>(p.bytes))));
    from = from.subspan(static_cast<size_t>(p.bytes));
  }
  return ok_status();
}

Status Slots::clear(SlotBlock& block, int64_t row) {
  for (const Piece& p : pieces_) TRY_STATUS(block.state->reset(p.offset + row * p.bytes, p.bytes));
  return ok_status();
}

// The next conversation there begins as the first one did. Where that fails (a GPU that is gone), the slot stays taken.
Slot::~Slot() {
  std::lock_guard lock(block_->mutex);
  if (owner_->clear(*block_, row_).ok()) block_->uses[static_cast<size_t>(row_)] = {};
}

Result<std::unique_ptr<Slot>> Slot::fork() {
  TRY(auto copy, owner_->take(block_.get()));
  std::vector<uint8_t> bytes;
  SlotBlock::Use use;
  {
    std::lock_guard lock(block_->mutex);
    TRY_STATUS(owner_->read(*this, &bytes));
    use = block_->uses[static_cast<size_t>(row_)];
  }
  std::lock_guard lock(copy->block_->mutex);
  TRY_STATUS(owner_->write(*copy, bytes));
  copy->block_->uses[static_cast<size_t>(copy->row_)] = use;
  return copy;
}

Result<std::vector<uint8_t>> Slot::save() {
  std::vector<uint8_t> bytes;
  {
    std::lock_guard lock(block_->mutex);
    TRY_STATUS(owner_->read(*this, &bytes));
  }
  const auto size = static_cast<int64_t>(bytes.size());
  const SavedRun all = {0, static_cast<uint64_t>(size)};
  return save_bytes(identity_of(*owner_->model_), bytes.data(), size, {&all, 1});
}

Status Slot::restore(std::span<const uint8_t> saved, int64_t length, int64_t last) {
  TRY(const SavedState state, read_saved(saved, identity_of(*owner_->model_), owner_->slot_bytes()));
  std::vector<uint8_t> bytes(static_cast<size_t>(owner_->slot_bytes()));
  const uint8_t* from = state.bytes;
  for (const SavedRun& run : state.runs) {
    std::copy_n(from, run.bytes, bytes.begin() + static_cast<std::ptrdiff_t>(run.begin));
    from += run.bytes;
  }
  std::lock_guard lock(block_->mutex);
  TRY_STATUS(owner_->write(*this, bytes));
  block_->uses[static_cast<size_t>(row_)] = {true, length, last};
  return ok_status();
}

}  // namespace coil::runtime
