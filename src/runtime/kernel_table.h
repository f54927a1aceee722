// What a package says of its kernels (kernels.json: manifest.h), for who shows their times (profile.h). Read when somebody asks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coil::runtime {

class Model;

struct KernelRow {
  std::string name;      // "add_layer_norm"
  std::string function;  // of the generated code, or empty
  std::string kind;      // "loop", "gemm", ...
  std::vector<std::string> ops;
  std::string module, source, line;  // of its first origin: "encoder.layer.0", "model.py:12 in forward", the code there
  std::string bytes, flops;          // formulas over the sizes; empty: unknown
};

struct KernelTable {
  std::string model, path, device, isa;
  int32_t threads = 1;
  std::vector<std::string> symbols;  // names of the sizes, in the order of CoilCall::symbols
  std::vector<bool> counters;        // which of them count the program's own loops: no sizes of anything
  bool sizes_from_data = false;      // some sizes are known only while the program runs: each kernel has its own
  std::vector<KernelRow> kernels;    // row k: kernel number k

  // Bytes and operations of a kernel at these sizes.
  std::optional<double> bytes(size_t kernel, std::span<const int64_t> sizes) const;
  std::optional<double> flops(size_t kernel, std::span<const int64_t> sizes) const;
};

// Empty rows where the package does not say: a package of an older coil has names and no amounts.
// Model::kernel_table keeps it.
std::shared_ptr<const KernelTable> read_kernel_table(const Model& model);

}  // namespace coil::runtime
