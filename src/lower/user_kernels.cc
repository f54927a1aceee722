// A node of a user's operator: its tensors as operands, its numbers, and how each configuration is launched for these sizes.
#include <algorithm>

#include <fmt/format.h>

#include "expr/formula.h"
#include "lower/user_kernels.h"

namespace coil::lowering {
namespace {

using ArgKind = UserKernelArg::Kind;

class UserLowering {
 public:
  explicit UserLowering(Op& op) : op_(op), k_(*op.node.user) { call_.kernel = op.node.user; }

  Views run() {
    for (const UserKernelArg& a : k_.args) call_.args.push_back(argument(a));
    for (int i = 0; i < k_.returns; ++i) {
      const TensorType& type = op_.out(static_cast<size_t>(i));
      check_dtype(k_.result_name(i), type.dtype);
      names_.tensors[k_.result_name(i)] = type.sizes;
      results_.push_back({type.dtype, type.sizes});
    }
    for (const UserKernelArg& a : k_.args) {
      if (!a.written) continue;
      const View v = op_.tensor(a.name);
      results_.push_back({v.dtype, v.sizes});
    }
    for (size_t i = 0; i < k_.configs.size(); ++i) call_.launches.push_back(launch(i));
    if (!k_.key.empty()) call_.key = formula(k_.key);
    const std::string name = k_.name.substr(k_.name.find("::") + 2);
    return op_.rec.user_call(name, std::move(call_), results_);
  }

 private:
  UserCall::Argument argument(const UserKernelArg& a) {
    switch (a.kind) {
      case ArgKind::tensor: return tensor(a);
      case ArgKind::integer: {
        const Expr e = op_.index(a.name);
        names_.numbers.emplace(a.name, e);
        return e;
      }
      case ArgKind::number: return op_.number(a.name);
      case ArgKind::boolean: return op_.flag(a.name);
      case ArgKind::integers: break;
    }
    return op_.indices(a.name);
  }

  UserCall::Tensor tensor(const UserKernelArg& a) {
    const std::optional<View> v = op_.maybe_tensor(a.name);
    if (!v) {
      if (!a.optional) fail(ErrorCode::bad_program, fmt::format("{}: '{}' is None", k_.name, a.name));
      names_.tensors[a.name] = {op_.pool.index(0)};
      return {};
    }
    check_dtype(a.name, v->dtype);
    names_.tensors[a.name] = v->sizes;
    Operand o = op_.rec.operand(*v);
    const auto reads = [](Expr c) { return any_of(c, [](Expr e) { return e->kind == ExprKind::load; }); };
    if (std::any_of(o.coordinates.begin(), o.coordinates.end(), reads)) {  // at a position that is data
      o.buffer = op_.rec.stored(*v, "copy");
      o.coordinates.clear();
      for (size_t d = 0; d < v->rank(); ++d) o.coordinates.push_back(op_.pool.var(static_cast<int32_t>(d)));
    }
    return {std::move(o), v->sizes};
  }

  void check_dtype(const std::string& name, DType dtype) const {
    if (is_complex(dtype))
      fail(ErrorCode::unsupported_dtype, fmt::format("{}: '{}' is complex, which user kernels do not take", k_.name, name), "pass torch.view_as_real of it");
    constexpr DType kKnown[] = {DType::boolean, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64};
    if (std::find(std::begin(kKnown), std::end(kKnown), dtype) == std::end(kKnown))
      fail(ErrorCode::unsupported_dtype, fmt::format("{}: '{}' is {}, which user kernels do not take", k_.name, name, coil::name(dtype)),
           "pass a view of it as bytes");
  }

  Expr formula(const std::string& text) const {
    Result<Expr> e = parse_formula(op_.pool, text, names_);
    if (!e.ok()) throw LowerError{std::move(e).error().with_context(fmt::format("user kernel '{}'", k_.name))};
    return e.value();
  }

  UserCall::Launch launch(size_t number) {
    const UserKernel::Config& config = k_.configs[number];
    UserCall::Launch l;
    const FormulaNames without = names_;
    for (const auto& [name, value] : config) names_.numbers.emplace(name, op_.pool.index(value));
    if (k_.cpu) {
      l.range = formula(k_.cpu->range);
      l.work = k_.cpu->work.empty() ? usual_work(l.range) : index_max(formula(k_.cpu->work), op_.pool.index(0));
    }
    if (k_.cuda) {
      const std::vector<std::string>& grid = k_.cuda->images.empty() ? k_.cuda->grid : k_.cuda->grids[number];
      for (size_t i = 0; i < 3; ++i) l.grid[i] = i < grid.size() ? formula(grid[i]) : op_.pool.index(1);
    }
    if (k_.cuda && k_.cuda->images.empty()) {
      l.block = formula(k_.cuda->block)->as_int();
      if (!k_.cuda->shared.empty()) l.shared = formula(k_.cuda->shared)->as_int();
    }
    names_ = without;
    return l;
  }

  // One vector operation for each element of the results that an item has.
  Expr usual_work(Expr range) const {
    Expr elements = op_.pool.index(0);
    for (const Recorder::Result& r : results_) elements = elements + count(op_.pool, r.sizes);
    return ceil_div(elements, index_max(range, op_.pool.index(1)));
  }

  Op& op_;
  const UserKernel& k_;
  UserCall call_;
  FormulaNames names_;
  std::vector<Recorder::Result> results_;
};

}  // namespace

Views lower_user_kernel(Op& op) { return UserLowering(op).run(); }

}  // namespace coil::lowering
