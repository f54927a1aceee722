#include "codegen/cuda/commits.h"

#include <fmt/format.h>

#include "codegen/index_text.h"
#include "device/cuda/shared_memory.h"

namespace coil::cuda {

bool is_commit(const KernelPlan& plan, const CopyKernel& copy) {
  const Placement::Kind kind = plan.buffer(copy.to).placement.kind;
  return !copy.to_element && kind != Placement::Kind::arena && kind != Placement::Kind::late;
}

KernelText commit_text(const KernelPlan& plan, std::span<const CopyKernel* const> copies) {
  KernelContext c(plan);
  std::string text;
  std::vector<BufferId> written;
  Expr parts = plan.pool->index(0);
  for (const CopyKernel* k : copies) {
    const BufferInfo& b = plan.buffer(k->to).info;
    const Expr bytes = product(*plan.pool, b.sizes) * byte_size(b.dtype);
    const std::string to = c.names.pointer(k->to), from = c.names.pointer(k->from);
    c.aligned[k->to.index] = 16, c.aligned[k->from.index] = 16;
    text += fmt::format("      if (cd::is_of(commit, part, {}, {}, {})) break;\n", to, from, index_text(c, bytes));
    written.push_back(k->to);
    parts = parts + ceil_div(bytes, plan.pool->index(cd::kCommitBytes));
  }
  const std::string loop = fmt::format(
      "  if (cd::has_fault(a.flag)) return;\n  for (cd::i64 next = cd::commit_first(); next < {}; next += cd::commit_step()) {{\n    cd::i64 part = next;\n    cd::Commit commit = {{}};\n    do {{\n",
      index_text(c, parts));
  KernelText t = finish(c, kernel_frame(c, written, fmt::format("__launch_bounds__({})", int{cd::kCommitThreads})) + loop + text +
                               "    } while (false);\n    cd::copy_part(commit, part, a.wide);\n  }\n}\n");
  t.headers = {"cuda/commit.h"};
  t.threads = cd::kCommitThreads;
  t.grid_x = fmt::format("least(cdiv({}, {}), {})", host_index(parts), cd::kCommitThreads / 32, int{cd::kCommitBlocks});
  return t;
}

KernelText element_commit_text(const KernelPlan& plan, const CopyKernel& copy) {
  KernelContext c(plan);
  const BufferInfo &from = plan.buffer(copy.from).info, &to = plan.buffer(copy.to).info;
  const std::string out = c.names.pointer(copy.to), in = c.names.pointer(copy.from);
  const Expr elements = product(*plan.pool, to.sizes);
  std::string text = fmt::format(
      "  if (cd::has_fault(a.flag)) return;\n  for (cd::i64 next = (cd::i64)blockIdx.x * {0} + threadIdx.x; next < {1}; next += (cd::i64)gridDim.x * {0}) {{\n"
      "    cd::i64 rest = next, read = 0, write = 0;\n",
      int{cd::kCommitThreads}, index_text(c, elements));
  for (size_t d = to.sizes.size(); d-- > 0;) {
    const std::string at = d == 0 ? "rest" : fmt::format("(rest % ({}))", index_text(c, to.sizes[d]));
    text += fmt::format("    read += {0} * ({1}), write += {0} * ({2});\n", at, index_text(c, from.strides[d]), index_text(c, to.strides[d]));
    if (d > 0) text += fmt::format("    rest /= {};\n", index_text(c, to.sizes[d]));
  }
  KernelText t = finish(c, kernel_frame(c, {copy.to}, fmt::format("__launch_bounds__({})", int{cd::kCommitThreads})) + text +
                               fmt::format("    {}[write] = {}[read];\n  }}\n}}\n", out, in));
  t.headers = {"cuda/commit.h"};
  t.threads = cd::kCommitThreads;
  t.grid_x = fmt::format("least(cdiv({}, {}), {})", host_index(elements), int{cd::kCommitThreads}, int{cd::kCommitBlocks});
  return t;
}

}  // namespace coil::cuda
