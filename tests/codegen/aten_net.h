// Small graphs of ATen operators, as after the passes, and what the CUDA generator makes of them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/cuda_kernels.h"
#include "graph/graph.h"
#include "schedule/kernel_plan.h"

namespace coil::testing {

class AtenNet {
 public:
  AtenNet();

  ExprPool& pool() { return *graph_.pool; }
  Expr dim(int64_t n) { return pool().index(n); }
  std::vector<Expr> dims(std::initializer_list<int64_t> list);
  Expr batch() const { return batch_; }  // dynamic, 1..4096

  ValueId input(const std::string& name, std::vector<Expr> sizes, DType dtype = DType::f32);
  ValueId weight(const std::string& name, const std::vector<int64_t>& sizes, DType dtype = DType::f32);  // of zeros
  // Arguments in schema order, with the defaults. One result per element of `results`.
  std::vector<ValueId> call_all(const std::string& target, std::vector<std::pair<std::string, Argument>> args,
                                const std::vector<std::pair<std::vector<Expr>, DType>>& results);
  ValueId call(const std::string& target, std::vector<std::pair<std::string, Argument>> args, std::vector<Expr> sizes, DType dtype = DType::f32) {
    return call_all(target, std::move(args), {{std::move(sizes), dtype}})[0];
  }
  void output(ValueId id);

  Result<KernelPlan> plan(const std::vector<int>& sms, bool libraries = false) const;

 private:
  Graph graph_;
  Expr batch_;
};

// The programs whose kernels are checked in, by name.
struct NamedNet {
  std::string name;
  AtenNet net;
};
std::vector<NamedNet> golden_nets();
// Programs that between them use every template.
std::vector<NamedNet> template_nets();

}  // namespace coil::testing
