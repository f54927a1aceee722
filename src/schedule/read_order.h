// In which order a call reads sizes from its data: what depends on several of them is known with the last one.
#pragma once

#include <span>
#include <unordered_map>

#include "schedule/kernel_plan.h"

namespace coil {

class ReadOrder {
 public:
  explicit ReadOrder(const KernelPlan& plan);

  // The symbol in these sizes that is read last; invalid: there is none.
  SymbolId last(std::span<const Expr> exprs) const;

 private:
  std::unordered_map<int32_t, size_t> places_;  // of the symbols: the last kernel that reads it
};

}  // namespace coil
