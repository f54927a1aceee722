#include "codegen/cuda/joined_products.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/reduction_writer.h"
#include "codegen/cuda/templates/gemm.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "codegen/replaced_text.h"
#include "schedule/products/join_products.h"
#include "templates/cuda_joined.h"

namespace coil::cuda {
namespace {

// A weight's columns, or those of two side by side; kernels of the plan.
struct ProductSet {
  size_t first;
  std::optional<size_t> second;
};

class ProductSetWriter {
 public:
  ProductSetWriter(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine) : plan_(plan), machine_(machine) {
    size_t k = first;
    if (const auto* rows = std::get_if<LoopKernel>(&plan.kernels[k].def)) rows_ = rows, rows_kernel_ = k++;
    for (; k < first + count; ++k) add(k);
    facts_ = facts(sets_[0].first);
  }

  std::optional<JoinedProducts> run() {
    choose_shape();
    std::optional<KernelText> rows;
    if (rows_ && !(rows = reduction_part(plan_, *rows_, shape_.warps * 32))) return std::nullopt;
    JoinedProducts out;
    out.params = params_text();
    out.condition = condition_;
    out.rows = wherever_ ? std::min(shape_.rows, kJoinedRows) : 0;
    out.always = wherever_ && lower_bound(facts_.m).value_or(0) >= 1 && upper_bound(facts_.m).value_or(kJoinedRows + 1) <= shape_.rows;
    std::string members, finish;
    if (rows) add_part(*rows, "rows", rows_kernel_, out, members);
    for (size_t i = 0; i < sets_.size(); ++i) {
      const TemplateKernel* second = sets_[i].second ? &product(*sets_[i].second) : nullptr;
      const size_t reports = second && !checks_index(plan_.kernels[sets_[i].first]) ? *sets_[i].second : sets_[i].first;
      add_part(epilogue_text(plan_, product(sets_[i].first), second), fmt::format("m{}", i), reports, out, members);
      finish += finish_text(i);
    }
    out.text.body += fmt::format("struct @NAME@_args {{\n{}}};\n", members) + rows_text(rows.has_value()) + finish_struct(finish) + kernel_text();
    out.text.headers = {"cuda/base.h", "cuda/params.h", "cuda/reduce.h", "cuda/joined_rows.h"};
    out.text.threads = shape_.warps * 32;
    out.text.shared_bytes = shape_.rows * depth() * 2;
    out.text.grid_x = fmt::format("least({}, (int64_t)cd::cuda_sms(call) * {})", tiles_, shape_.resident);
    return out;
  }

 private:
  const TemplateKernel& product(size_t k) const { return std::get<TemplateKernel>(plan_.kernels[k].def); }
  templates::CudaGemmFacts facts(size_t k) const { return gemm_facts(plan_, product(k), std::get<Gemm>(product(k).def)); }
  int64_t depth() const { return *templates::known(facts_.k); }
  int64_t columns(const ProductSet& s) const { return *templates::known(facts(s.first).n); }

  void add(size_t k) {
    for (ProductSet& s : sets_) {
      if (s.second || reads_result(plan_, product(k), product(s.first)) == ReadsResult::nothing) continue;
      s.second = k;
      return;
    }
    sets_.push_back({k, std::nullopt});
  }

  void choose_shape() {
    std::vector<int64_t> columns_of_sets;
    bool pairs = false;
    for (const ProductSet& s : sets_) columns_of_sets.push_back(columns(s)), pairs = pairs || s.second;
    shape_ = templates::joined_shape(columns_of_sets, pairs, depth(), machine_);
    condition_ = fmt::format("t.m >= 1 && t.m <= {}", shape_.rows);
  }

  void add_part(KernelText part, const std::string& member, size_t kernel, JoinedProducts& out, std::string& members) const {
    const std::string own = "@NAME@_" + member;
    replace_all(part.body, "@NAME@", own);
    out.text.body += part.body;
    members += fmt::format("  {}_args {};\n", own, member);
    out.args.push_back({static_cast<int>(kernel), part.buffers, part.aligned, part.divisible, ""});
  }

  std::string type() const { return plan_.buffer(product(sets_[0].first).operands[0].buffer).info.dtype == DType::bf16 ? "cd::bf16" : "cd::f16"; }

  std::string rows_text(bool computed) const {
    const std::string body = computed
                                 ? "    for (cd::u32 row = 0; row < (cd::u32)t.m; ++row) {\n      @NAME@_rows(a.rows, row, x);\n      __syncthreads();\n    }\n"
                                 : fmt::format("    cd::copy_rows<{}, {}, {}>(t, x);\n", type(), depth(), shape_.warps * 32);
    return fmt::format(
        "struct @NAME@_rows_of {{\n  const CudaJoined& t;\n  const @NAME@_args& a;\n  __device__ __forceinline__ void operator()({}* x) const {{\n{}  }}\n}};\n",
        type(), body);
  }

  // Of the columns of set i: eight of one weight, or of both.
  std::string finish_text(size_t i) const {
    const std::string head = fmt::format("    if (set == {}) {{\n", i), own = fmt::format("@NAME@_m{0}_epilogue{{a.m{0}}}", i);
    if (sets_[i].second) {
      return head + fmt::format(
                        "      if (half > 0) return;\n      float acc[8], other[8];\n      cd::eight_sums(stage, acc), cd::eight_sums(stage + 8, other);\n"
                        "      return {}(0, row, col, acc, other, min(8, {} - col));\n    }}\n",
                        own, columns(sets_[i]));
    }
    return head + fmt::format(
                      "      col += 8 * half;\n      if (col >= {0}) return;\n      float acc[8];\n      cd::eight_sums(stage + 8 * half, acc);\n"
                      "      return {1}(0, row, col, acc, min(8, {0} - col));\n    }}\n",
                      columns(sets_[i]), own);
  }

  static std::string finish_struct(const std::string& body) {
    return "struct @NAME@_finish {\n  const @NAME@_args& a;\n  __device__ __forceinline__ void operator()(int set, int half, int row, int col, const float* stage) const {\n" +
           body + "  }\n};\n";
  }

  std::string kernel_text() const {
    const bool early = std::all_of(sets_.begin(), sets_.end(), [&](const ProductSet& s) { return constant(s.first) && (!s.second || constant(*s.second)); });
    return fmt::format(
        "COIL_KERNEL void __launch_bounds__({0}, {1}) @NAME@(const __grid_constant__ CudaJoined t, const __grid_constant__ @NAME@_args a) {{\n"
        "  cd::joined_rows<{2}, {3}, {4}, {5}, {6}, {7}>(t, @NAME@_rows_of{{t, a}}, @NAME@_finish{{a}});\n}}\n",
        shape_.warps * 32, shape_.resident, type(), depth(), shape_.halves, shape_.warps, sets_.size(), early);
  }
  bool constant(size_t k) const { return plan_.buffer(product(k).operands[1].buffer).placement.kind == Placement::Kind::constant; }

  // Fills `t`, counts the tiles, and adds to the condition what the operands' addresses have to satisfy.
  std::string params_text() {
    std::string text = "    CudaJoined t = {};\n" + fmt::format("    t.m = {};\n", host_index(facts_.m));
    if (!rows_) text += fmt::format("    t.a = {};\n    t.a_row = {};\n", address(sets_[0].first, 0, facts_.a_alignment), host_index(facts_.a_row));
    for (size_t i = 0; i < sets_.size(); ++i) {
      const ProductSet& s = sets_[i];
      const templates::CudaGemmFacts f = facts(s.first);
      const int64_t n = columns(s), step = s.second ? 8 : 8 * shape_.halves;
      tiles_ += (n + step - 1) / step;
      const std::string b = address(s.first, 1, f.b_alignment), line = host_index(f.b_col);
      text += half_text(i, 0, b, line, n);
      if (s.second) {
        const templates::CudaGemmFacts other = facts(*s.second);
        text += half_text(i, 1, address(*s.second, 1, other.b_alignment), host_index(other.b_col), n);
      } else if (shape_.halves > 1) {
        text += half_text(i, 1, fmt::format("(const char*)({}) + 16 * {}", b, line), line, n - 8);
      }
      text += fmt::format("    t.set[{0}].step = {1}, t.set[{0}].end = {2};\n", i, step, tiles_);
    }
    return text;
  }

  static std::string half_text(size_t set, int half, const std::string& b, const std::string& line, int64_t lines) {
    return fmt::format("    t.set[{0}].b[{1}] = {2}, t.set[{0}].b_col[{1}] = {3}, t.set[{0}].n[{1}] = {4};\n", set, half, b, line, lines);
  }

  // That of an operand's first element, which must be a multiple of 16.
  std::string address(size_t k, size_t operand, int64_t alignment) {
    const std::string text = element_address(plan_, product(k).operands[operand], 64);
    if (alignment % 16 == 0) return text;
    condition_ += fmt::format(" && aligned({}, 16)", text);
    wherever_ = false;
    return text;
  }

  const KernelPlan& plan_;
  const CudaMachine& machine_;
  const LoopKernel* rows_ = nullptr;
  size_t rows_kernel_ = 0;
  std::vector<ProductSet> sets_;
  templates::CudaGemmFacts facts_;  // of the first product
  templates::JoinedShape shape_;
  std::string condition_;
  bool wherever_ = true;  // the condition is about the rows alone
  int64_t tiles_ = 0;
};

}  // namespace

bool joins_itself(const KernelPlan& plan, const Kernel& kernel) {
  return (is_few_rows_product(plan, kernel) || is_few_rows_of_bytes(plan, kernel)) &&
         plan.buffer(std::get<TemplateKernel>(kernel.def).operands[1].buffer).placement.kind == Placement::Kind::constant;
}

std::optional<JoinedProducts> joined_products(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine) {
  const bool bytes = is_few_rows_of_bytes(plan, plan.kernels[first + count - 1]);  // the first one may make the rows
  return bytes ? joined_bytes(plan, first, count, machine) : ProductSetWriter(plan, first, count, machine).run();
}

namespace {

// Device text that says whether the products around the kernel have few rows in this call. Empty: they always have.
std::string few_rows_text(const KernelPlan& plan, const Kernel& k, const std::string& body) {
  for (const Kernel& other : plan.kernels) {
    const auto* t = std::get_if<TemplateKernel>(&other.def);
    const auto* g = other.joins && t ? std::get_if<Gemm>(&t->def) : nullptr;
    const Expr rows = g ? product(*plan.pool, g->m) : Expr();
    if (!rows || rows->is_constant()) continue;
    const int64_t most = is_few_rows_of_bytes(plan, other) ? 1 : kJoinedRows;
    if (std::holds_alternative<TemplateKernel>(k.def)) return fmt::format("t.batch * t.q_len <= {}", most);
    KernelContext context(plan);
    context.wide_index = true;
    std::string text = index_text(context, rows);
    if (body.find("(a.m0, block)") != std::string::npos) replace_all(text, "a.s[", "a.m0.s[");
    return fmt::format("{} <= {}", text, most);
  }
  return "";
}

}  // namespace

void let_next_start(const KernelPlan& plan, const Kernel& k, std::string& body) {
  const auto* t = std::get_if<TemplateKernel>(&k.def);
  if (!std::holds_alternative<LoopKernel>(k.def) && !(t && std::holds_alternative<Attention>(t->def))) return;
  if (std::none_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& other) { return other.joins; })) return;
  replace_all(body, "  cd::begin_kernel();\n", fmt::format("  cd::begin_small_kernel({});\n", few_rows_text(plan, k, body)));
}

}  // namespace coil::cuda
