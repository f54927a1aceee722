// coil_attention: softmax(q k^T * scale + mask) v, block by block with a running maximum and sum, so that only one block of
// scores exists per worker. A task is up to kQueries rows of one head; with few queries (decoding) the rows of all heads that
// share a key head are one task, so that keys and values are read once for them.
#include "attention_by_keys.h"
#include "attention_masks.h"
#include "exp.h"
#include "past_keys.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kQueries = kTileRows * (COIL_ATTENTION_ROWS / kTileRows);
constexpr int64_t kKeys = kChunk;  // of one block, at most: the scores are the A of the second product
constexpr int64_t kMaxDim = COIL_ATTENTION_DIM;
constexpr int64_t kKeptKeys = 2 * kMaxDim * kPanel;  // numbers of keys that a worker keeps turned: a panel, or all of a head that has few
constexpr int64_t kLineBytes = 64;
constexpr int64_t kFetchedBytes = 1 << 22;  // of a call's keys and values, from which on they are taken to be in memory
constexpr int64_t kFoldQueries = 16;        // up to so many queries, heads that share keys are folded

struct Buffers {
  float q[kQueries * kRowStride];  // scaled queries
  float scores[kQueries * kRowStride];
  float o[kMaxDim / kPanel][kQueries * kPanel];
  float k[kKeptKeys];       // panels of keys, turned: [dim][kPanel]
  float v[kKeys * kPanel];  // one panel of values
};
static_assert(sizeof(Buffers) <= COIL_ATTENTION_WORKER_BYTES);

template <class T>
struct Attention {
  const CoilAttention& a;
  int64_t fold, unit_rows, block_rows, block_keys, blocks, tasks;
  bool fetches;  // keys and values are asked for before they are read

  explicit Attention(const CoilAttention& args) : a(args) {
    const int64_t shared = a.heads / a.kv_heads;
    fold = a.q_len <= kFoldQueries ? shared : 1;
    unit_rows = fold * a.q_len;
    const int64_t units = a.batch * a.heads / fold;
    // Smaller blocks when there are few of them; a matter of the problem alone, so that threads change no sum.
    block_rows = kQueries;
    if (a.block_tiles > 0) block_rows = min64(kQueries, a.block_tiles * kTileRows);
    else
      while (block_rows > 2 * kTileRows && units * ceil_div(unit_rows, block_rows) < COIL_ATTENTION_TASKS) block_rows -= kTileRows;
    block_keys = a.block_panels > 0 ? min64(kKeys, a.block_panels * kPanel) : kKeys;
    blocks = ceil_div(unit_rows, block_rows);
    tasks = units * blocks;
    fetches = blocks == 1 && a.batch * a.kv_heads * a.kv_len * (a.dim + a.v_dim) * static_cast<int64_t>(sizeof(T)) >= kFetchedBytes;
  }

  // Few queries wait for memory: lines come faster all at once than in the order in which they are turned and multiplied.
  void fetch(const KeyRows<T>& keys) const {
    for (int64_t i = 0; i < keys.count; i++) {
      const char *k = reinterpret_cast<const char*>(keys.k + i * keys.k_row), *v = reinterpret_cast<const char*>(keys.v + i * keys.v_row);
      for (int64_t b = 0; b < a.dim * static_cast<int64_t>(sizeof(T)); b += kLineBytes) __builtin_prefetch(k + b, 0, 2);
      for (int64_t b = 0; b < a.v_dim * static_cast<int64_t>(sizeof(T)); b += kLineBytes) __builtin_prefetch(v + b, 0, 2);
    }
  }

  // A task's rows: row r of the unit is query r % q_len of head `head + r / q_len`.
  struct Rows {
    int64_t batch, head, kv_head, first, count;
    KeyRows<T> keys;  // of the block
    bool kept;        // all keys are in buffers->k already
    Buffers* buffers;
    float most[kQueries];   // running maximum
    float sum[kQueries];    // running sum of exp(score - most)
    int64_t least_visible;  // keys that every row sees
  };

  // Blocks of one head that follow each other on a worker turn its keys once. Not where a block sees but the first of them.
  bool keeps_keys() const { return blocks > 1 && !a.causal && a.past == 0 && ceil_div(a.kv_len, kPanel) * kPanel * a.dim <= kKeptKeys; }

  // Row r sees keys [0, visible(r)).
  int64_t visible(const Rows& rows, int64_t r) const { return a.causal ? min64(a.kv_len, (rows.first + r) % a.q_len + 1) : a.kv_len; }

  void load_queries(Rows& rows) const {
    const T* q = static_cast<const T*>(a.q) + rows.batch * a.q_batch;
    for (int64_t r = 0; r < rows.count; r++) {
      const int64_t unit_row = rows.first + r;
      const T* from = q + (rows.head + unit_row / a.q_len) * a.q_head + unit_row % a.q_len * a.q_row;
      float* to = rows.buffers->q + r * kRowStride;
      copy_row(from, a.dim, to);
      for (int64_t i = 0; i < a.dim; i += kLanes) store(to + i, load(to + i) * Vec(a.scale));
    }
    const int64_t capacity = (rows.count + 1) & ~int64_t{1};
    if (capacity > rows.count) memset(rows.buffers->q + rows.count * kRowStride, 0, sizeof(float) * kMaxDim);
  }

  // What the mask adds to the scores of row r with keys [key, key + cols); zeros behind.
  void load_mask(const Rows& rows, int64_t r, int64_t key, int64_t cols, float* out) const {
    const int64_t unit_row = rows.first + r;
    const int64_t start = rows.batch * a.mask_batch + (rows.head + unit_row / a.q_len) * a.mask_head + unit_row % a.q_len * a.mask_row + key * a.mask_col;
    if (a.mask_dtype == COIL_BOOL) {
      const uint8_t* mask = static_cast<const uint8_t*>(a.mask) + start;
      int64_t j = 0;
      for (; a.mask_col == 1 && j + kLanes <= cols; j += kLanes) {
        const VecI32 seen = __builtin_convertvector(load_raw<Lanes<uint8_t>>(mask + j), VecI32);
        store(out + j, seen != 0 ? Vec(0.0f) : Vec(-__builtin_inff()));
      }
      for (; j < cols; j++) out[j] = mask[j * a.mask_col] ? 0.0f : -__builtin_inff();
      return;
    }
    with_dtype(a.mask_dtype, [&](auto* type) {
      const auto* mask = static_cast<decltype(type)>(a.mask) + start;
      if (a.mask_col == 1) {
        copy_row(mask, cols, out);
      } else {
        for (int64_t j = 0; j < cols; j++) out[j] = load_one(mask + j * a.mask_col);
      }
    });
  }

  // Scores of all rows with keys [key, key + keys), into buffers->scores; -inf where a row does not see a key and behind.
  void compute_scores(Rows& rows, int64_t key, int64_t keys) const {
    Buffers& to = *rows.buffers;
    for (int64_t j = 0; j < keys; j += kPanel) {
      const int64_t cols = min64(kPanel, keys - j);
      float* panel = keeps_keys() ? to.k + (key + j) * a.dim : to.k;
      if (!rows.kept) {
        if (cols < kPanel) memset(panel, 0, static_cast<size_t>(a.dim * kPanel) * 4);
        copy_transposed(rows.keys.k + j * rows.keys.k_row, rows.keys.k_row, 1, cols, a.dim, panel, kPanel);
      }
      for (int64_t r = 0; r < rows.count; r += kTileRows) {
        tile_product(a.dim, to.q + r * kRowStride, kRowBytes, panel, kPanel, COIL_FLOAT32, min64(kTileRows, rows.count - r), kPanel,
                     to.scores + r * kRowStride + j, false, nullptr, 0, kRowStride);
      }
      if (a.mask || cols < kPanel || rows.least_visible < key + j + kPanel) hide(rows, key + j, cols, to.scores + j);
    }
  }

  // Of a panel's scores: applies the mask, and -inf where a row does not see a key.
  void hide(const Rows& rows, int64_t key, int64_t cols, float* scores) const {
    alignas(64) float mask[kPanel] = {};
    const Vec fill = Vec(a.highest_fill);
    for (int64_t r = 0; r < rows.count; r++, scores += kRowStride) {
      const int64_t seen = min64(cols, visible(rows, r) - key);
      if (a.mask && seen > 0) load_mask(rows, r, key, seen, mask);
      for (int64_t i = 0; i < kPanel; i += kLanes) {
        Vec score = load(scores + i);
        if (a.mask) score = masked(score, load(mask + i), fill);
        if (seen < i + kLanes) score = lanes_from(i) < static_cast<int32_t>(seen) ? score : Vec(-__builtin_inff());
        store(scores + i, score);
      }
    }
  }

  // Scores to exp(score - maximum); rescales what was summed with an older maximum.
  void exponentiate(Rows& rows, int64_t keys) const {
    const int64_t padded = ceil_div(keys, kLanes) * kLanes;
    for (int64_t r = 0; r < rows.count; r++) {
      float* s = rows.buffers->scores + r * kRowStride;
      Vec high = Vec(-__builtin_inff());
      for (int64_t i = 0; i < padded; i += kLanes) high = larger(load(s + i), high);
      const float before = rows.most[r], block_most = max_of(high), most = block_most > before ? block_most : before;
      // A row without any visible key yet: exp(-inf - 0) is 0.
      const float base = most == -__builtin_inff() ? 0.0f : most;
      Vec sum = Vec(0.0f);
      for (int64_t i = 0; i < padded; i += kLanes) {
        const Vec p = exp_nonpositive(load(s + i) - Vec(base));
        store(s + i, p);
        sum += p;
      }
      float rescale = 1.0f;
      if (most != before && before != -__builtin_inff()) {
        rescale = exp_nonpositive(Vec(before - base))[0];
        for (int64_t j = 0; j < ceil_div(a.v_dim, kPanel); j++) {
          float* o = rows.buffers->o[j] + r * kPanel;
          for (int64_t i = 0; i < kPanel; i += kLanes) store(o + i, load(o + i) * Vec(rescale));
        }
      }
      rows.sum[r] = rows.sum[r] * rescale + sum_of(sum);
      rows.most[r] = most;
    }
  }

  // o += scores * v
  void add_values(Rows& rows, int64_t key, int64_t keys) const {
    Buffers& to = *rows.buffers;
    for (int64_t j = 0; j * kPanel < a.v_dim; j++) {
      const int64_t cols = min64(kPanel, a.v_dim - j * kPanel);
      const T* v = rows.keys.v + j * kPanel;
      PanelChunk b = {v, rows.keys.v_row, a.dtype};
      // Full panels of float32 are read in place; widening them once for all the rows pays.
      if (cols < kPanel || (sizeof(T) == 2 && rows.count > kTileRows)) {
        for (int64_t i = 0; i < keys; i++) {
          copy_row(v + i * rows.keys.v_row, cols, to.v + i * kPanel);
          for (int64_t c = ceil_div(cols, kLanes) * kLanes; c < kPanel; c += kLanes) store(to.v + i * kPanel + c, Vec(0.0f));
        }
        b = {to.v, kPanel, COIL_FLOAT32};
      }
      for (int64_t r = 0; r < rows.count; r += kTileRows) {
        tile_product(keys, to.scores + r * kRowStride, kRowBytes, b.data, b.ldb, b.dtype, min64(kTileRows, rows.count - r), kPanel, to.o[j] + r * kPanel,
                     key > 0, nullptr, 0);
      }
    }
  }

  void store_rows(const Rows& rows) const {
    T* o = static_cast<T*>(a.o) + rows.batch * a.o_batch;
    for (int64_t r = 0; r < rows.count; r++) {
      const int64_t unit_row = rows.first + r;
      T* to = o + (rows.head + unit_row / a.q_len) * a.o_head + unit_row % a.q_len * a.o_row;
      const bool masked = rows.sum[r] == 0;
      const bool zeros = masked && (a.masked_rows_zero || a.kv_len == 0);
      const float inverse = zeros ? 0.0f : 1.0f / rows.sum[r];
      for (int64_t i = 0; i < a.v_dim; i += kLanes) {
        const Vec sum = load(rows.buffers->o[i / kPanel] + r * kPanel + i % kPanel);
        store_partial(to + i, zeros ? Vec(0.0f) : sum * Vec(inverse), min64(kLanes, a.v_dim - i));
      }
    }
  }

  // kept: whether the task before this one was the worker's, and of the same head.
  void run_task(int64_t task, int32_t worker, bool kept) const {
    const int64_t unit = task / blocks, block = task % blocks, units_per_batch = a.heads / fold;
    Rows rows;
    rows.batch = unit / units_per_batch;
    rows.head = unit % units_per_batch * fold;
    rows.first = block * block_rows;
    rows.count = min64(block_rows, unit_rows - rows.first);
    rows.kv_head = rows.head / (a.heads / a.kv_heads);
    rows.kept = kept && keeps_keys();
    rows.buffers = reinterpret_cast<Buffers*>(static_cast<char*>(a.scratch) + worker * int64_t{COIL_ATTENTION_WORKER_BYTES});
    int64_t end = 0;
    rows.least_visible = a.kv_len;
    for (int64_t r = 0; r < rows.count; r++) {
      rows.most[r] = -__builtin_inff();
      rows.sum[r] = 0;
      end = max64(end, visible(rows, r));
      rows.least_visible = min64(rows.least_visible, visible(rows, r));
    }
    if (!keeps_keys() && fold == 1) end = seen_keys(a, rows.batch, rows.head, rows.first, rows.count, end);
    else if (!keeps_keys() && a.mask_head == 0) end = seen_keys(a, rows.batch, 0, 0, a.q_len, end);
    load_queries(rows);
    // Rows that fill up the last tile multiply whatever the scores' buffer holds; their results go nowhere.
    if (rows.count & 1) memset(rows.buffers->scores + rows.count * kRowStride, 0, sizeof(float) * kRowStride);
    const bool copies = keeps_past(a) && block == 0 && rows.head % (a.heads / a.kv_heads) == 0;  // the first of its keys' tasks
    for (int64_t key = 0, keys; key < end; key += keys) {
      rows.keys = key_rows<T>(a, rows.batch, rows.kv_head, key, min64(block_keys, end - key));
      keys = rows.keys.count;
      if (copies) keep_past(a, rows.batch, rows.kv_head, key, min64(keys, a.past - key));
      else if (fetches) fetch(rows.keys);
      compute_scores(rows, key, keys);
      exponentiate(rows, keys);
      add_values(rows, key, keys);
    }
    if (copies) keep_past(a, rows.batch, rows.kv_head, end, a.past - end);
    store_rows(rows);
  }

  static void run_chunk(void* context, int64_t begin, int64_t end, int32_t worker) {
    const Attention& kernel = *static_cast<const Attention*>(context);
    for (int64_t task = begin; task < end; task++) kernel.run_task(task, worker, task > begin && task % kernel.blocks != 0);
  }
};

template <class T>
void attention(CoilAttention a, const CoilHost* host) {
  if (a.batch <= 0 || a.heads <= 0) return;
  // Without a task for each thread the past is copied by all of them first, and read again where it is.
  if (keeps_past(a) && (a.q_len <= 0 || a.batch * a.kv_heads < host->num_workers)) {
    keep_all_past(a, host);
    a.keep_k_past = a.keep_v_past = 0;
  }
  if (a.q_len <= 0) return;
  if (suits_keys(a)) return attention_by_keys(a, host);
  Attention<T> kernel(a);
  const int64_t work = a.batch * a.heads * max64(a.q_len, 4) * a.kv_len * (a.dim + a.v_dim);
  if (kernel.tasks == 1 || host->num_workers <= 1 || work < 131072) {
    Attention<T>::run_chunk(&kernel, 0, kernel.tasks, 0);
  } else {
    const int64_t grain = max64(1, min64(kernel.tasks / (4 * host->num_workers), 131072 / max64(work / kernel.tasks, 1)));
    host->parallel_for(host->pool, kernel.tasks, grain, Attention<T>::run_chunk, &kernel);
  }
}

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_attention)(const CoilAttention* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  with_dtype(args->dtype, [&](auto* type) { attention<__remove_cvref(decltype(*type))>(*args, host); });
}
