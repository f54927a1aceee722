// Products of bytes of one row as one launch (device/cuda/byte_rows.h): blocks of eight columns, those of the first product first. Where one product's epilogue
// reads what another one stores at the same point (gate and up), a block has the same columns of both.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/joined_products.h"
#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/templates/gemm.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "schedule/join_products.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int64_t kColumns = 8;  // of a block

// Kernels of the plan: one, or two of which the second reads the first one's result.
struct Set {
  size_t first;
  std::optional<size_t> second;
};

class Writer {
 public:
  Writer(const KernelPlan& plan, size_t first, size_t count) : plan_(plan) {
    for (size_t k = first; k < first + count; ++k) {
      Set* partner = nullptr;
      for (Set& s : sets_) {
        if (!s.second && reads_result(plan_, product(k), product(s.first)) != ReadsResult::nothing) partner = &s;
      }
      if (partner) partner->second = k;
      else sets_.push_back({k, std::nullopt});
    }
  }

  std::optional<JoinedProducts> run() {
    if (!possible()) return std::nullopt;
    JoinedProducts out;
    const Expr rows = facts(sets_[0].first).m;
    out.params = fmt::format("    CudaJoinedBytes t = {{}};\n    t.m = {};\n", host_index(rows));
    out.condition = "t.m == 1";
    out.rows = 1;
    out.always = rows == plan_.pool->index(1);
    std::string members, functors, calls;
    int64_t blocks = 0;
    size_t number = 0;
    for (size_t i = 0; i < sets_.size(); ++i) {
      const Set& s = sets_[i];
      out.params += params_text(s.first, number);
      if (s.second) out.params += params_text(*s.second, number + 1);
      const int64_t before = blocks;
      blocks += (facts(s.first).n + kColumns - 1) / kColumns;
      out.params += fmt::format("    t.end[{}] = {};\n", i, blocks);
      add_epilogue(i, out, members);
      functors += functor_text(i);
      calls += call_text(i, number, before);
      number += s.second ? 2 : 1;
    }
    const auto threads = static_cast<int>(warps() * 32);
    out.text.body += fmt::format("struct @NAME@_args {{\n{}}};\n", members) + functors +
                     fmt::format(
                         "COIL_KERNEL void __launch_bounds__({}) @NAME@(const __grid_constant__ CudaJoinedBytes t, const __grid_constant__ @NAME@_args a) {{\n"
                         "  const int block = (int)blockIdx.x;\n{}}}\n",
                         threads, calls);
    out.text.headers = {"cuda/base.h", "cuda/params.h", "cuda/byte_rows.h"};
    out.text.threads = threads;
    out.text.grid_x = std::to_string(blocks);
    return out;
  }

 private:
  const TemplateKernel& product(size_t k) const { return std::get<TemplateKernel>(plan_.kernels[k].def); }
  TemplateUse use(size_t k) const { return {plan_, product(k)}; }
  templates::CudaByteFacts facts(size_t k) const { return byte_facts(use(k), std::get<Gemm>(product(k).def)); }
  int64_t warps() const {
    int64_t most = 1;
    for (const Set& s : sets_) most = std::max(most, templates::byte_row_warps(facts(s.first)));
    return most;
  }

  // Weights are constants, whose first bytes are there before the kernel in front is done, and those of a pair differ in nothing but their numbers.
  bool possible() const {
    const auto constant = [&](size_t k) {
      return plan_.buffer(product(k).operands[1].buffer).placement.kind == Placement::Kind::constant && facts(k).b_alignment % 16 == 0;
    };
    return std::all_of(sets_.begin(), sets_.end(), [&](const Set& s) {
      if (!constant(s.first)) return false;
      return !s.second || (constant(*s.second) && facts(s.first).n == facts(*s.second).n && kind(s.first) == kind(*s.second));
    });
  }
  std::string kind(size_t k) const { return templates::byte_kind_text(facts(k)); }

  std::string params_text(size_t k, size_t number) const {
    const AddressOf address = [&](BufferId id) {
      const Placement::Kind where = plan_.buffer(id).placement.kind;
      const std::string text = buffer_address(plan_, id);
      return where == Placement::Kind::state || where == Placement::Kind::arena ? "(void*)(" + text + ")" : text;
    };
    Params p(use(k), address, fmt::format("t.product[{}]", number));
    byte_params(p, use(k), std::get<Gemm>(product(k).def));
    return p.text;
  }

  void add_epilogue(size_t i, JoinedProducts& out, std::string& members) const {
    const Set& s = sets_[i];
    KernelText part = epilogue_text(plan_, product(s.first), s.second ? &product(*s.second) : nullptr);
    const std::string own = fmt::format("@NAME@_m{}", i);
    replace_all(part.body, "@NAME@", own);
    out.text.body += part.body;
    members += fmt::format("  {}_args m{};\n", own, i);
    const size_t reports = s.second && !checks_index(plan_.kernels[s.first]) ? *s.second : s.first;
    out.args.push_back({static_cast<int>(reports), part.buffers, part.aligned, part.divisible, ""});
  }

  // What finishes the columns of set i.
  std::string functor_text(size_t i) const {
    const templates::CudaByteFacts f = facts(sets_[i].first);
    return fmt::format(
        "struct @NAME@_finish{0} {{\n  const @NAME@_args& a;\n  __device__ __forceinline__ void operator()(int row, int col, const {1} (&sum)[{2}][8]) const {{\n"
        "    @NAME@_m{0}_epilogue{{a.m{0}}}(0, row, col, sum[0], {3}min(8, {4} - col));\n  }}\n}};\n",
        i, f.integers ? "int" : "float", sets_[i].second ? 2 : 1, sets_[i].second ? "sum[1], " : "", f.n);
  }

  std::string call_text(size_t i, size_t number, int64_t before) const {
    const bool last = i + 1 == sets_.size();
    return fmt::format("  {}cd::byte_rows_of<{}, 1, {}, {}, true>(t.product[{}], t.product[{}], {}, 0, @NAME@_finish{}{{a}});\n",
                       last ? "" : fmt::format("if (block < t.end[{}]) return ", i), kind(sets_[i].first), warps(), sets_[i].second ? 2 : 1, number,
                       sets_[i].second ? number + 1 : number,
                       before ? fmt::format("(block - t.end[{}]) * {}", i - 1, kColumns) : fmt::format("block * {}", kColumns), i);
  }

  const KernelPlan& plan_;
  std::vector<Set> sets_;
};

}  // namespace

std::optional<JoinedProducts> joined_bytes(const KernelPlan& plan, size_t first, size_t count) { return Writer(plan, first, count).run(); }

}  // namespace coil::cuda
