// A pass counts digits and moves elements; the first reads what is sorted, the last writes the results, those between go from one half of the scratch memory
// to the other.
#include "codegen/cuda/radix_sort.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/index_text.h"
#include "device/cuda/shared_memory.h"

namespace coil::cuda {
namespace {

// An H100 merges up to so many elements faster, and numbers of 32 bits in any case: 1,000,000 of them in 140 us instead of 180 (bench/sorts.py).
constexpr int64_t kFew = 2 * cd::kSortTile;
constexpr int kMostPasses = 3;

int key_bits(const SortKernel& k) {
  if (k.def.below > 0) return std::max(static_cast<int>(std::bit_width(static_cast<uint64_t>(k.def.below - 1))), 1);
  return is_bool(k.dtype) ? 1 : 8 * static_cast<int>(byte_size(k.dtype));
}

int passes_of(const SortKernel& k) { return (key_bits(k) + cd::kRadixBits - 1) / cd::kRadixBits; }

class RadixWriter {
 public:
  RadixWriter(const KernelPlan& plan, const SortKernel& kernel) : plan_(plan), k_(kernel), fresh_(plan) {
    fresh_.vars.push_back("j");
    fresh_.sizes.push_back(k_.def.length);
    passes_ = passes_of(k_);
    bits_ = (key_bits(k_) + passes_ - 1) / passes_;
  }

  std::vector<KernelStep> run() {
    const KernelText count = finished(counts()), move = finished(moves());
    std::vector<KernelStep> out;
    for (int pass = 0; pass < passes_; ++pass) {
      out.push_back({count, pass, ""});
      out.push_back({move, pass, ""});
    }
    out[0].text.work = {k_.def.length, 2};  // of which indices of 32 bits are enough
    return out;
  }

 private:
  KernelContext& c() { return *context_; }
  // Of an element between two passes: bounded integers take 32 bits.
  std::string type() const { return k_.def.below > 0 ? "cd::u32" : memory_type(k_.dtype); }

  // What both kernels begin with: halves of the scratch memory, and functions for the element at a place before the pass and its key.
  std::string begin() {
    context_.emplace(fresh_);
    std::map<int, TempText> temps;
    std::string body;
    Emitter emitter(c(), {&body, &body, "    ", "    ", -1, 1}, temps);
    const std::string value = emitter.value(k_.body).text;
    const std::string element = k_.def.below > 0 ? fmt::format("(cd::u32)({})", value) : fmt::format("cd::pack<{}>({})", type(), value);
    const std::string length = index_text(c(), k_.def.length), scratch = c().names.pointer(k_.scratch);
    std::string text = fmt::format(
        "  const cd::i64 n = {0};\n  cd::u32* const counts = (cd::u32*){1};\n  cd::u32* const o0 = counts + {2};\n  cd::u32* const o1 = o0 + n;\n"
        "  {3}* const v0 = ({3}*)(o1 + n);\n  {3}* const v1 = v0 + n;\n"
        "  [[maybe_unused]] const cd::u32* const from_o = number % 2 ? o0 : o1;\n  const {3}* const from_v = number % 2 ? v0 : v1;\n",
        length, scratch, cd::kRadixDigits * cd::kRadixBlocks, type());
    text += fmt::format("  const auto element = [&](const cd::i64 j) -> {} {{\n    if (number > 0) return from_v[j];\n{}    return {};\n  }};\n", type(), body,
                        element);
    text += fmt::format("  const auto key = [&](const cd::i64 j) {{ return cd::sort_key<{}>(element(j)); }};\n", k_.def.descending ? "true" : "false");
    return text + fmt::format("  const cd::Digit digit = {{{} * (int)number, {}}};\n", bits_, (1 << bits_) - 1);
  }

  std::string counts() { return begin() + "  cd::radix_count(counts, n, digit, key);\n"; }

  std::string moves() {
    std::string text = begin();
    text += fmt::format("  [[maybe_unused]] cd::u32* const to_o = number % 2 ? o1 : o0;\n  [[maybe_unused]] {0}* const to_v = number % 2 ? v1 : v0;\n", type());
    text += fmt::format(
        "  cd::radix_move(counts, n, digit, key, [&](const cd::i64 from, const cd::i64 j) {{\n    const {0} v = element(from);\n"
        "    const cd::u32 o = number > 0 ? from_o[from] : (cd::u32)from;\n    if (number + 1 < {1}) {{\n      to_v[j] = v, to_o[j] = o;\n      return;\n    }}\n",
        type(), passes_);
    if (!(kept() == k_.def.length)) text += fmt::format("    if (j >= {}) return;\n", index_text(c(), kept()));
    text += fmt::format("    {}[{}] = v;\n", c().names.pointer(k_.values), index_text(c(), k_.values_offset));
    return text + fmt::format("    {}[{}] = o;\n  }});\n", c().names.pointer(k_.indices), index_text(c(), k_.indices_offset));
  }

  Expr kept() const { return k_.sizes[0]; }

  KernelText finished(const std::string& body) {
    const std::vector<BufferId> written = {k_.values, k_.indices, k_.scratch};
    KernelText t = finish(c(), kernel_frame(c(), written, fmt::format("__launch_bounds__({})", cd::kSortThreads), "const cd::i64 number") + body + "}\n");
    t.headers = {"cuda/radix_sort.h"};
    t.threads = cd::kSortThreads;
    const std::string n = host_index(k_.def.length);
    t.grid_x = fmt::format("cdiv({0}, (1 + ({0} - 1) / {1}L) * {2}L)", n, int64_t{cd::kSortTile} * cd::kRadixBlocks, int64_t{cd::kSortTile});
    return t;
  }

  const KernelPlan& plan_;
  const SortKernel& k_;
  KernelContext fresh_;
  std::optional<KernelContext> context_;  // of the kernel that is being written
  int passes_ = 1, bits_ = 1;
};

}  // namespace

bool sorts_by_digits(const SortKernel& k) {
  if (k.sizes.size() != 1 || !k.scratch.valid() || passes_of(k) > kMostPasses) return false;
  const bool known = k.def.length->is_constant() && k.sizes[0]->is_constant();
  const int64_t n = known ? k.def.length->as_int() : 0, kept = known ? k.sizes[0]->as_int() : 0;
  if (k.def.below > 0) return !known || n > kFew;
  // A merge of few kept elements reads little after the first pass.
  return !is_float8(k.dtype) && n > 4 * kFew && kept > n / 8;
}

std::vector<KernelStep> radix_launches(const KernelPlan& plan, const SortKernel& kernel) { return RadixWriter(plan, kernel).run(); }

}  // namespace coil::cuda
