// Which CUDA attention kernel serves a problem: tensor cores for bf16 and f16, CUDA cores for f32, and for few queries the one
// that reads keys and values once, split over blocks.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

constexpr int64_t kFewQueries = 8;   // queries that share a key head, up to which the reading of keys decides
constexpr int64_t kWgmmaKeys = 128;   // keys from which on a Hopper kernel pays

// The kernels' element type of the mask: "cd::NoMask", "bool", "float".
std::string mask_name(const CudaAttentionFacts& facts) {
  return facts.def.mask ? std::string(info(facts.mask_dtype).c_name) : "cd::NoMask";
}

std::string flag(bool b) { return b ? "true" : "false"; }

CudaVariant tensor_cores(const CudaAttentionFacts& facts, int64_t widest) {
  const int d = widest <= 64 ? 64 : widest <= 96 ? 96 : widest <= 128 ? 128 : 256;
  const int keys = d <= 128 ? 64 : 32, warps = 4, queries = warps * 16;
  CudaVariant v;
  v.name = fmt::format("attention_mma_{}", d);
  v.header = "cuda/attention_mma.h";
  v.call = fmt::format("cd::attention_mma<{}, {}, {}, {}, {}, {}, 1>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, keys, warps);
  v.threads = warps * 32;
  v.shared_bytes = int64_t{queries + 4 * keys} * (d + 8) * 2;
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  return v;
}

// Hopper's: faster than mma.sync from 128 keys on (tests/gpu/test_attention.py --bench wgmma).
CudaVariant hopper(const CudaAttentionFacts& facts, int64_t widest) {
  const bool long_rows = known(facts.def.q_len).value_or(0) >= 1024;  // more queries a block read keys and values less often
  const int d = widest <= 64 ? 64 : widest <= 128 ? 128 : 256, keys = d == 256 ? 64 : 128, groups = d == 64 && long_rows && !facts.def.mask ? 3 : 2, stages = 2, queries = 64 * groups;
  CudaVariant v;
  v.name = fmt::format("attention_wgmma_{}", d);
  v.header = "cuda/attention_wgmma.h";
  v.call = fmt::format("cd::attention_wgmma<{}, {}, {}, {}, {}, {}, {}, true>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, keys,
                       groups, stages);
  v.threads = 128 * (groups + 1);
  v.shared_bytes = int64_t{d} * 2 * (queries + 2 * stages * keys) + 8 * (4 * stages + 1);
  v.hopper = true;
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  const auto rows = [](char x) {
    return fmt::format("cd::CudaRows{{t.{0}, t.batch, t.{1}, t.{2}dim, t.{0}_batch, t.{0}_head, t.{0}_row}}", x, x == 'q' ? "heads, t.q_len" : "kv_heads, t.kv_len",
                       x == 'v' ? "v_" : "");
  };
  v.condition = fmt::format("t.kv_len >= {}", kWgmmaKeys);
  for (const char x : {'q', 'k', 'v'}) {
    v.condition += fmt::format(" && cd::cuda_rows_fit({})", rows(x));
    v.setup += fmt::format("{}if (const int32_t failed = cd::cuda_rows_map(call, &t.map_{}, {}, {}, {}, error)) return failed;", x == 'q' ? "" : " ", x,
                           info(facts.dtype).shim_number, rows(x), x == 'q' ? queries : keys);
  }
  return v;
}

CudaVariant cuda_cores(const CudaAttentionFacts& facts, int64_t widest) {
  const int d = widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
  // Within 99 KiB of shared memory, so that every architecture can run it.
  const int keys = d == 256 ? 16 : 32, warps = 4, rows = d == 256 ? 1 : 2, buffers = d == 64 ? 2 : 1, queries = warps * 8 * rows;
  CudaVariant v;
  v.name = fmt::format("attention_simt_{}", d);
  v.header = "cuda/attention_simt.h";
  v.call = fmt::format("cd::attention_simt<{}, {}, {}, {}, {}, {}, {}>(t);", mask_name(facts), flag(facts.def.causal), d, keys, warps, rows, buffers);
  v.threads = warps * 32;
  v.shared_bytes = (int64_t{queries + buffers * 2 * keys} * (d + 4) + int64_t{queries} * (keys + 4)) * 4;
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  return v;
}

CudaVariant decode(const CudaAttentionFacts& facts, int64_t widest, int rows, int split) {
  const int size = byte_size(facts.dtype), d = widest <= 32 ? 32 : widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
  const int warps = 8, lanes = std::min(d * size / 16, 32);
  CudaVariant v;
  v.name = fmt::format("attention_decode_{}_rows{}", d, rows) + (split > 1 ? fmt::format("_split{}", split) : "");
  v.header = "cuda/attention_decode.h";
  v.call = fmt::format("cd::attention_decode<{}, {}, {}, {}, {}, {}, {}>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, rows, warps,
                       split);
  v.threads = warps * 32;
  v.shared_bytes = int64_t{warps * 32 / lanes + 1} * rows * (d + 2) * 4;
  v.cluster = split;
  v.hopper = split > 1;
  v.grid_x = fmt::format("(t.heads / t.kv_heads * t.q_len + {}) / {} * t.kv_heads * t.batch", rows - 1, rows);
  if (split > 1) v.grid_x += fmt::format(" * {}", split);
  return v;
}

}  // namespace

std::vector<CudaVariant> cuda_attention_variants(const CudaAttentionFacts& facts, int sm) {
  const Attention& def = facts.def;
  const int64_t widest = std::max(known(def.dim).value_or(256), known(def.v_dim).value_or(256));
  const std::optional<int64_t> heads = known(def.heads), kv_heads = known(def.kv_heads), q_len = known(def.q_len);
  const int64_t group = heads && kv_heads && *kv_heads > 0 ? *heads / *kv_heads : 1;
  std::vector<CudaVariant> variants;
  const bool may_be_few = q_len ? *q_len * group <= kFewQueries : group <= kFewQueries;
  if (may_be_few) {
    const int rows = q_len.value_or(1) * group <= 1 ? 1 : q_len.value_or(1) * group <= 2 ? 2 : 4;
    variants.push_back(decode(facts, widest, rows, sm >= 90 ? 8 : 1));
    if (q_len && heads && kv_heads) return variants;
    variants.back().condition = fmt::format("t.heads / t.kv_heads * t.q_len <= {}", kFewQueries);
  }
  const bool enough = known(def.kv_len).value_or(kWgmmaKeys) >= kWgmmaKeys && q_len.value_or(64) >= 64;
  if (sm == 90 && facts.dtype != DType::f32 && facts.alignment % 16 == 0 && def.scale > 0 && enough) variants.push_back(hopper(facts, widest));
  variants.push_back(facts.dtype == DType::f32 ? cuda_cores(facts, widest) : tensor_cores(facts, widest));
  return variants;
}

}  // namespace coil::templates
