// Rows joined at the rows of a table by atomic operations: a kernel that begins the table, and one that joins (device/cuda/join_rows.h). What may
// be joined so the lowering knows (src/lower/row_sums.cc).
#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/index_text.h"
#include "device/cuda/shared_memory.h"
#include "loop/join_rows.h"

namespace coil::cuda {
namespace {

// The kernels' template arguments.

class JoinWriter {
 public:
  JoinWriter(const KernelPlan& plan, const LibraryKernel& kernel) : plan_(plan), k_(kernel) {
    const std::optional<JoinRows> join = JoinRows::of(k_.def);
    CHECK(join && join->how != JoinRows::last && join->whose != JoinRows::chosen, "a join that CUDA does not have");
    join_ = *join;
  }

  std::vector<KernelStep> run() {
    std::vector<KernelStep> out;
    if (join_.part != 0) {
      out.push_back({in_parts(), {}, ""});
      return out;
    }
    out.push_back({begins(), {}, ""});
    out.push_back({counts() ? counted() : joined(), {}, ""});
    return out;
  }

 private:
  std::string size(size_t i) { return index_text(*context_, k_.def.sizes[i]); }
  std::string in(size_t i) { return context_->names.pointer(k_.def.inputs[i]); }
  std::string out() { return context_->names.pointer(k_.results[0]); }
  Expr table() const { return k_.def.sizes[0] * k_.def.sizes[1]; }
  Expr writes() const { return k_.def.sizes[2] * k_.def.sizes[1]; }

  // Whether each row brings the same integer to one of few bins.
  bool counts() const {
    const bool integer_sum = join_.how == JoinRows::sum && join_.whose == JoinRows::shared;
    return integer_sum && k_.def.sizes[1] == plan_.pool->index(1) && upper_bound(k_.def.sizes[0]).value_or(INT64_MAX) <= cd::kJoinCounts;
  }

  KernelText begins() {
    context_.emplace(plan_);
    const std::string text = fmt::format("  cd::begin_table({}, {}, {}, {});\n", out(), in(2), join_.whole ? "true" : "false", index_text(*context_, table()));
    return finished(text, table(), cd::kJoinBlock);
  }

  KernelText joined() {
    context_.emplace(plan_);
    const bool numbered = join_.whose == JoinRows::number;
    const std::string text =
        fmt::format("  cd::join_rows<{}, {}>({}, {}, {}, {}, {}, {}, {{{}, {}}});\n", static_cast<int64_t>(join_.how), static_cast<int64_t>(join_.whose), out(),
                    in(0), in(1), size(0), size(1), index_text(*context_, writes()), numbered ? size(3) : "1", numbered ? size(4) : "1");
    return finished(text, writes(), cd::kJoinBlock);
  }

  KernelText counted() {
    constexpr int64_t most_blocks = 1024;
    context_.emplace(plan_);
    KernelText t = finished(fmt::format("  cd::count_rows({}, {}, {}, {}, {});\n", out(), in(0), in(1), size(0), size(2)), writes(), 4 * cd::kJoinBlock);
    t.grid_x = fmt::format("least({}, {})", t.grid_x, most_blocks);
    return t;
  }

  // As many columns, in powers of two, as the block's table has room for, and groups of warps for those that are left.
  KernelText in_parts() {
    context_.emplace(plan_);
    const Expr rows = k_.def.sizes[3];
    const int64_t most = upper_bound(k_.def.sizes[1]).value_or(INT64_MAX), sums = cd::kPartBytes / byte_size(k_.def.dtype);
    const int64_t room = rows->is_constant() && rows->as_int() > 0 ? sums / rows->as_int() : 0;
    CHECK(join_.part % 32 == 0 && join_.part <= cd::kPartRows && room > 0, "a part that no block can hold");
    int64_t columns = 1, groups = 1;
    while (columns < most && 2 * columns <= std::min<int64_t>(room, cd::kPartColumns)) columns *= 2;
    while (2 * groups * columns <= std::min<int64_t>(room, cd::kJoinThreads / 32) && join_.part / groups >= 64) groups *= 2;
    const std::string text = fmt::format("  cd::sum_parts<{}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {});\n", join_.part, columns, groups,
                                         join_.turned ? "true" : "false", static_cast<int64_t>(join_.whose), out(), in(0), in(1), size(3), size(1), size(2));
    KernelText t = finished(text, k_.def.sizes[2], join_.part);
    t.grid_y = fmt::format("cdiv({}, {}L)", host_index(k_.def.sizes[1]), columns);
    return t;
  }

  KernelText finished(const std::string& body, Expr work, int64_t share) {
    KernelText t = finish(*context_, kernel_frame(*context_, {k_.results[0]}, fmt::format("__launch_bounds__({})", cd::kJoinThreads)) + body + "}\n");
    t.headers = {"cuda/join_rows.h"};
    t.threads = cd::kJoinThreads;
    t.grid_x = fmt::format("cdiv({}, {}L)", host_index(work), share);
    t.work = {work, share};
    return t;
  }

  const KernelPlan& plan_;
  const LibraryKernel& k_;
  JoinRows join_;
  std::optional<KernelContext> context_;  // of the kernel that is being written
};

}  // namespace

std::vector<KernelStep> join_launches(const KernelPlan& plan, const LibraryKernel& kernel) { return JoinWriter(plan, kernel).run(); }

}  // namespace coil::cuda
