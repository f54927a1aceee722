#include "attention_by_keys.h"

#include "attention_masks.h"
#include "attention_tiles.h"
#include "exp.h"
#include "pairs.h"
#include "past_keys.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kQueries = 2 * kPanel;  // of a task
constexpr int64_t kKeys = kChunk;         // of one block of scores
constexpr int64_t kMaxDim = kMostTiledDim;
constexpr int64_t kBlockFloats = 24576;
constexpr int kVecs = kPanel / kLanes;
constexpr int64_t kMostAlone = kLanes / 8;  // queries beyond whole vectors (a class token's) that are less work one by one than as a vector

struct Buffers {
  float q[kQueries / kPanel][kMaxDim * kPanel];  // queries, turned and scaled: [dim][kPanel]
  float scores[kKeys * kPanel];                  // of one panel of queries: [key][kPanel]
  float o[kQueries / kPanel][kMaxDim * kPanel];  // sums, turned: [v_dim][kPanel]
  float mask[kKeys * kPanel];                    // what is added to scores, turned like them
  float block[kBlockFloats];                     // of 2-byte numbers: the block's keys and values widened, or its values in pairs of keys or turned
};
static_assert(sizeof(Buffers) <= COIL_ATTENTION_WORKER_BYTES);

int64_t queries_alone(const CoilAttention& a) {
  const int64_t rest = a.q_len % kLanes;
  return rest <= kMostAlone && a.kv_len <= kKeys * kPanel ? rest : 0;
}

// What computes both products: multiplications of float32, to which all else is widened, keys and values once for all of a task's queries; dot products
// of pairs of bfloat16; or the matrix unit, which takes the same pairs.
enum class Unit { floats, dot, tiles };

// T: of queries, keys, values and results.
template <class T, Unit unit>
struct ByKeys {
  static constexpr bool kWidens = unit == Unit::floats && sizeof(T) < sizeof(float), kInPairs = unit != Unit::floats;
  const CoilAttention& a;
  int64_t block_queries, block_keys, blocks, tasks;
  int64_t alone;      // the last queries of a head, which its last task does one by one
  bool one_mask_row;  // for all queries of a head

  explicit ByKeys(const CoilAttention& args) : a(args), one_mask_row(args.mask && same_for_queries(args)) {
    // Smaller blocks when there are few of them; a matter of the problem alone, so that threads change no sum.
    block_queries = a.batch * a.heads * ceil_div(a.q_len, kQueries) < 16 ? kPanel : kQueries;
    block_keys = a.block_panels > 0 ? min64(kKeys, a.block_panels * kPanel) : kKeys;
    if (kInPairs || kWidens) {
      const int64_t room = min64(block_keys, keys_in_block());
      // Even blocks: a few keys at the end would be work for themselves.
      if (room < block_keys) block_keys = min64(room, (ceil_div(a.kv_len, ceil_div(a.kv_len, room)) + kWhole - 1) & ~(kWhole - 1));
    }
    alone = queries_alone(a);
    blocks = ceil_div(a.q_len - alone, block_queries);
    tasks = a.batch * a.heads * blocks;
  }

  static constexpr int64_t kWhole = unit == Unit::tiles ? kAmxStep : 2;  // keys of a block are a multiple of it

  int64_t keys_in_block() const {
    if constexpr (unit == Unit::tiles) return (2 * kBlockFloats / in_vectors(a.v_dim) - kAmxStep) & ~(kWhole - 1);  // turned_stride
    return kBlockFloats / (kInPairs ? ceil_div(a.v_dim, 2) : in_vectors(a.dim) + in_vectors(a.v_dim)) & ~(kWhole - 1);
  }

  // A panel of queries, and what is known of them so far, in base 2: the running maximum and the sum of exp2(score - most).
  struct Panel {
    int64_t first, cols;
    int64_t seen;  // keys from here on are hidden from all of its queries
    float* q;
    float* o;
    Vec most[kVecs], sum[kVecs];
  };
  struct Task {
    int64_t batch, head, kv_head;
    KeyRows<T> keys;  // of the block
    Buffers* buffers;
  };

  // Keys that come before what a causal query does not see.
  int64_t visible(int64_t query) const { return a.causal ? min64(a.kv_len, query + 1) : a.kv_len; }

  void load_queries(const Task& t, Panel& p) const {
    const T* q = static_cast<const T*>(a.q) + t.batch * a.q_batch + t.head * a.q_head + p.first * a.q_row;
    const int64_t lines = kInPairs ? a.dim / 2 : a.dim;
    if (p.cols < kPanel) memset(p.q, 0, static_cast<size_t>(lines * kPanel) * 4);
    if (unit == Unit::tiles) memset(p.q + lines * kPanel, 0, static_cast<size_t>((in_steps(a.dim) / 2 - lines) * kPanel) * 4);
    if constexpr (kInPairs) {  // pairs are turned whole; their scale follows behind the product, which is exact so
      copy_transposed(reinterpret_cast<const float*>(q), a.q_row / 2, 1, p.cols, lines, p.q, kPanel);
    } else {
      copy_transposed(q, a.q_row, 1, p.cols, a.dim, p.q, kPanel);
      for (int64_t i = 0; i < a.dim * kPanel; i += kLanes) store(p.q + i, load(p.q + i) * Vec(a.scale * kLog2e));
    }
    for (int i = 0; i < kVecs; i++) p.most[i] = Vec(-__builtin_inff()), p.sum[i] = Vec(0.0f);
  }

  // The block's keys and values as the products want them.
  void load_block(const Task& t) const {
    const auto& [k, v, k_row, v_row, keys] = t.keys;
    float* to = t.buffers->block;
    if constexpr (unit == Unit::dot) interleave_rows(v, v_row, keys, a.v_dim, reinterpret_cast<BFloat16*>(to));
    if constexpr (unit == Unit::tiles) turn_values(v, v_row, keys, a.v_dim, block_keys, reinterpret_cast<BFloat16*>(to), t.buffers->scores);
    if constexpr (!kWidens) return;
    for (int64_t j = 0; j < keys; j++, to += in_vectors(a.dim)) copy_row(k + j * k_row, a.dim, to);
    to = t.buffers->block + block_keys * in_vectors(a.dim);
    for (int64_t j = 0; j < keys; j++, to += in_vectors(a.v_dim)) copy_row(v + j * v_row, a.v_dim, to);
  }

  void multiply_keys(const Task& t, const Panel& p, int64_t keys) const {
    float* scores = t.buffers->scores;
    if constexpr (unit == Unit::tiles) return tile_scores(t.keys.k, t.keys.k_row, keys, a.dim, p.q, p.cols, scores);
    for (int64_t j = 0, rows; j < keys; j += rows) {
      rows = rows_of_tile(keys - j);
      const T* k = t.keys.k + j * t.keys.k_row;
      if constexpr (kInPairs) {
        pairs_product(a.dim / 2, k, t.keys.k_row * 2, false, p.q, rows, p.cols, scores + j * kPanel, false);
      } else if constexpr (kWidens) {
        const int64_t stride = in_vectors(a.dim);
        tile_product(a.dim, t.buffers->block + j * stride, stride * 4, p.q, kPanel, COIL_FLOAT32, rows, p.cols, scores + j * kPanel, false, nullptr, 0);
      } else {
        tile_product(a.dim, k, t.keys.k_row * 4, p.q, kPanel, COIL_FLOAT32, rows, p.cols, scores + j * kPanel, false, nullptr, 0);
      }
    }
  }

  void compute_scores(const Task& t, const Panel& p, int64_t key, int64_t keys) const {
    float* scores = t.buffers->scores;
    multiply_keys(t, p, keys);
    if (kInPairs && a.mask) {
      for (int64_t i = 0; i < keys * kPanel; i += kLanes) store(scores + i, load(scores + i) * Vec(a.scale * kLog2e));
    }
    if (a.mask) add_mask(t, p, key, keys);
    if (a.causal && key + keys - 1 > p.first) hide(p, key, keys, scores);
  }

  void add_mask(const Task& t, const Panel& p, int64_t key, int64_t keys) const {
    const int64_t start = t.batch * a.mask_batch + t.head * a.mask_head + p.first * a.mask_row + key * a.mask_col;
    if (a.mask_dtype == COIL_BOOL) return add_mask(t, p, static_cast<const uint8_t*>(a.mask) + start, keys, unless_seen);
    if constexpr (sizeof(T) < sizeof(float)) {
      if (a.mask_dtype != COIL_FLOAT32) return add_mask(t, p, static_cast<const T*>(a.mask) + start, keys, in_base_2);
    }
    add_mask(t, p, static_cast<const float*>(a.mask) + start, keys, in_base_2);
  }

  template <class M, class AsAdded>
  COIL_INLINE_MEMBER void add_mask(const Task& t, const Panel& p, const M* mask, int64_t keys, AsAdded as_added) const {
    float* scores = t.buffers->scores;
    const Vec fill = in_base_2(Vec(a.highest_fill));
    if (one_mask_row) {
      for (int64_t j = 0; j < keys; j++, scores += kPanel) {
        const Vec more = as_added(Vec(load_one(mask + j * a.mask_col)));
        if (more[0] == 0) continue;
        for (int64_t i = 0; i < kPanel; i += kLanes) store(scores + i, masked(load(scores + i), more, fill));
      }
      return;
    }
    const float* turned = t.buffers->mask;
    int64_t stride = kPanel;
    if constexpr (sizeof(M) == sizeof(float)) {  // whole lines of a mask that lies turned in memory are read there
      if (a.mask_row == 1 && p.cols == kPanel) turned = mask, stride = a.mask_col;
    }
    if (turned == t.buffers->mask) copy_transposed(mask, a.mask_row, a.mask_col, p.cols, keys, t.buffers->mask, kPanel);
    for (int64_t j = 0; j < keys; j++, scores += kPanel, turned += stride) {
#pragma unroll
      for (int64_t i = 0; i < kPanel; i += kLanes) store(scores + i, masked(load(scores + i), as_added(load(turned + i)), fill));
    }
  }

  // Query i sees keys [0, i].
  void hide(const Panel& p, int64_t key, int64_t keys, float* scores) const {
    for (int64_t j = max64(0, p.first + 1 - key); j < keys; j++) {
      for (int64_t i = 0; i < kPanel; i += kLanes) {
        float* s = scores + j * kPanel + i;
        store(s, lanes_from(p.first + i - key) >= static_cast<int32_t>(j) ? load(s) : Vec(-__builtin_inff()));
      }
    }
  }

  // What is left to do with a score before its maximum is taken away.
  COIL_INLINE_MEMBER Vec scaled(Vec score) const { return kInPairs && !a.mask ? score * Vec(a.scale * kLog2e) : score; }

  // Scores to exp2(score - maximum); rescales what was summed with an older maximum.
  void exponentiate(const Task& t, Panel& p, int64_t keys) const {
    float* scores = t.buffers->scores;
    for (int i = 0; i < kVecs && i * kLanes < p.cols; i++) {
      float* column = scores + i * kLanes;
      Vec high[2] = {p.most[i], p.most[i]};
      int64_t j = 0;
      for (; j + 2 <= keys; j += 2) {
        high[0] = larger(scaled(load(column + j * kPanel)), high[0]);
        high[1] = larger(scaled(load(column + (j + 1) * kPanel)), high[1]);
      }
      if (j < keys) high[0] = larger(scaled(load(column + j * kPanel)), high[0]);
      const Vec most = larger(high[0], high[1]);
      // A query without any visible key yet: exp2(-inf - 0) is 0.
      const Vec base = most == -__builtin_inff() ? Vec(0.0f) : most;
      Vec sum[2] = {Vec(0.0f), Vec(0.0f)};
      for (j = 0; j + 2 <= keys; j += 2) {
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const Vec e = exp2_nonpositive(scaled(load(column + (j + u) * kPanel)) - base);
          store(column + (j + u) * kPanel, e);
          sum[u] += e;
        }
      }
      if (j < keys) {
        const Vec e = exp2_nonpositive(scaled(load(column + j * kPanel)) - base);
        store(column + j * kPanel, e);
        sum[0] += e;
      }
      const Vec rescale = p.most[i] == -__builtin_inff() ? Vec(1.0f) : exp2_nonpositive(p.most[i] - base);
      p.sum[i] = p.sum[i] * rescale + (sum[0] + sum[1]);
      p.most[i] = most;
      float* o = p.o + i * kLanes;
      if (__builtin_reduce_and(rescale == 1.0f)) continue;
      for (int64_t d = 0; d < a.v_dim; d++) store(o + d * kPanel, load(o + d * kPanel) * rescale);
    }
  }

  // o += values turned * exponentials
  void add_values(const Task& t, const Panel& p, int64_t key, int64_t keys) const {
    const float* block = t.buffers->block;
    if constexpr (unit == Unit::tiles) {
      return add_tiled_values(reinterpret_cast<const BFloat16*>(block), keys, a.v_dim, block_keys, t.buffers->scores, p.cols, p.o, key > 0);
    }
    if constexpr (unit == Unit::dot) pack_pairs(t.buffers->scores, keys);
    for (int64_t d = 0, rows; d < a.v_dim; d += rows) {
      rows = rows_of_tile(a.v_dim - d);
      if constexpr (unit == Unit::dot) {
        pairs_product((keys + 1) / 2, block + d, a.v_dim * 4, true, t.buffers->scores, rows, p.cols, p.o + d * kPanel, key > 0);
        continue;
      }
      const float* v = kWidens ? block + block_keys * in_vectors(a.dim) + d : reinterpret_cast<const float*>(t.keys.v + d);
      const int64_t stride = kWidens ? in_vectors(a.v_dim) : t.keys.v_row;
      turned_product(keys, v, stride, t.buffers->scores, rows, p.cols, p.o + d * kPanel, key > 0);
    }
  }

  void store_rows(const Task& t, const Panel& p) const {
    for (int i = 0; i < kVecs && i * kLanes < p.cols; i++) {
      const VecI32 zeros = p.sum[i] == 0.0f && VecI32(a.masked_rows_zero || a.kv_len == 0 ? -1 : 0);
      const Vec inverse = Vec(1.0f) / p.sum[i];
      float* o = p.o + i * kLanes;
      for (int64_t d = 0; d < a.v_dim; d++) store(o + d * kPanel, zeros ? Vec(0.0f) : load(o + d * kPanel) * inverse);
    }
    T* to = static_cast<T*>(a.o) + t.batch * a.o_batch + t.head * a.o_head + p.first * a.o_row;
    if constexpr (sizeof(T) == sizeof(float)) {
      copy_transposed(p.o, kPanel, 1, a.v_dim, p.cols, to, a.o_row);
    } else {
      float* rows = t.buffers->scores;
      const int64_t stride = in_vectors(a.v_dim);
      copy_transposed(p.o, kPanel, 1, a.v_dim, p.cols, rows, stride);
      for (int64_t r = 0; r < p.cols; r++, to += a.o_row, rows += stride) {
        for (int64_t d = 0; d < a.v_dim; d += kLanes) store_partial(to + d, load(rows + d), min64(kLanes, a.v_dim - d));
      }
    }
  }

  void run_task(int64_t task, int32_t worker) const {
    Task t;
    t.batch = task / blocks / a.heads;
    t.head = task / blocks % a.heads;
    t.kv_head = t.head / (a.heads / a.kv_heads);
    const int64_t first = task % blocks * block_queries;
    t.buffers = reinterpret_cast<Buffers*>(static_cast<char*>(a.scratch) + worker * int64_t{COIL_ATTENTION_WORKER_BYTES});
    Panel panels[kQueries / kPanel];
    const int64_t count = min64(block_queries, a.q_len - alone - first), used = ceil_div(count, kPanel);
    int64_t end = 0;
    for (int64_t i = 0; i < used; i++) {
      Panel& p = panels[i];
      p.first = first + i * kPanel, p.cols = min64(kPanel, count - i * kPanel);
      p.seen = seen_keys(a, t.batch, t.head, p.first, p.cols, visible(p.first + p.cols - 1));
      end = max64(end, p.seen);
      p.q = t.buffers->q[i], p.o = t.buffers->o[i];
      load_queries(t, p);
    }
    const bool copies = keeps_past(a) && first == 0 && t.head % (a.heads / a.kv_heads) == 0;  // the first of its keys' tasks
    for (int64_t key = 0; key < end; key += t.keys.count) {
      t.keys = key_rows<T>(a, t.batch, t.kv_head, key, min64(block_keys, end - key));
      if (copies) keep_past(a, t.batch, t.kv_head, key, min64(t.keys.count, a.past - key));
      load_block(t);
      for (int64_t i = 0; i < used; i++) {
        Panel& p = panels[i];
        const int64_t keys = min64(t.keys.count, p.seen - key);
        if (keys <= 0) continue;
        compute_scores(t, p, key, keys);
        exponentiate(t, p, keys);
        add_values(t, p, key, keys);
      }
    }
    if (copies) keep_past(a, t.batch, t.kv_head, end, a.past - end);
    for (int64_t i = 0; i < used; i++) store_rows(t, panels[i]);
    if (first + count < a.q_len - alone) return;
    for (int64_t i = a.q_len - alone; i < a.q_len; i++) run_alone(t, i);
  }

  // What the mask adds to n scores of one query.
  Vec mask_of(const Task& t, int64_t query, int64_t key, int64_t n) const {
    const int64_t start = t.batch * a.mask_batch + t.head * a.mask_head + query * a.mask_row + key * a.mask_col;
    const auto values = [&](auto* mask) {
      if (a.mask_col == 1) return load_partial(mask, n);
      Vec v = Vec(0.0f);
      for (int64_t i = 0; i < n; i++) v[i] = load_one(mask + i * a.mask_col);
      return v;
    };
    if (a.mask_dtype == COIL_BOOL) return unless_seen(values(static_cast<const uint8_t*>(a.mask) + start));
    if constexpr (sizeof(T) < sizeof(float)) {
      if (a.mask_dtype != COIL_FLOAT32) return in_base_2(values(static_cast<const T*>(a.mask) + start));
    }
    return in_base_2(values(static_cast<const float*>(a.mask) + start));
  }

  // One query: scores in a row, summed across lanes.
  void run_alone(const Task& t, int64_t query) const {
    float *q = t.buffers->q[0], *s = t.buffers->scores;
    copy_row(static_cast<const T*>(a.q) + t.batch * a.q_batch + t.head * a.q_head + query * a.q_row, a.dim, q);
    const int64_t keys = seen_keys(a, t.batch, t.head, query, 1, visible(query)), whole = a.dim / kLanes * kLanes;
    for (int64_t key = 0; key < keys;) {
      const KeyRows<T> rows = key_rows<T>(a, t.batch, t.kv_head, key, keys - key);
      const T* k = rows.k;
      for (const int64_t end = key + rows.count; key < end; key++, k += rows.k_row) {
        Vec sum = whole < a.dim ? load(q + whole) * load_partial(k + whole, a.dim - whole) : Vec(0.0f);
        for (int64_t d = 0; d < whole; d += kLanes) sum += load(q + d) * load(k + d);
        s[key] = sum_of(sum);
      }
    }
    Vec high = Vec(-__builtin_inff()), sum = Vec(0.0f);
    for (int64_t j = 0; j < keys; j += kLanes) {
      const int64_t n = min64(kLanes, keys - j);
      Vec score = load(s + j) * Vec(a.scale * kLog2e);
      if (a.mask) score = masked(score, mask_of(t, query, j, n), in_base_2(Vec(a.highest_fill)));
      if (n < kLanes) score = lanes_from(0) < static_cast<int32_t>(n) ? score : Vec(-__builtin_inff());
      store(s + j, score);
      high = larger(score, high);
    }
    const float most = max_of(high), base = most == -__builtin_inff() ? 0.0f : most;
    for (int64_t j = 0; j < keys; j += kLanes) {
      const Vec e = exp2_nonpositive(load(s + j) - Vec(base));
      store(s + j, e);
      sum += e;
    }
    const float total = sum_of(sum);
    const bool zeros = total == 0 && a.masked_rows_zero;
    T* o = static_cast<T*>(a.o) + t.batch * a.o_batch + t.head * a.o_head + query * a.o_row;
    for (int64_t d = 0; d < a.v_dim; d += kLanes) {
      const int64_t n = min64(kLanes, a.v_dim - d);
      Vec sums[4] = {Vec(0.0f), Vec(0.0f), Vec(0.0f), Vec(0.0f)};
      for (int64_t key = 0; key < keys;) {
        const KeyRows<T> rows = key_rows<T>(a, t.batch, t.kv_head, key, keys - key);
        const T* v = rows.v + d;
        const float* weights = s + key;
        int64_t j = 0;
        for (; n == kLanes && j + 4 <= rows.count; j += 4) {
#pragma unroll
          for (int u = 0; u < 4; u++) sums[u] += Vec(weights[j + u]) * load(v + (j + u) * rows.v_row);
        }
        for (; j < rows.count; j++) sums[0] += Vec(weights[j]) * load_partial(v + j * rows.v_row, n);
        key += rows.count;
      }
      store_partial(o + d, zeros ? Vec(0.0f) : (sums[0] + sums[1] + (sums[2] + sums[3])) * Vec(1.0f / total), n);
    }
  }

  static void run_chunk(void* context, int64_t begin, int64_t end, int32_t worker) {
    if constexpr (unit == Unit::tiles) amx_begin();
    for (int64_t task = begin; task < end; task++) static_cast<const ByKeys*>(context)->run_task(task, worker);
    if constexpr (unit == Unit::tiles) amx_end();
  }
};

// Pairs of a query, and of a key, are read as they lie in memory.
bool suits_pairs(const CoilAttention& a) { return a.dtype == COIL_BFLOAT16 && has_bfloat16_dot() && a.dim % 2 == 0 && a.q_row % 2 == 0 && a.scale > 0; }

template <class Kernel>
void run(const CoilAttention& a, const CoilHost* host) {
  Kernel kernel(a);
  const int64_t work = a.batch * a.heads * a.q_len * a.kv_len * (a.dim + a.v_dim);
  if (kernel.tasks == 1 || host->num_workers <= 1 || work < 131072) return Kernel::run_chunk(&kernel, 0, kernel.tasks, 0);
  const int64_t grain = max64(1, min64(kernel.tasks / (4 * host->num_workers), 131072 / max64(work / kernel.tasks, 1)));
  host->parallel_for(host->pool, kernel.tasks, grain, Kernel::run_chunk, &kernel);
}

}  // namespace

bool suits_keys(const CoilAttention& a) {
  if (a.block_tiles > 0 || a.kv_len <= 0) return false;
  if (a.q_len < kPanel || ceil_div(a.q_len - queries_alone(a), kLanes) * kLanes * 3 > a.q_len * 4) return false;
  return !a.mask || a.mask_dtype == COIL_BOOL || a.mask_dtype == COIL_FLOAT32 || a.mask_dtype == a.dtype;
}

void attention_by_keys(const CoilAttention& a, const CoilHost* host) {
  if (suits_pairs(a)) return has_amx() ? run<ByKeys<BFloat16, Unit::tiles>>(a, host) : run<ByKeys<BFloat16, Unit::dot>>(a, host);
  with_dtype(a.dtype, [&](auto* type) { run<ByKeys<__remove_cvref(decltype(*type)), Unit::floats>>(a, host); });
}

}  // namespace COIL_KERNELS_NAMESPACE
