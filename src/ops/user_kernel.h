// A kernel that a user wrote, as it was registered: an operator's name and signature, sources, and the configurations that a tuner may
// choose among. A plain value; frontend/user_kernels.h makes and checks it. docs/user_kernels.md describes it for users.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coil {

struct UserKernelArg {
  enum class Kind : uint8_t { tensor, integer, number, boolean, integers };
  std::string name;
  Kind kind = Kind::tensor;
  bool optional = false;  // a tensor that may be None
  bool written = false;   // Tensor(a!)
};

// Machine code for one chip that another compiler made, of one configuration (Triton; python/coil/triton).
struct UserImage {
  struct Param {
    enum class Kind : uint8_t { pointer, i1, i8, i16, i32, i64, f32, f64, null };  // null: a pointer to nothing, as scratch memory of no bytes
    Kind kind = Kind::pointer;
    std::string name;   // of an argument or a result
    std::string begin;  // pointer: the integer argument that says at which element it begins; empty: at the first
  };
  size_t config = 0;
  int sm = 0;                // 90: sm_90
  bool ptx = false;          // text that the driver compiles for this chip and later ones
  std::string symbol, code;  // the function's name in it
  int threads = 0, cluster = 1;
  int64_t shared = 0;  // dynamic, of a block
  std::vector<Param> params;
  // What it was specialised for. Of the images of a configuration and chip the first whose conditions hold is launched; the last has none.
  bool aligned = false;                // every address is a multiple of 16
  std::vector<std::string> divisible;  // integer arguments that are multiples of 16
};

// One target's source. Formulas are of sizes, integer arguments and the configuration's constants (expr/formula.h).
struct UserKernelCode {
  std::string source, file;                                  // the text; the file's name in messages
  std::string entry;                                         // the function that is called
  std::vector<std::pair<std::string, std::string>> headers;  // that the source includes: name, text
  std::string range;                                         // CPU: how many items there are, which threads share
  std::string work;                                          // CPU: what an item costs, in vector operations; empty: as many as it has results
  std::vector<std::string> grid;                             // CUDA: blocks along x, y, z
  std::string block;                                         // CUDA: threads of a block; a formula of constants
  std::string shared;                                        // CUDA: bytes of dynamic shared memory of a block; a formula of constants; empty: none
  std::vector<UserImage> images;                             // CUDA: instead of a source, with their own blocks and shared memory
  std::vector<std::vector<std::string>> grids;               // of images: the grid of each configuration
};

struct UserKernel {
  using Config = std::map<std::string, int64_t>;  // constants of the source

  std::string name;    // "myns::fused_gelu"
  std::string target;  // of a node: "myns.fused_gelu.default"
  std::string schema;  // "myns.fused_gelu.default(Tensor x, float alpha) -> Tensor"
  std::vector<UserKernelArg> args;
  int returns = 0;  // new tensors
  std::optional<UserKernelCode> cpu, cuda;
  std::vector<Config> configs;       // at least one; the first serves where nothing was tuned
  std::string key;                   // by which number a tuner's choices differ; a formula without constants; empty: the first configuration's range
  bool contiguous = true;            // the kernel sees dense row-major tensors; otherwise inputs have whatever strides they have
  std::vector<std::string> initial;  // of images: for each result the argument whose elements it holds when the kernel begins, or ""; empty: none does

  // What the results are called in the source's messages and in formulas: "out", or "out0", "out1"...
  std::string result_name(int i) const { return returns == 1 ? "out" : "out" + std::to_string(i); }
  int num_written() const {
    int n = 0;
    for (const UserKernelArg& a : args) n += a.written;
    return n;
  }
};

using UserKernels = std::vector<std::shared_ptr<const UserKernel>>;

// "BLOCK=64 UNROLL=4"; "no constants".
std::string config_text(const UserKernel::Config& config);

}  // namespace coil
