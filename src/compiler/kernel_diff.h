// Compares each kernel of a program with a reference that starts from the kernel's own inputs, so that errors do not pile up.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/watch.h"

namespace coil {

// One kernel and its place in the program.
struct KernelPlace {
  size_t kernel = 0;
  std::string name, function;
  std::vector<std::string> ops;
  std::vector<Origin> origins;
};
KernelPlace place_of(const WatchedBuild& build, size_t kernel);

struct KernelDifference {
  // wrong: outside of the bound; unordered: other bits when threads take the loop's parts in another order; overwritten: a value that is
  // still needed has changed.
  enum class Kind : uint8_t { wrong, unordered, overwritten };
  Kind kind = Kind::wrong;
  KernelPlace place;
  std::string value;  // the buffer's name
  BufferId buffer;
  DType dtype = DType::f32;
  std::vector<int64_t> index;  // of the first element that differs
  double found = 0, expected = 0, bound = 0;
  int64_t different = 0, elements = 0;
  std::vector<std::pair<std::string, TensorData>> given;  // what the kernels before it wrote, by the buffers' names
  std::string detail;                                     // overwritten: which kernel's value; unordered: by which order
};

// The first value that is NaN, or infinite, while nothing that its kernel reads is.
struct NonFinite {
  KernelPlace place;
  std::string value, what;  // "NaN", "infinity"
  std::vector<int64_t> index;
  std::string from;   // "-inf - -inf in softmax"
  std::string where;  // the model's line; empty: unknown
};

struct KernelVerdict {
  size_t kernel = 0;
  bool compared = false;
  std::string why_not;
  double largest_error = 0;  // as a part of what is allowed: 1 is the bound
};

struct KernelDiff {
  std::vector<KernelVerdict> kernels;
  std::optional<KernelDifference> first;
  std::optional<NonFinite> nan, infinity;
};

struct KernelDiffOptions {
  int threads = 0;   // 0: as many as the process may use
  int orders = 2;    // further calls with other orders of a loop's parts: 0, 1 (backwards) or 2 (and more threads than processors)
  bool all = false;  // goes on after the first difference: `others` are called for each
  std::function<void(const KernelDifference&)> others;
  std::function<void(size_t done, size_t total)> progress;
};

// inputs: of the call, dense or strided, in the program's order; they are not changed. Errors: those of a call.
Result<KernelDiff> diff_kernels(const WatchedBuild& build, std::span<const CoilTensorView> inputs, const CompileOptions& compiled,
                                const KernelDiffOptions& options);

}  // namespace coil
