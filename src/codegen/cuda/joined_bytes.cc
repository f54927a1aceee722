// Products of bytes of one row as one launch (device/cuda/joined_bytes.h), with the kernel that makes the row. Tiles are eight columns of a product, or, where
// one product's epilogue reads what another one stores at the same point (gate and up), the same columns of both. Products whose numbers are of one kind share
// blocks; those of another kind have blocks of their own.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/joined_products.h"
#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/reduction_writer.h"
#include "codegen/cuda/templates/gemm.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "schedule/products/join_products.h"
#include "schedule/schedule.h"
#include "templates/cuda_joined.h"

namespace coil::cuda {
namespace {

constexpr int64_t kTileColumns = 8;  // of a tile

// Kernels of the plan: one, or two of which the second reads the first one's result.
struct ByteSet {
  size_t first;
  std::optional<size_t> second;
};

// Sets [first, end) of one kind, whose first product has this number among all.
struct Run {
  size_t first, end, product;
  int64_t tiles = 0;
};

class ByteSetWriter {
 public:
  ByteSetWriter(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine) : plan_(plan), machine_(machine) {
    size_t begin = first;
    if (const auto* rows = std::get_if<LoopKernel>(&plan.kernels[first].def)) rows_ = rows, rows_kernel_ = begin++;
    for (size_t k = begin; k < first + count; ++k) {
      ByteSet* partner = nullptr;
      for (ByteSet& s : sets_) {
        if (!s.second && reads_result(plan_, product(k), product(s.first)) != ReadsResult::nothing) partner = &s;
      }
      if (partner) partner->second = k;
      else sets_.push_back({k, std::nullopt});
    }
  }

  std::optional<JoinedProducts> run() {
    if (!possible()) return std::nullopt;
    find_runs();
    std::vector<int64_t> tiles;
    bool pairs = false;
    for (const ByteSet& s : sets_) tiles.push_back(tiles_of(s)), pairs = pairs || s.second;
    const templates::CudaByteFacts f = facts(sets_[0].first);
    shape_ = templates::joined_bytes_shape(tiles, pairs, f.k, f.bits, machine_);
    std::optional<KernelText> rows;
    if (rows_ && !(rows = reduction_part(plan_, *rows_, shape_.warps * 32))) return std::nullopt;
    JoinedProducts out;
    out.params = fmt::format("    CudaJoinedBytes t = {{}};\n    t.m = {};\n", host_index(f.m));
    out.condition = "t.m == 1";
    out.rows = 1;
    out.always = f.m == plan_.pool->index(1);
    std::string members;
    if (rows) add_part(std::move(*rows), "rows", rows_kernel_, out, members);
    for (size_t i = 0; i < sets_.size(); ++i) add_epilogue(i, out, members);
    for (const Run& r : runs_) out.params += params_text(r);
    out.text.body += fmt::format("struct @NAME@_args {{\n{}}};\n", members) + rows_text(f.k, rows.has_value());
    for (size_t r = 0; r < runs_.size(); ++r) out.text.body += finish_text(r);
    out.text.body += kernel_text(f.k);
    out.text.headers = {"cuda/base.h", "cuda/params.h", "cuda/joined_bytes.h"};
    if (rows_) out.text.headers.push_back("cuda/reduce.h");
    out.text.threads = shape_.warps * 32;
    out.text.shared_bytes = (f.k + 31) / 32 * 32;
    out.text.grid_x = grid_text();
    return out;
  }

 private:
  const TemplateKernel& product(size_t k) const { return std::get<TemplateKernel>(plan_.kernels[k].def); }
  TemplateUse use(size_t k) const { return {plan_, product(k)}; }
  templates::CudaByteFacts facts(size_t k) const { return byte_facts(use(k), std::get<Gemm>(product(k).def)); }
  int64_t tiles_of(const ByteSet& s) const { return (facts(s.first).n + kTileColumns - 1) / kTileColumns; }
  int groups() const { return shape_.warps / shape_.split; }
  std::string kind(size_t k) const { return templates::byte_kind_text(facts(k)); }

  // Weights are constants, whose first bytes are asked for before the kernel in front is done, and those of a pair differ in nothing but their numbers.
  bool possible() const {
    const auto constant = [&](size_t k) {
      return plan_.buffer(product(k).operands[1].buffer).placement.kind == Placement::Kind::constant && facts(k).b_alignment % 16 == 0;
    };
    return std::all_of(sets_.begin(), sets_.end(), [&](const ByteSet& s) {
      if (!constant(s.first)) return false;
      return !s.second || (constant(*s.second) && facts(s.first).n == facts(*s.second).n && kind(s.first) == kind(*s.second));
    });
  }

  void find_runs() {
    size_t number = 0;
    for (size_t i = 0; i < sets_.size(); ++i) {
      const bool same = !runs_.empty() && kind(sets_[i].first) == kind(sets_[i - 1].first) && sets_[i].second.has_value() == sets_[i - 1].second.has_value();
      if (!same) runs_.push_back({i, i, number});
      runs_.back().end = i + 1;
      runs_.back().tiles += tiles_of(sets_[i]);
      number += sets_[i].second ? 2 : 1;
    }
  }

  // The products of a run, and its tiles up to and with each set.
  std::string params_text(const Run& r) const {
    std::string text;
    size_t number = r.product;
    int64_t tiles = 0;
    for (size_t i = r.first; i < r.end; ++i) {
      text += product_text(sets_[i].first, number++);
      if (sets_[i].second) text += product_text(*sets_[i].second, number++);
      text += fmt::format("    t.end[{}] = {};\n", i, tiles += tiles_of(sets_[i]));
    }
    return text;
  }

  std::string product_text(size_t k, size_t number) const {
    const AddressOf address = [&](BufferId id) {
      const Placement::Kind where = plan_.buffer(id).placement.kind;
      const std::string text = buffer_address(plan_, id);
      return where == Placement::Kind::state || where == Placement::Kind::arena ? "(void*)(" + text + ")" : text;
    };
    Params p(use(k), address, fmt::format("t.product[{}]", number));
    byte_params(p, use(k), std::get<Gemm>(product(k).def));
    return p.text;
  }

  void add_part(KernelText part, const std::string& member, size_t kernel, JoinedProducts& out, std::string& members) const {
    const std::string own = "@NAME@_" + member;
    replace_all(part.body, "@NAME@", own);
    out.text.body += part.body;
    members += fmt::format("  {}_args {};\n", own, member);
    out.args.push_back({static_cast<int>(kernel), part.buffers, part.aligned, part.divisible, ""});
  }

  void add_epilogue(size_t i, JoinedProducts& out, std::string& members) const {
    const ByteSet& s = sets_[i];
    const std::vector<BufferId> fresh = rows_ ? written_buffers(rows_->stmts) : std::vector<BufferId>();
    const size_t reports = s.second && !checks_index(plan_.kernels[s.first]) ? *s.second : s.first;
    add_part(epilogue_text(plan_, product(s.first), s.second ? &product(*s.second) : nullptr, 0, fresh), fmt::format("m{}", i), reports, out, members);
  }

  std::string rows_text(int64_t k, bool computed) const {
    const std::string body = computed ? fmt::format("    @NAME@_rows(a.rows, 0, x);\n    cd::fill_byte_row<{}>(x);\n    __syncthreads();\n", k)
                                      : fmt::format("    cd::copy_byte_row<{}, {}>(t.product[0], x);\n", k, shape_.warps * 32);
    return "struct @NAME@_rows_of {\n  const CudaJoinedBytes& t;\n  const @NAME@_args& a;\n  __device__ __forceinline__ void operator()(signed char* x) const {\n" +
           body + "  }\n};\n";
  }

  // What finishes the columns of a run's sets.
  std::string finish_text(size_t number) const {
    const Run& r = runs_[number];
    const bool pairs = sets_[r.first].second.has_value();
    std::string body;
    for (size_t i = r.first; i < r.end; ++i) {
      body += fmt::format("    {}@NAME@_m{}_epilogue{{a.m{}}}(0, 0, col, sum[0], {}min(8, {} - col));\n",
                          i + 1 < r.end ? fmt::format("if (set == {}) return ", i - r.first) : "", i, i, pairs ? "sum[1], " : "", facts(sets_[i].first).n);
    }
    return fmt::format(
        "struct @NAME@_finish{} {{\n  const @NAME@_args& a;\n  __device__ __forceinline__ void operator()([[maybe_unused]] int set, int col, const {} (&sum)[{}][8]) const {{\n"
        "{}  }}\n}};\n",
        number, facts(sets_[r.first].first).integers ? "int" : "float", pairs ? 2 : 1, body);
  }

  // Blocks of runs lie one behind the other, in number as their tiles; each run has one.
  std::string kernel_text(int64_t k) const {
    int64_t all = 0, before = 0;
    for (const Run& r : runs_) all += r.tiles;
    std::string calls;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Run& r = runs_[i];
      const bool last = i + 1 == runs_.size();
      before += r.tiles;
      const std::string first = i == 0 ? "0" : fmt::format("end{}", i - 1);
      if (!last) calls += fmt::format("  const int end{0} = {1} + (int)((cd::i64)((int)gridDim.x - {2}) * {3} / {4});\n", i, i + 1, runs_.size(), before, all);
      calls +=
          fmt::format("  {}cd::joined_bytes<{}, {}, {}, {}, {}, {}>(t, {}, {}, (int)blockIdx.x - {}, {} - {}, @NAME@_rows_of{{t, a}}, @NAME@_finish{}{{a}});\n",
                      last ? "" : fmt::format("if ((int)blockIdx.x < end{}) return ", i), kind(sets_[r.first].first), k, sets_[r.first].second ? 2 : 1,
                      shape_.split, shape_.warps, r.end - r.first, r.first, r.product, first, last ? "(int)gridDim.x" : fmt::format("end{}", i), first, i);
    }
    return fmt::format(
        "COIL_KERNEL void __launch_bounds__({}, {}) @NAME@(const __grid_constant__ CudaJoinedBytes t, const __grid_constant__ @NAME@_args a) {{\n{}}}\n",
        shape_.warps * 32, shape_.resident, calls);
  }

  std::string grid_text() const {
    int64_t blocks = 0;  // that have something to do
    for (const Run& r : runs_) blocks += (r.tiles + groups() - 1) / groups();
    const std::string resident = fmt::format("least({}, (int64_t)cd::cuda_sms(call) * {})", blocks, shape_.resident);
    return runs_.size() == 1 ? resident : fmt::format("greatest({}, {})", runs_.size(), resident);
  }

  const KernelPlan& plan_;
  const CudaMachine& machine_;
  const LoopKernel* rows_ = nullptr;
  size_t rows_kernel_ = 0;
  std::vector<ByteSet> sets_;
  std::vector<Run> runs_;
  templates::JoinedBytesShape shape_;
};

}  // namespace

std::optional<JoinedProducts> joined_bytes(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine) {
  return ByteSetWriter(plan, first, count, machine).run();
}

}  // namespace coil::cuda
