#include "attention_by_keys.h"

#include "exp.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kQueries = 2 * kPanel;   // of a task
constexpr int64_t kKeys = kChunk;          // of one block of scores
constexpr int64_t kMaxDim = 256;
constexpr int kVecs = kPanel / kLanes;
constexpr int64_t kMostAlone = kLanes / 8;  // queries beyond whole vectors (a class token's) that are less work one by one than as a vector
constexpr float kLog2e = 1.44269504f;

struct Buffers {
  float q[kQueries / kPanel][kMaxDim * kPanel];  // queries, turned and scaled: [dim][kPanel]
  float scores[kKeys * kPanel];                  // of one panel of queries: [key][kPanel]
  float o[kQueries / kPanel][kMaxDim * kPanel];  // sums, turned: [v_dim][kPanel]
  float mask[kKeys * kPanel];                    // what is added to scores, turned like them
};
static_assert(sizeof(Buffers) <= COIL_ATTENTION_WORKER_BYTES);

// Of so many rows those of the next tile: no more than there are, and two equal tiles rather than a full one and a few rows.
COIL_INLINE int64_t rows_of_tile(int64_t rows) {
  if (rows >= 2 * kTileRows) return kTileRows;
  if (rows > kTileRows) return row_capacity((rows + 1) / 2);
  return row_capacity(rows) == rows ? rows : rows - 1;
}

COIL_INLINE VecI32 lanes_from(int64_t first) {
#ifdef __AVX512F__
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
  return lane + VecI32(static_cast<int32_t>(first));
}

bool equal_bytes(const uint8_t* a, const uint8_t* b, int64_t n) {
  VecU32 differ = VecU32(0);
  int64_t i = 0;
  for (; i + static_cast<int64_t>(sizeof differ) <= n; i += sizeof differ) differ |= load_raw<VecU32>(a + i) ^ load_raw<VecU32>(b + i);
  uint8_t rest = 0;
  for (; i < n; i++) rest |= a[i] ^ b[i];
  return !rest && __builtin_reduce_or(differ) == 0;
}

// Whether the mask's rows are one, or copies of one, as exported models write what is behind a sequence's end: those are read once here, which
// is little beside what follows. Masks with rows of their own tell in their second row.
bool same_for_queries(const CoilAttention& a) {
  if (a.mask_row == 0) return true;
  if (a.mask_col != 1) return false;
  const int64_t element = a.mask_dtype == COIL_BOOL ? 1 : 4, bytes = a.kv_len * element;
  for (int64_t b = 0; b < (a.mask_batch ? a.batch : 1); b++) {
    for (int64_t h = 0; h < (a.mask_head ? a.heads : 1); h++) {
      const uint8_t* first = static_cast<const uint8_t*>(a.mask) + (b * a.mask_batch + h * a.mask_head) * element;
      for (int64_t r = 1; r < a.q_len; r++) {
        if (!equal_bytes(first, first + r * a.mask_row * element, bytes)) return false;
      }
    }
  }
  return true;
}

int64_t queries_alone(const CoilAttention& a) {
  const int64_t rest = a.q_len % kLanes;
  return rest <= kMostAlone && a.kv_len <= kKeys * kPanel ? rest : 0;
}

struct ByKeys {
  const CoilAttention& a;
  int64_t block_queries, block_keys, blocks, tasks;
  int64_t alone;       // the last queries of a head, which its last task does one by one
  bool one_mask_row;   // for all queries of a head

  explicit ByKeys(const CoilAttention& args) : a(args), one_mask_row(args.mask && same_for_queries(args)) {
    // Smaller blocks when there are few of them; a matter of the problem alone, so that threads change no sum.
    block_queries = a.batch * a.heads * ceil_div(a.q_len, kQueries) < 16 ? kPanel : kQueries;
    block_keys = a.block_panels > 0 ? min64(kKeys, a.block_panels * kPanel) : kKeys;
    alone = queries_alone(a);
    blocks = ceil_div(a.q_len - alone, block_queries);
    tasks = a.batch * a.heads * blocks;
  }

  // A panel of queries, and what is known of them so far, in base 2: the running maximum and the sum of exp2(score - most).
  struct Panel {
    int64_t first, cols;
    float* q;
    float* o;
    Vec most[kVecs], sum[kVecs];
  };
  struct Task {
    int64_t batch, head;
    const float *k, *v;
    Buffers* buffers;
  };

  void load_queries(const Task& t, Panel& p) const {
    const float* q = static_cast<const float*>(a.q) + t.batch * a.q_batch + t.head * a.q_head + p.first * a.q_row;
    if (p.cols < kPanel) memset(p.q, 0, static_cast<size_t>(a.dim * kPanel) * 4);
    copy_transposed(q, a.q_row, 1, p.cols, a.dim, p.q, kPanel);
    for (int64_t i = 0; i < a.dim * kPanel; i += kLanes) store(p.q + i, load(p.q + i) * Vec(a.scale * kLog2e));
    for (int i = 0; i < kVecs; i++) p.most[i] = Vec(-__builtin_inff()), p.sum[i] = Vec(0.0f);
  }

  void compute_scores(const Task& t, const Panel& p, int64_t key, int64_t keys) const {
    float* scores = t.buffers->scores;
    for (int64_t j = 0, rows; j < keys; j += rows) {
      rows = rows_of_tile(keys - j);
      const float* k = t.k + (key + j) * a.k_row;
      tile_product(a.dim, k, a.k_row * 4, p.q, kPanel, COIL_FLOAT32, rows, p.cols, scores + j * kPanel, false, nullptr, 0);
    }
    if (a.mask) add_mask(t, p, key, keys);
    if (a.causal && key + keys - 1 > p.first) hide(p, key, keys, scores);
  }

  // In base 2, and finite where it was: what is as low as numbers go hides no key from a query that sees no higher one.
  static COIL_INLINE_MEMBER Vec in_base_2(Vec m) {
    const Vec more = m * Vec(kLog2e), lowest = Vec(-0x1.fffffep127f);
    return more < lowest && m >= lowest ? lowest : more;
  }
  static COIL_INLINE_MEMBER Vec unless_seen(Vec seen) { return seen == 0.0f ? Vec(-__builtin_inff()) : Vec(0.0f); }

  void add_mask(const Task& t, const Panel& p, int64_t key, int64_t keys) const {
    const int64_t start = t.batch * a.mask_batch + t.head * a.mask_head + p.first * a.mask_row + key * a.mask_col;
    if (a.mask_dtype == COIL_BOOL) return add_mask(t, p, static_cast<const uint8_t*>(a.mask) + start, keys, unless_seen);
    add_mask(t, p, static_cast<const float*>(a.mask) + start, keys, in_base_2);
  }

  template <class T, class AsAdded>
  COIL_INLINE_MEMBER void add_mask(const Task& t, const Panel& p, const T* mask, int64_t keys, AsAdded as_added) const {
    float* scores = t.buffers->scores;
    if (one_mask_row) {
      for (int64_t j = 0; j < keys; j++, scores += kPanel) {
        const Vec more = as_added(Vec(static_cast<float>(mask[j * a.mask_col])));
        if (more[0] == 0) continue;
        for (int64_t i = 0; i < kPanel; i += kLanes) store(scores + i, load(scores + i) + more);
      }
      return;
    }
    const float* turned = t.buffers->mask;
    int64_t stride = kPanel;
    if constexpr (sizeof(T) == sizeof(float)) {  // whole lines of a mask that lies turned in memory are read there
      if (a.mask_row == 1 && p.cols == kPanel) turned = mask, stride = a.mask_col;
    }
    if (turned == t.buffers->mask) copy_transposed(mask, a.mask_row, a.mask_col, p.cols, keys, t.buffers->mask, kPanel);
    for (int64_t j = 0; j < keys; j++, scores += kPanel, turned += stride) {
#pragma unroll
      for (int64_t i = 0; i < kPanel; i += kLanes) store(scores + i, load(scores + i) + as_added(load(turned + i)));
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

  // Scores to exp2(score - maximum); rescales what was summed with an older maximum.
  void exponentiate(const Task& t, Panel& p, int64_t keys) const {
    float* scores = t.buffers->scores;
    for (int i = 0; i < kVecs && i * kLanes < p.cols; i++) {
      float* column = scores + i * kLanes;
      Vec high[2] = {p.most[i], p.most[i]};
      int64_t j = 0;
      for (; j + 2 <= keys; j += 2) {
        high[0] = larger(load(column + j * kPanel), high[0]);
        high[1] = larger(load(column + (j + 1) * kPanel), high[1]);
      }
      if (j < keys) high[0] = larger(load(column + j * kPanel), high[0]);
      const Vec most = larger(high[0], high[1]);
      // A query without any visible key yet: exp2(-inf - 0) is 0.
      const Vec base = most == -__builtin_inff() ? Vec(0.0f) : most;
      Vec sum[2] = {Vec(0.0f), Vec(0.0f)};
      for (j = 0; j + 2 <= keys; j += 2) {
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const Vec e = exp2_nonpositive(load(column + (j + u) * kPanel) - base);
          store(column + (j + u) * kPanel, e);
          sum[u] += e;
        }
      }
      if (j < keys) {
        const Vec e = exp2_nonpositive(load(column + j * kPanel) - base);
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
    for (int64_t d = 0, rows; d < a.v_dim; d += rows) {
      rows = rows_of_tile(a.v_dim - d);
      turned_product(keys, t.v + key * a.v_row + d, a.v_row, t.buffers->scores, rows, p.cols, p.o + d * kPanel, key > 0);
    }
  }

  void store_rows(const Task& t, const Panel& p) const {
    for (int i = 0; i < kVecs && i * kLanes < p.cols; i++) {
      const VecI32 zeros = p.sum[i] == 0.0f && VecI32(a.masked_rows_zero || a.kv_len == 0 ? -1 : 0);
      const Vec inverse = Vec(1.0f) / p.sum[i];
      float* o = p.o + i * kLanes;
      for (int64_t d = 0; d < a.v_dim; d++) store(o + d * kPanel, zeros ? Vec(0.0f) : load(o + d * kPanel) * inverse);
    }
    float* to = static_cast<float*>(a.o) + t.batch * a.o_batch + t.head * a.o_head + p.first * a.o_row;
    copy_transposed(p.o, kPanel, 1, a.v_dim, p.cols, to, a.o_row);
  }

  void run_task(int64_t task, int32_t worker) const {
    Task t;
    t.batch = task / blocks / a.heads;
    t.head = task / blocks % a.heads;
    const int64_t kv_head = t.head / (a.heads / a.kv_heads), first = task % blocks * block_queries;
    t.k = static_cast<const float*>(a.k) + t.batch * a.k_batch + kv_head * a.k_head;
    t.v = static_cast<const float*>(a.v) + t.batch * a.v_batch + kv_head * a.v_head;
    t.buffers = reinterpret_cast<Buffers*>(static_cast<char*>(a.scratch) + worker * int64_t{COIL_ATTENTION_WORKER_BYTES});
    Panel panels[kQueries / kPanel];
    const int64_t count = min64(block_queries, a.q_len - alone - first), used = ceil_div(count, kPanel);
    for (int64_t i = 0; i < used; i++) {
      Panel& p = panels[i];
      p.first = first + i * kPanel, p.cols = min64(kPanel, count - i * kPanel);
      p.q = t.buffers->q[i], p.o = t.buffers->o[i];
      load_queries(t, p);
    }
    const int64_t end = a.causal ? min64(a.kv_len, first + count) : a.kv_len;
    for (int64_t key = 0; key < end; key += block_keys) {
      for (int64_t i = 0; i < used; i++) {
        Panel& p = panels[i];
        const int64_t keys = min64(block_keys, (a.causal ? min64(end, p.first + p.cols) : end) - key);
        if (keys <= 0) continue;
        compute_scores(t, p, key, keys);
        exponentiate(t, p, keys);
        add_values(t, p, key, keys);
      }
    }
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
    return in_base_2(values(static_cast<const float*>(a.mask) + start));
  }

  // One query: scores in a row, summed across lanes.
  void run_alone(const Task& t, int64_t query) const {
    float *q = t.buffers->q[0], *s = t.buffers->scores;
    copy_row(static_cast<const float*>(a.q) + t.batch * a.q_batch + t.head * a.q_head + query * a.q_row, a.dim, q);
    const int64_t keys = a.causal ? min64(a.kv_len, query + 1) : a.kv_len, whole = a.dim / kLanes * kLanes;
    for (int64_t j = 0; j < keys; j++) {
      const float* k = t.k + j * a.k_row;
      Vec sum = whole < a.dim ? load(q + whole) * load_partial(k + whole, a.dim - whole) : Vec(0.0f);
      for (int64_t d = 0; d < whole; d += kLanes) sum += load(q + d) * load(k + d);
      s[j] = sum_of(sum);
    }
    Vec high = Vec(-__builtin_inff()), sum = Vec(0.0f);
    for (int64_t j = 0; j < keys; j += kLanes) {
      const int64_t n = min64(kLanes, keys - j);
      Vec score = load(s + j) * Vec(a.scale * kLog2e);
      if (a.mask) score += mask_of(t, query, j, n);
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
    float* o = static_cast<float*>(a.o) + t.batch * a.o_batch + t.head * a.o_head + query * a.o_row;
    for (int64_t d = 0; d < a.v_dim; d += kLanes) {
      const int64_t n = min64(kLanes, a.v_dim - d);
      const float* v = t.v + d;
      Vec sums[4] = {Vec(0.0f), Vec(0.0f), Vec(0.0f), Vec(0.0f)};
      int64_t j = 0;
      for (; n == kLanes && j + 4 <= keys; j += 4) {
#pragma unroll
        for (int u = 0; u < 4; u++) sums[u] += Vec(s[j + u]) * load(v + (j + u) * a.v_row);
      }
      for (; j < keys; j++) sums[0] += Vec(s[j]) * load_partial(v + j * a.v_row, n);
      store_partial(o + d, zeros ? Vec(0.0f) : (sums[0] + sums[1] + (sums[2] + sums[3])) * Vec(1.0f / total), n);
    }
  }

  static void run_chunk(void* context, int64_t begin, int64_t end, int32_t worker) {
    for (int64_t task = begin; task < end; task++) static_cast<const ByKeys*>(context)->run_task(task, worker);
  }
};

}  // namespace

bool suits_keys(const CoilAttention& a) {
  if (a.dtype != COIL_FLOAT32 || a.block_tiles > 0 || a.kv_len <= 0) return false;
  if (a.q_len < kPanel || ceil_div(a.q_len - queries_alone(a), kLanes) * kLanes * 3 > a.q_len * 4) return false;
  return !a.mask || a.mask_dtype == COIL_BOOL || a.mask_dtype == COIL_FLOAT32;
}

void attention_by_keys(const CoilAttention& a, const CoilHost* host) {
  ByKeys kernel(a);
  const int64_t work = a.batch * a.heads * a.q_len * a.kv_len * (a.dim + a.v_dim);
  if (kernel.tasks == 1 || host->num_workers <= 1 || work < 131072) return ByKeys::run_chunk(&kernel, 0, kernel.tasks, 0);
  const int64_t grain = max64(1, min64(kernel.tasks / (4 * host->num_workers), 131072 / max64(work / kernel.tasks, 1)));
  host->parallel_for(host->pool, kernel.tasks, grain, ByKeys::run_chunk, &kernel);
}

}  // namespace COIL_KERNELS_NAMESPACE
