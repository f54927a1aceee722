// Which CUDA attention kernel serves a problem: tensor cores for bf16 and f16, CUDA cores for f32, and for few queries the one
// that reads keys and values once, split over blocks.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "device/cuda/shared_memory.h"
#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

constexpr int64_t kFewQueries = 8;   // queries that share a key head, up to which the reading of keys decides
constexpr int64_t kWgmmaKeys = 128;  // keys from which on a Hopper kernel pays

// The kernels' element type of the mask: "cd::NoMask", "bool", "float".
std::string mask_name(const CudaAttentionFacts& facts) { return facts.def.mask ? std::string(info(facts.mask_dtype).c_name) : "cd::NoMask"; }

std::string flag(bool b) { return b ? "true" : "false"; }

// A name says more than the width where somebody chose the tile.
std::string tile_name(const char* kind, int d, bool own, int queries, int keys) {
  return fmt::format("attention_{}_{}", kind, d) + (own ? "" : fmt::format("_{}x{}", queries, keys));
}

CudaVariant tensor_cores(const CudaAttentionFacts& facts, int64_t widest, int warps = 0, int keys = 0) {
  const int d = widest <= 64 ? 64 : widest <= 96 ? 96 : widest <= 128 ? 128 : 256;
  const bool own = warps == 0;
  if (own) warps = 4, keys = d <= 128 ? 64 : 32;
  const int queries = warps * 16;
  CudaVariant v;
  v.name = tile_name("mma", d, own, queries, keys);
  v.header = "cuda/attention_mma.h";
  v.call = fmt::format("cd::attention_mma<{}, {}, {}, {}, {}, {}, 1>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, keys, warps);
  v.threads = warps * 32;
  v.shared_bytes = cd::attention_mma_shared(d, queries, keys);
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  return v;
}

// Hopper's: faster than mma.sync from 128 keys on (tests/gpu/test_attention.py --bench wgmma).
CudaVariant hopper(const CudaAttentionFacts& facts, int64_t widest, int groups = 0, int keys = 0) {
  const bool long_rows = known(facts.def.q_len).value_or(0) >= 1024;  // more queries a block read keys and values less often
  const int d = widest <= 64 ? 64 : widest <= 128 ? 128 : 256, stages = 2;
  const bool own = groups == 0;
  if (own) groups = d == 64 && long_rows && !facts.def.mask ? 3 : 2, keys = d == 256 ? 64 : 128;
  const int queries = 64 * groups;
  CudaVariant v;
  v.name = tile_name("wgmma", d, own, queries, keys);
  v.header = "cuda/attention_wgmma.h";
  v.call = fmt::format("cd::attention_wgmma<{}, {}, {}, {}, {}, {}, {}, true>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, keys,
                       groups, stages);
  v.threads = static_cast<int>(cd::warpgroup_threads(groups));
  v.shared_bytes = cd::attention_wgmma_shared(d, queries, keys, stages);
  v.hopper = true;
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  const auto rows = [](char x) {
    return fmt::format("cd::CudaRows{{t.{0}, t.batch, t.{1}, t.{2}dim, t.{0}_batch, t.{0}_head, t.{0}_row}}", x,
                       x == 'q' ? "heads, t.q_len" : "kv_heads, t.kv_len", x == 'v' ? "v_" : "");
  };
  v.condition = fmt::format("t.kv_len >= {}", kWgmmaKeys);
  for (const char x : {'q', 'k', 'v'}) {
    v.condition += fmt::format(" && cd::cuda_rows_fit({})", rows(x));
    v.setup += fmt::format("{}if (const int32_t failed = cd::cuda_rows_map(call, &t.map_{}, {}, {}, {}, error)) return failed;", x == 'q' ? "" : " ", x,
                           info(facts.dtype).shim_number, rows(x), x == 'q' ? queries : keys);
  }
  return v;
}

CudaVariant cuda_cores(const CudaAttentionFacts& facts, int64_t widest, int queries = 0, int keys = 0) {
  const int d = widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
  const bool own = queries == 0;
  if (own) queries = d == 256 ? 32 : 64, keys = d == 256 ? 16 : 32;
  const int warps = queries <= 64 ? 4 : 8, rows = queries / (warps * 8), buffers = d == 64 && keys < 64 ? 2 : 1;
  CudaVariant v;
  v.name = tile_name("simt", d, own, queries, keys);
  v.header = "cuda/attention_simt.h";
  v.call = fmt::format("cd::attention_simt<{}, {}, {}, {}, {}, {}, {}>(t);", mask_name(facts), flag(facts.def.causal), d, keys, warps, rows, buffers);
  v.threads = warps * 32;
  v.shared_bytes = cd::attention_simt_shared(d, queries, keys, buffers);
  v.grid_x = fmt::format("(t.q_len + {}) / {} * t.heads * t.batch", queries - 1, queries);
  return v;
}

CudaVariant decode(const CudaAttentionFacts& facts, int64_t widest, int rows, int split) {
  const int size = byte_size(facts.dtype), d = widest <= 32 ? 32 : widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
  const int warps = 8, lanes = std::min(d * size / 16, 32);
  CudaVariant v;
  v.name = fmt::format("attention_decode_{}_rows{}", d, rows) + (split > 1 ? fmt::format("_split{}", split) : "");
  v.header = "cuda/attention_decode.h";
  v.call = fmt::format("cd::attention_decode<{}, {}, {}, {}, {}, {}, {}>(t);", info(facts.dtype).c_name, mask_name(facts), flag(facts.def.causal), d, rows,
                       warps, split);
  v.threads = warps * 32;
  v.shared_bytes = cd::attention_decode_shared(d, rows, warps * 32 / lanes, warps * 32, split);
  v.cluster = split;
  v.hopper = split > 1;
  v.grid_x = fmt::format("(t.heads / t.kv_heads * t.q_len + {}) / {} * t.kv_heads * t.batch", rows - 1, rows);
  if (split > 1) v.grid_x += fmt::format(" * {}", split);
  return v;
}

int64_t widest_of(const Attention& def) { return std::max(known(def.dim).value_or(256), known(def.v_dim).value_or(256)); }

bool hopper_serves(const CudaAttentionFacts& facts, const CudaMachine& machine) {
  const bool enough = known(facts.def.kv_len).value_or(kWgmmaKeys) >= kWgmmaKeys && known(facts.def.q_len).value_or(64) >= 64;
  return machine.sm == 90 && facts.dtype != DType::f32 && facts.alignment % 16 == 0 && facts.def.scale > 0 && enough;
}

// Multiply-adds a clock of a multiprocessor, in a unit of its own.
double speed(int32_t kind) { return kind == kWgmma ? 8 : kind == kMmaSync ? 4 : kind == kCudaCores ? 0.5 : 0.25; }

constexpr double kMostBlocks = 16;  // of a multiprocessor: more do not make it faster

// Waves of blocks, each as long as its blocks share a multiprocessor.
double predicted(const CudaMachine& machine, const CudaWay& way, const CudaVariant& v, double batch, double heads, double kv_heads, double q_len,
                 double kv_len) {
  const bool few = way.kind == kFewRows;
  const double rows = few ? heads / kv_heads * q_len : q_len, units = batch * (few ? kv_heads : heads), parts = std::max(way.split, 1);
  const double blocks = std::ceil(rows / way.rows) * units * parts;
  const double together =
      std::clamp(std::min(static_cast<double>(machine.threads) / v.threads, static_cast<double>(machine.shared_bytes) / static_cast<double>(v.shared_bytes)),
                 1.0, kMostBlocks);
  const double keys = std::ceil(kv_len / parts / std::max(way.columns, 1)) * std::max(way.columns, 1);
  return std::ceil(blocks / (machine.multiprocessors * together)) * together * way.rows * keys / speed(way.kind);
}

}  // namespace

std::optional<CudaVariant> cuda_attention_variant(const CudaAttentionFacts& facts, const CudaMachine& machine, const CudaWay& way) {
  const int64_t widest = widest_of(facts.def);
  const auto [kind, queries, keys, parts] = way;
  const auto is_one_of = [](int32_t x, std::initializer_list<int32_t> list) { return std::find(list.begin(), list.end(), x) != list.end(); };
  std::optional<CudaVariant> v;
  if (kind == kFewRows) {
    if (is_one_of(queries, {1, 2, 4}) && keys == 0 && is_one_of(parts, {1, 2, 4, 8}) && (parts == 1 || machine.sm >= 90))
      v = decode(facts, widest, queries, parts);
    return v;
  }
  if (parts != 0) return v;
  if (kind == kCudaCores && facts.dtype == DType::f32 && is_one_of(queries, {32, 64, 128}) && is_one_of(keys, {16, 32, 64}) && queries >= keys)
    v = cuda_cores(facts, widest, queries, keys);
  if (kind == kMmaSync && facts.dtype != DType::f32 && is_one_of(queries, {64, 128}) && is_one_of(keys, {32, 64, 128}) && queries >= keys)
    v = tensor_cores(facts, widest, queries / 16, keys);
  if (kind == kWgmma && hopper_serves(facts, machine) && is_one_of(queries, {128, 192}) && is_one_of(keys, {64, 128}) && (keys == 64 || widest <= 128) &&
      (queries == 128 || (widest <= 64 && !facts.def.mask))) {
    v = hopper(facts, widest, queries / 64, keys);
  }
  if (v && v->shared_bytes > (kind == kWgmma ? machine.shared_bytes : shared_bytes_anywhere())) return std::nullopt;
  return v;
}

std::vector<CudaCandidate> cuda_attention_candidates(const CudaAttentionFacts& facts, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes) {
  const Attention& def = facts.def;
  const auto size = [&](Expr e) { return static_cast<double>(sizes(e)); };
  std::vector<CudaWay> ways;
  const double rows = size(def.heads) / size(def.kv_heads) * size(def.q_len);
  if (rows <= 4 * kFewQueries) {
    const int32_t at_once = rows <= 1 ? 1 : rows <= 2 ? 2 : 4;
    for (const int32_t parts : {1, 2, 4, 8}) ways.push_back({kFewRows, at_once, 0, parts});
  }
  for (const int32_t queries : {32, 64, 128, 192}) {
    for (const int32_t keys : {16, 32, 64, 128}) {
      for (const int32_t kind : {kCudaCores, kMmaSync, kWgmma}) ways.push_back({kind, queries, keys, 0});
    }
  }
  std::vector<CudaCandidate> out;
  const auto own = cuda_attention_variants(facts, machine);
  for (const CudaWay& way : ways) {
    const std::optional<CudaVariant> v = cuda_attention_variant(facts, machine, way);
    const auto same = [&](const CudaVariant& o) { return o.call == v->call; };
    if (!v || (own.size() == 1 && same(own[0]))) continue;
    out.push_back({way, predicted(machine, way, *v, size(def.batch), size(def.heads), size(def.kv_heads), size(def.q_len), size(def.kv_len))});
  }
  std::stable_sort(out.begin(), out.end(), [](const CudaCandidate& a, const CudaCandidate& b) { return a.cost < b.cost; });
  return out;
}

std::vector<CudaVariant> cuda_attention_variants(const CudaAttentionFacts& facts, const CudaMachine& machine) {
  const Attention& def = facts.def;
  const int64_t widest = widest_of(def);
  const std::optional<int64_t> heads = known(def.heads), kv_heads = known(def.kv_heads), q_len = known(def.q_len);
  const int64_t group = heads && kv_heads && *kv_heads > 0 ? *heads / *kv_heads : 1;
  std::vector<CudaVariant> variants;
  const bool may_be_few = q_len ? *q_len * group <= kFewQueries : group <= kFewQueries;
  if (may_be_few) {
    const int rows = q_len.value_or(1) * group <= 1 ? 1 : q_len.value_or(1) * group <= 2 ? 2 : 4;
    variants.push_back(decode(facts, widest, rows, machine.sm >= 90 ? 8 : 1));
    if (q_len && heads && kv_heads) return variants;
    variants.back().condition = fmt::format("t.heads / t.kv_heads * t.q_len <= {}", kFewQueries);
  }
  if (hopper_serves(facts, machine)) variants.push_back(hopper(facts, widest));
  variants.push_back(facts.dtype == DType::f32 ? cuda_cores(facts, widest) : tensor_cores(facts, widest));
  return variants;
}

}  // namespace coil::templates
