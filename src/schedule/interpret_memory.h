// The memory of a call that a plan's interpreter makes, and the sizes' values.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "loop/block_eval.h"
#include "schedule/kernel_plan.h"

namespace coil {

struct PlanSettings {
  int64_t workers = 3;
  // The bytes of a row of the plan's constants as a package has them (codegen/constants.h).
  std::function<std::vector<uint8_t>(const KernelPlan&, const PlanConstant&)> constant_bytes;
};

class PlanMemory {
 public:
  struct Piece {
    uint8_t* data;
    int64_t bytes;
  };

  // states: of the call before, or empty. The symbols are those that inputs give; data ones are 0 yet.
  PlanMemory(const KernelPlan& plan, const PlanSettings& settings, std::vector<int64_t> symbols, std::vector<uint8_t> states);

  const KernelPlan& plan() const { return plan_; }
  ExprPool& pool() const { return *plan_.pool; }

  // --- sizes
  int64_t value(Expr e) const { return evaluate_index(e, symbol_of_); }
  std::vector<int64_t> values(const std::vector<Expr>& exprs) const;
  const interpreter::SymbolOf& symbol_of() const { return symbol_of_; }
  const std::vector<int64_t>& symbols() const { return symbols_; }
  void set_symbol(SymbolId id, int64_t value) { symbols_[static_cast<size_t>(id.index)] = value; }
  // A size from data is known: memory that waits for it is there.
  void read_symbol(SymbolId id, int64_t value);

  // --- bytes
  void set_input(size_t position, const TensorData& data);
  // From the first element of a buffer to its last one. CHECKs that they are within the memory where the buffer has its place.
  Piece piece(BufferId id);
  // A buffer as a vector of elements, which linear offsets count in.
  interpreter::Tensor linear(BufferId id);
  // The numbers of a constant or of a state's beginning, dense, as the program has them.
  const std::vector<uint8_t>& plain(BufferId id);
  // Nobody needs what is there.
  void spoil(BufferId id);
  std::vector<uint8_t> take_states() { return std::move(states_); }

  // --- image by image: the number of the image, and the part of the mark's memory that its worker has, where so many workers share it.
  struct Image {
    int64_t number;
    Piece part;
    int64_t workers;
  };
  void set_image(std::optional<Image> image) { image_ = image; }

 private:
  using Bytes = std::vector<uint8_t>;

  int64_t bytes_of(const BufferInfo& b) const;
  Piece piece_of_part(const PlanBuffer& b);
  Piece within(Bytes& memory, int64_t begin, int64_t bytes, BufferId id) const;
  Bytes& constant(size_t row);
  void load_states();

  const KernelPlan& plan_;
  const PlanSettings& settings_;
  std::vector<int64_t> symbols_;
  interpreter::SymbolOf symbol_of_;
  Bytes arena_, states_;
  std::vector<Bytes> inputs_, late_;
  std::map<int, Bytes> outputs_, constants_;
  std::map<BufferId, Bytes> plain_;
  std::optional<Image> image_;  // nullopt: not within such marks
};

}  // namespace coil
