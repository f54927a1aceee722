// Sorts: a kernel that sorts tiles of rows, and one that merges pairs of sorted runs, which is launched until a row is one run (device/cuda/sort.h).
#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/radix_sort.h"
#include "codegen/index_text.h"
#include "device/cuda/shared_memory.h"

namespace coil::cuda {
namespace {

constexpr int64_t kTile = cd::kSortTile, kThreads = cd::kSortThreads, kItems = cd::kSortItems;
constexpr int64_t kMostElements = int64_t{1} << 32;  // of a row: indices are 32 bits until they are stored

class SortWriter {
 public:
  SortWriter(const KernelPlan& plan, const SortKernel& kernel) : plan_(plan), k_(kernel), fresh_(plan) {
    ExprPool& pool = *plan.pool;
    const auto dim = static_cast<size_t>(k_.def.dim);
    rows_ = pool.index(1), kept_ = k_.sizes.empty() ? pool.index(1) : k_.sizes[dim];
    for (size_t d = 0; d < std::max<size_t>(k_.sizes.size(), 1); ++d) {
      fresh_.vars.push_back(d == dim ? "j" : "i" + std::to_string(d));
      fresh_.sizes.push_back(k_.sizes.empty() ? pool.index(1) : k_.sizes[d]);
      if (d != dim) rows_ = rows_ * k_.sizes[d];
    }
    contiguous_ = dim + 1 >= k_.sizes.size();
    const int64_t most = std::clamp<int64_t>(upper_bound(k_.def.length).value_or(kMostElements), 1, kMostElements);
    if (most <= kTile) team_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((most + kItems - 1) / kItems)));
    for (int64_t width = kTile; width < most; width *= 2) ++passes_;
  }

  std::vector<KernelStep> run() {
    std::vector<KernelStep> out;
    const Expr tiles = floor_div(k_.def.length + (kTile - 1), plan_.pool->index(kTile)),
               blocks = floor_div(rows_ + (kThreads / team_ - 1), plan_.pool->index(kThreads / team_));
    out.push_back({finished(team_ < kThreads ? small_rows() : tiles_of_rows()), {}, ""});
    out[0].text.grid_x = host_index(team_ < kThreads ? blocks : rows_ * tiles);
    if (passes_ > 0) out[0].text.work = {rows_ * tiles * 2, 1};  // a pass has fewer
    const KernelText merge = passes_ > 0 ? finished(merges(), "const cd::i64 number") : KernelText{};
    for (int64_t pass = 0; pass < passes_; ++pass) {
      const std::string width = std::to_string(kTile << pass), n = host_index(k_.def.length);
      out.push_back({merge, pass, k_.def.length->is_constant() ? "" : fmt::format("{} > {}L", n, width)});
      out.back().text.grid_x =
          fmt::format("{0} * cdiv({1}, 2 * {2}L) * cdiv(least({3}, 2 * {2}L), {4}L)", host_index(rows_), n, width, host_index(kept_), kTile);
      if (pass == 0) out.back().text.work = {k_.def.length, 2};  // of which indices of 32 bits are enough
    }
    return out;
  }

 private:
  KernelContext& c() { return *context_; }
  std::string index(Expr e) { return index_text(c(), e); }
  std::string type() const { return memory_type(k_.dtype); }
  std::string descending() const { return k_.def.descending ? "true" : "false"; }

  // "i0", "i1", ... of the row.
  std::string position(const std::string& row, const std::string& indent) {
    std::string text = fmt::format("{}[[maybe_unused]] cd::i64 rest = {};\n", indent, row);
    for (size_t d = k_.sizes.size(); d-- > 0;) {
      if (d != static_cast<size_t>(k_.def.dim)) text += fmt::format("{2}const cd::i64 i{0} = rest % {1};\n{2}rest /= {1};\n", d, index(k_.sizes[d]), indent);
    }
    return text;
  }
  // Element e of shared memory is the value at j.
  std::string fill() {
    std::map<int, TempText> temps;
    std::string text;
    Emitter emitter(c(), {&text, &text, "    ", "    ", -1, 1}, temps);
    const std::string value = emitter.value(k_.body).text;
    return text + fmt::format("    cd::store1(v + e, {});\n    o[e] = (cd::u32)j;\n", value);
  }
  // And becomes the result at j.
  std::string store() {
    std::string text = fmt::format("    {}[{}] = v[e];\n", c().names.pointer(k_.values), index(k_.values_offset));
    return text + fmt::format("    {}[{}] = o[e];\n", c().names.pointer(k_.indices), index(k_.indices_offset));
  }
  // Of a kernel's text.
  std::string begin() {
    context_.emplace(fresh_);
    const std::string length = index(k_.def.length), kept = index(kept_);
    return fmt::format("  __shared__ __align__(16) {} v[{}];\n  __shared__ cd::u32 o[{}];\n  const cd::i64 n = {}, kept = {};\n", type(), kTile, kTile, length,
                       kept);
  }
  // Of runs that wait to be merged: indices, the other indices, values, the other values.
  std::string scratch() {
    const std::string at = c().names.pointer(k_.scratch);
    return fmt::format(
        "  const cd::i64 all = {} * n;\n  cd::u32* const runs_o = (cd::u32*){};\n  cd::u32* const others_o = runs_o + all;\n"
        "  {}* const runs_v = ({}*)(others_o + all);\n  [[maybe_unused]] {}* const others_v = runs_v + all;\n",
        index(rows_), at, type(), type(), type());
  }

  // Rows that teams of threads sort beside each other.
  std::string small_rows() {
    const int64_t rows = kThreads / team_, row = team_ * kItems;
    const auto each = [&](const std::string& length, const std::string& body) {
      const std::string team = contiguous_ ? "x / " + length : "x % here", j = contiguous_ ? "x % " + length : "x / here";
      return fmt::format(
          "  for (int x = threadIdx.x; x < here * {}; x += {}) {{\n    const int team = {};\n    const cd::i64 j = {};\n    const int e = team * {} + (int)j;\n{}{}  }}\n",
          length, kThreads, team, j, row, position("row + team", "    "), body);
    };
    std::string text = begin();
    text += fmt::format(
        "  const cd::i64 row = (cd::i64)blockIdx.x * {0}, left = {1} - row;\n  const int here = left < {0} ? (int)left : {0}, length = (int)n, most = (int)kept;\n",
        rows, index(rows_));
    text += each("length", fill()) + "  __syncthreads();\n";
    text += fmt::format("  cd::sort_rows<{}, {}>(v, o, length, (int)threadIdx.x / {} < here ? length : 0, kept);\n", descending(), team_, team_);
    return text + each("most", store());
  }

  std::string tiles_of_rows() {
    const std::string from =
        "  const cd::i64 tiles = (n + cd::kSortTile - 1) / cd::kSortTile, row = blockIdx.x / tiles, first = blockIdx.x % tiles * cd::kSortTile;\n";
    std::string text = begin();
    text += from + "  const int count = n - first < cd::kSortTile ? (int)(n - first) : cd::kSortTile, most = kept < count ? (int)kept : count;\n";
    text += position("row", "  ");
    text += fmt::format("  for (int e = threadIdx.x; e < count; e += {}) {{\n    const cd::i64 j = first + e;\n{}  }}\n  __syncthreads();\n", kThreads, fill());
    text += fmt::format("  cd::sort_rows<{}, {}>(v, o, count, count, kept);\n", descending(), kThreads);
    const std::string done = fmt::format("  for (int e = threadIdx.x; e < most; e += {}) {{\n    const cd::i64 j = e;\n{}  }}\n", kThreads, store());
    if (passes_ == 0) return text + done;
    text += "  if (tiles == 1) {\n" + done + "    return;\n  }\n" + scratch();
    return text +
           fmt::format("  for (int e = threadIdx.x; e < most; e += {}) runs_v[row * n + first + e] = v[e], runs_o[row * n + first + e] = o[e];\n", kThreads);
  }

  std::string merges() {
    std::string text = begin();
    text += scratch();
    text +=
        "  const cd::MergePass p(n, kept, number);\n  const cd::i64 tile = blockIdx.x % p.tiles, pair = blockIdx.x / p.tiles % p.pairs, row = blockIdx.x / p.tiles / p.pairs;\n"
        "  const cd::i64 begin = pair * 2 * p.width, left = n - begin;\n"
        "  cd::i64 nx = left < p.width ? left : p.width, ny = left - nx < p.width ? left - nx : p.width;\n"
        "  if (kept < nx) nx = kept;\n  if (kept < ny) ny = kept;\n"
        "  const cd::i64 at = tile * cd::kSortTile, end = nx + ny < kept ? nx + ny : kept;\n  if (at >= end) return;\n"
        "  const int count = end - at < cd::kSortTile ? (int)(end - at) : cd::kSortTile;\n";
    text += fmt::format(
        "  const {0}* const x = (number % 2 ? others_v : runs_v) + row * n + begin;\n  const cd::u32* const xo = (number % 2 ? others_o : runs_o) + row * n + begin;\n"
        "  cd::merge_tile<{1}>(v, o, x, xo, nx, x + p.width, xo + p.width, ny, at, count);\n  if (p.pairs == 1) {{\n",
        type(), descending());
    text += position("row", "    ");
    text +=
        fmt::format("    for (int e = threadIdx.x; e < count; e += {}) {{\n    const cd::i64 j = at + e;\n{}    }}\n    return;\n  }}\n", kThreads, store());
    return text + fmt::format(
                      "  {0}* const to_v = (number % 2 ? runs_v : others_v) + row * n + begin + at;\n"
                      "  cd::u32* const to_o = (number % 2 ? runs_o : others_o) + row * n + begin + at;\n"
                      "  for (int e = threadIdx.x; e < count; e += {1}) to_v[e] = v[e], to_o[e] = o[e];\n",
                      type(), kThreads);
  }

  KernelText finished(const std::string& body, const std::string& more = "") {
    std::vector<BufferId> written = {k_.values, k_.indices};
    if (k_.scratch.valid()) written.push_back(k_.scratch);
    const std::string bounds = fmt::format("__launch_bounds__({})", kThreads);
    KernelText t = finish(c(), kernel_frame(c(), written, bounds, more) + body + "}\n");
    t.headers = {"cuda/sort.h"};
    t.threads = static_cast<int>(kThreads);
    return t;
  }

  const KernelPlan& plan_;
  const SortKernel& k_;
  KernelContext fresh_;
  std::optional<KernelContext> context_;  // of the kernel that is being written
  Expr rows_, kept_;
  bool contiguous_ = true;
  int64_t team_ = kThreads;  // threads that sort a row or a tile
  int64_t passes_ = 0;       // of merges that the longest row needs
};

}  // namespace

std::vector<KernelStep> sort_launches(const KernelPlan& plan, const SortKernel& kernel) {
  return sorts_by_digits(kernel) ? radix_launches(plan, kernel) : SortWriter(plan, kernel).run();
}

}  // namespace coil::cuda
