// The CUDA templates' parameters: which variants of a kernel serve a problem, how each is written, and how it is launched.
//
// A variant's kernel is text: `header` is included and the kernel's body is `call`, in which `t` is the params struct
// (device/cuda/params.h) and `epilogue` a function object of the generated code. The launch is C++ text of the host program, in
// which `t` is the same struct with all sizes, strides and pointers filled in.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda_machine.h"
#include "device/cuda/shared_memory.h"
#include "loop/loop.h"

namespace coil::templates {

struct CudaVariant {
  std::string name;                 // for kernel names and tables: "mma_128x128x32"
  std::string header;               // "cuda/gemm_mma.h"
  std::string call;                 // "cd::gemm_mma<cd::bf16, 128, 128, 32>(t, epilogue);"
  int threads = cd::kBlockThreads;  // a block
  int min_blocks = 1;               // blocks that should fit a multiprocessor: bounds the registers
  int64_t shared_bytes = 0;         // dynamic shared memory
  int cluster = 1;
  int reads_ahead = 0;                                   // bytes of an epilogue's eight columns that it copies before their product is there; 0: none
  bool hopper = false;                                   // needs sm_90a: TMA, wgmma
  std::string grid_x = "1", grid_y = "1", grid_z = "1";  // host expressions of t
  std::string condition;                                 // host expression of t: whether the variant can serve the call and is wanted; empty: always.
                                                         // Variants are asked in order, the last one has none.
  std::string setup;                                     // host statements before the launch (tensor maps, t.split); uses `driver`, may `return` an error
  std::string library;                                   // that computes the product, where the kernel only finishes it: "libcublasLt" (cuda_library.h)
  Expr scratch_bytes;                                    // what t.scratch must hold, over the dynamic sizes; invalid: none
};

// How many tiles a size takes, as a host expression.
std::string tiles_text(std::string_view size, int64_t tile);

// A size's value, if it is there and a constant.
inline std::optional<int64_t> known(Expr e) { return e && e->is_constant() ? std::optional(e->as_int()) : std::nullopt; }
inline bool is_one(Expr e) { return known(e) == 1; }

// What is known of a matrix product at compile time. Sizes and strides are expressions of the dynamic sizes.
struct CudaGemmFacts {
  DType dtype = DType::f32;  // of a and b: f32, f64, bf16, f16
  bool tf32 = false;         // f32 alone: its factors may be rounded to 10 bits of mantissa, for the tensor cores
  Expr batch, m, n, k;
  Expr a_batch, a_row, a_col, b_batch, b_row, b_col;
  int64_t a_alignment = 4, b_alignment = 4;  // bytes that both operands' first elements are aligned to, at least
};
// In order of preference; never empty.
std::vector<CudaVariant> cuda_gemm_variants(const CudaGemmFacts& facts, const CudaMachine& machine);

enum CudaKind : int32_t {
  kCudaOwn,  // what the tables and models say
  kCudaCores,
  kMmaSync,
  kWgmma,      // persistent blocks
  kWgmmaPair,  // of which two, one below the other, share loads
  kWgmmaTile,  // a tile a block or cluster
  kWgmmaCopy,  // the same without TMA
  kFewRows,
  kLibraryCall,  // cuBLASLt or cuDNN (cuda_library.h)
  kWgmmaTwo,     // convolutions: two persistent blocks a multiprocessor
  kWgmmaSide,    // as kWgmmaPair, side by side
  kWgmmaSquare,  // four, two by two
  kWgmmaTilePair,
  kWgmmaTileSide,
  kWgmmaTileSquare,
  kWgmmaTileF16  // of bytes, which become float16 on the way
};
// A variant by numbers: its kind, rows and columns of a tile, parts of k (where it has them). A tuning record holds them.
struct CudaWay {
  int32_t kind = kCudaOwn, rows = 0, columns = 0, split = 0;
  static constexpr std::array<const char*, 4> kNames = {"kind", "rows", "columns", "split"};
  auto operator<=>(const CudaWay&) const = default;
};
struct CudaCandidate {
  CudaWay way;
  double cost;  // in nanoseconds, by a model: for comparisons
};
// All ways that can compute the problem at these sizes, the cheapest first; kLibraryCall is not among them.
std::vector<CudaCandidate> cuda_gemm_candidates(const CudaGemmFacts& facts, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes);
// The variant for a way, with a condition where not all sizes and addresses can be served. Null: there is no such one.
std::optional<CudaVariant> cuda_gemm_variant(const CudaGemmFacts& facts, const CudaMachine& machine, const CudaWay& way);

// A grouped product (GroupedGemm): what is known of the one whose batches are the groups, each with all rows and all of k.
struct CudaGroupedFacts {
  CudaGemmFacts product;
  bool by_depth = false;
};
// wgmma's tiles compile, but have run on no GPU yet, and the emulator has wgmma of bytes alone: packages take them when that is done (tests/gpu).
enum class GroupedTiles : uint8_t { that_have_run, all };
// In order of preference; never empty. The kernels take the flag and the number of a generated kernel's `a` as well.
std::vector<CudaVariant> cuda_grouped_variants(const CudaGroupedFacts& facts, const CudaMachine& machine, GroupedTiles taken = GroupedTiles::that_have_run);

// A product of bytes (CudaBytes of device/cuda/params.h): what its kernels are made for.
struct CudaByteFacts {
  Expr m;
  int64_t n = 0, k = 0;
  int64_t bits = 8;                  // of a weight's number
  int64_t group = 0;                 // rows of k that share a scale and a zero point; 0: all do
  std::optional<DType> scale, zero;  // their types, where there are such tables: f32, f16, bf16
  bool integers = false;             // sums as they are, in int32
  Expr a_row, a_col;                 // strides of a
  int64_t a_alignment = 1, b_alignment = 1;
  // Where products in float16 are as good as exact ones: the power of two that all scales are multiplied by, so that no factor leaves float16's range.
  std::optional<int> f16_shift;
};
// In order of preference; never empty.
std::vector<CudaVariant> cuda_byte_variants(const CudaByteFacts& facts, const CudaMachine& machine);
// As for products: kFewRows; kMmaSync; kWgmmaTile and kWgmmaTileF16, whose columns are the weight's.
std::vector<CudaCandidate> cuda_byte_candidates(const CudaByteFacts& facts, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes);
std::optional<CudaVariant> cuda_byte_variant(const CudaByteFacts& facts, const CudaMachine& machine, const CudaWay& way);
std::string byte_kind_text(const CudaByteFacts& facts);  // cd::ByteKind<...>
int64_t byte_row_warps(const CudaByteFacts& facts);      // of a block of the kernels for few rows

struct CudaConvFacts {
  DType dtype = DType::f32;  // f32, f64, bf16, f16
  bool tf32 = false;         // as for products
  Conv2d def;
  std::vector<Expr> result_sizes;  // n, oc, oh, ow
  Expr x_n, x_c, x_h, x_w;         // strides of x
  int64_t x_alignment = 4;         // bytes that the first element of x is aligned to, at least
  int64_t w_alignment = 16;        // and of the weight
};
std::vector<CudaVariant> cuda_conv_variants(const CudaConvFacts& facts, const CudaMachine& machine);
// As for products. Depthwise convolutions and those of few channels have one way: the own.
std::vector<CudaCandidate> cuda_conv_candidates(const CudaConvFacts& facts, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes);
std::optional<CudaVariant> cuda_conv_variant(const CudaConvFacts& facts, const CudaMachine& machine, const CudaWay& way);

struct CudaAttentionFacts {
  DType dtype = DType::f32;  // f32, bf16, f16 (f64 is spelled out before it comes here)
  Attention def;
  DType mask_dtype = DType::boolean;
  int64_t alignment = 4;  // of the strides of q, k and v and of their first elements as far as they are known, in bytes
};
std::vector<CudaVariant> cuda_attention_variants(const CudaAttentionFacts& facts, const CudaMachine& machine);
// As for products: rows are queries of a block, columns keys of a step, and kFewRows has parts of the keys.
std::vector<CudaCandidate> cuda_attention_candidates(const CudaAttentionFacts& facts, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes);
std::optional<CudaVariant> cuda_attention_variant(const CudaAttentionFacts& facts, const CudaMachine& machine, const CudaWay& way);

}  // namespace coil::templates
