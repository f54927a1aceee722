// Programs that serve several conversations in a call keep, in each buffer of their state, a part for each of them: [slots, ...]. A slot is one such part
// of one state. States are made as slots are asked for, each with room for `slots` conversations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/model.h"
#include "runtime/state.h"

namespace coil::runtime {

// COIL-E105: some buffer of the state has no part for each of so many conversations.
Status check_slots(const Model& model, int64_t slots);

// A state, and what calls have to know of the conversations in it. Calls hold the mutex.
struct SlotBlock {
  struct Use {
    bool taken = false;
    int64_t length = 0, last = 0;  // tokens that the caches hold, and the last one of them
  };
  std::shared_ptr<State> state;
  std::mutex mutex;
  std::vector<Use> uses;
};

class Slots;

// A place for one conversation, as the exported program begins with it. Gives it back at the end.
class Slot {
 public:
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  SlotBlock& block() const { return *block_; }
  int64_t row() const { return row_; }

  // Waits for calls of the block. Another slot with the same contents, beside this one if there is room.
  Result<std::unique_ptr<Slot>> fork();
  // As those of State, of this slot's part: what was saved goes back into any slot.
  Result<std::vector<uint8_t>> save();
  Status restore(std::span<const uint8_t> saved, int64_t length, int64_t last);

 private:
  friend class Slots;
  Slot(std::shared_ptr<Slots> owner, std::shared_ptr<SlotBlock> block, int64_t row) : owner_(std::move(owner)), block_(std::move(block)), row_(row) {}

  std::shared_ptr<Slots> owner_;
  std::shared_ptr<SlotBlock> block_;
  int64_t row_;
};

// All slots of a generator. Thread-safe.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  Slots(std::shared_ptr<const Model> model, int64_t slots);

  // Of `wish` if it has a free one, else of the state with the most conversations that has, else of a new state.
  Result<std::unique_ptr<Slot>> take(const SlotBlock* wish = nullptr);

 private:
  friend class Slot;
  struct Piece {
    int64_t offset, bytes;  // of the first slot; the next ones follow
  };
  int64_t slot_bytes() const;
  Status read(const Slot& slot, std::vector<uint8_t>* to);
  Status write(const Slot& slot, std::span<const uint8_t> from);
  Status clear(SlotBlock& block, int64_t row);
  std::unique_ptr<Slot> free_in(const std::shared_ptr<SlotBlock>& block);

  std::shared_ptr<const Model> model_;
  int64_t slots_;
  std::vector<Piece> pieces_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<SlotBlock>> blocks_;
};

}  // namespace coil::runtime
