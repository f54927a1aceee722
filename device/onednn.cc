// See onednn.h: blocks of rows by oneDNN, each followed by the fused loops.
#include "onednn.h"

#include <string.h>

#include "onednn_plans.h"

namespace cd {
namespace {

constexpr int64_t kMostBlockRows = 256;  // floats of so many rows stay in the second cache until the fused loops read them
constexpr int64_t kRowUnit = 16;
constexpr int64_t kSmallWork = 1 << 20;  // multiply-adds that are not worth waking another thread
constexpr int64_t kFewImages = 8;        // so few large images are cut into strips, for as many tasks in all
constexpr int64_t kStripWork = 1 << 21;  // multiply-adds of a strip, at least
constexpr int64_t kStripRows = 4;

// Batches of images of blocks: the blocks of an image are of one kind, but for the first and the last. Of a product, all blocks
// are of one image. Strides in bytes.
struct Job {
  const OneDnn* dnn;
  const DnnPlan *first, *plan, *last;
  int64_t batches, images, blocks, rows, last_rows, cols;
  const char *a, *w;
  int64_t a_batch, a_image, a_block, a_back, w_batch;  // a_back: blocks but the first begin so much earlier
  char* c;                                             // without an epilogue
  int64_t c_batch, c_row;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  char* memory;  // [workers][result_bytes + scratch_bytes]
  int64_t result_bytes, scratch_bytes, ld;
  int32_t failed;
};

// The library's memory objects of one block; given back at the end.
class Arguments {
 public:
  Arguments(const OneDnn& dnn, const DnnPlan& plan) : dnn_(dnn), plan_(plan) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    for (int i = 0; i < own_; i++) dnn_.destroy_memory(made_[i]);
  }

  bool add(int32_t which, int32_t query, const void* data) {
    void* memory = nullptr;
    if (dnn_.create_memory(&memory, dnn_.ask_layout(plan_.description, query, 0), dnn_.engine, const_cast<void*>(data)) != 0) return false;
    made_[own_++] = memory;
    list_[count_++] = {which, memory};
    return true;
  }
  void add(int32_t which, void* memory) { list_[count_++] = {which, memory}; }
  bool execute(void* stream) const { return dnn_.execute(plan_.primitive, stream, count_, list_) == 0; }

 private:
  const OneDnn& dnn_;
  const DnnPlan& plan_;
  void* made_[4];
  Argument list_[4];
  int32_t own_ = 0, count_ = 0;
};

bool run_block(const Job& job, int64_t task, char* memory, void* stream) {
  const int64_t block = task % job.blocks, image = task / job.blocks % job.images, batch = task / job.blocks / job.images;
  const bool is_last = block + 1 == job.blocks;
  const DnnPlan& plan = is_last ? *job.last : block == 0 ? *job.first : *job.plan;
  const int64_t first = image * ((job.blocks - 1) * job.rows + job.last_rows) + block * job.rows;
  const char* a = job.a + batch * job.a_batch + image * job.a_image + (block ? block * job.a_block - job.a_back : 0);
  char* result = job.epilogue ? memory : job.c + batch * job.c_batch + first * job.c_row;
  Arguments arguments(*job.dnn, plan);
  if (!arguments.add(kSource, kAskSource, a) || !arguments.add(kDestination, kAskDestination, result)) return false;
  if (plan.weights) arguments.add(kWeights, plan.weights);
  else if (!arguments.add(kWeights, kAskWeights, job.w + batch * job.w_batch)) return false;
  if (plan.scratch_bytes > 0 && !arguments.add(kScratchpad, kAskScratchpad, memory + job.result_bytes)) return false;
  if (!arguments.execute(stream)) return false;
  if (!job.epilogue) return true;
  const int64_t rows = is_last ? job.last_rows : job.rows;
  for (int64_t r = 0; r < rows; r += COIL_TILE_ROWS) {
    for (int64_t col = 0; col < job.cols; col += COIL_TILE_COLS) {
      const int64_t tile_rows = rows - r < COIL_TILE_ROWS ? rows - r : COIL_TILE_ROWS,
                    tile_cols = job.cols - col < COIL_TILE_COLS ? job.cols - col : COIL_TILE_COLS;
      job.epilogue(job.epilogue_context, batch, first + r, col, tile_rows, tile_cols, reinterpret_cast<float*>(result) + r * job.ld + col, job.ld);
    }
  }
  return true;
}

void run_blocks(void* context, int64_t begin, int64_t end, int32_t worker) {
  Job& job = *static_cast<Job*>(context);
  const OneThread one(*job.dnn);
  void* stream = nullptr;
  bool right = job.dnn->create_stream(&stream, job.dnn->engine, 1) == 0;
  char* memory = job.memory + worker * (job.result_bytes + job.scratch_bytes);
  for (int64_t task = begin; right && task < end; task++) right = run_block(job, task, memory, stream);
  if (stream) job.dnn->destroy_stream(stream);
  if (!right) __atomic_store_n(&job.failed, 1, __ATOMIC_RELAXED);
}

// All but the memory is set.
int32_t run(Job& job, const CoilHost* host, int64_t depth) {
  const DnnPlan* const plans[] = {job.first, job.plan, job.last};
  for (const DnnPlan* p : plans) {
    if (p->scratch_bytes > job.scratch_bytes) job.scratch_bytes = dnn_round_up(p->scratch_bytes, 64);
  }
  job.result_bytes = job.epilogue ? dnn_round_up(job.rows * job.ld * 4, 64) : 0;
  const int64_t tasks = job.batches * job.images * job.blocks;
  const bool alone = tasks == 1 || host->num_workers <= 1 || tasks * job.rows * job.cols * depth < kSmallWork;
  DnnWorkspace* workspace = dnn_take_workspace((alone ? 1 : host->num_workers) * (job.result_bytes + job.scratch_bytes));
  if (!workspace) return kOneDnnNotTaken;
  job.memory = workspace->data;
  if (alone) run_blocks(&job, 0, tasks, 0);
  else host->parallel_for(host->pool, tasks, 1, run_blocks, &job);
  dnn_give_workspace(workspace);
  return __atomic_load_n(&job.failed, __ATOMIC_RELAXED) ? kOneDnnFailed : kOneDnnDone;
}

// Plans of an image's strips of `height` lines, of the first, the last and those between, and where they begin. False: the library
// does not take one.
bool cut(Job& job, const CoilConv2d* t, const DnnKey& whole, int64_t height) {
  const int64_t blocks = (t->oh + height - 1) / height;
  const auto plan = [&](int64_t block) {
    DnnKey key = whole;
    const int64_t line = block * height, begin = line * t->stride_h - t->pad_h;
    key.oh = t->oh - line < height ? t->oh - line : height;
    const int64_t end = begin + (key.oh - 1) * t->stride_h + (t->kh - 1) * t->dilation_h + 1;
    key.pad_h = begin < 0 ? -begin : 0;
    key.ih = (end < t->ih ? end : t->ih) - (begin < 0 ? 0 : begin);
    // Later strips are placed as if they began inside of the image.
    return key.ih <= 0 || (block > 0 && begin < 0) ? nullptr : dnn_plan(key, t->w);
  };
  job.first = plan(0), job.last = plan(blocks - 1);
  job.plan = blocks > 2 ? plan(1) : job.first;
  // The strip before the last may reach below the image as well.
  const int64_t reach = ((blocks - 1) * height - 1) * t->stride_h - t->pad_h + (t->kh - 1) * t->dilation_h;
  if (!job.first || !job.plan || !job.last || (blocks > 1 && reach >= t->ih)) return false;
  job.blocks = blocks, job.rows = height * t->ow, job.last_rows = (t->oh - (blocks - 1) * height) * t->ow;
  const int64_t line_bytes = t->x_h * dnn_element_bytes(t->dtype);
  job.a_block = height * t->stride_h * line_bytes, job.a_back = t->pad_h * line_bytes;
  return true;
}

// Lines of a strip. By the problem alone, so that threads change no bit.
int64_t strip_height(const CoilConv2d* t) {
  const int64_t work = t->oh * t->ow * t->oc * (t->kh * t->kw * t->ic / t->groups);
  int64_t strips = t->n < kFewImages ? (kFewImages + t->n - 1) / t->n : 1;
  while (strips > 1 && (work < strips * kStripWork || t->oh < strips * kStripRows)) strips--;
  return (t->oh + strips - 1) / strips;
}

bool is_served(int32_t dtype) { return dtype == COIL_FLOAT32 || dtype == COIL_BFLOAT16; }

}  // namespace

int32_t onednn_gemm(const CoilGemm* t, int64_t weight, const CoilHost* host) {
  if (!is_served(t->dtype) || t->b_bits || t->batch <= 0 || t->m <= 0 || t->n <= 0 || t->k <= 0) return kOneDnnNotTaken;
  if ((t->b_packed != 0) != (weight >= 0) || (t->b_packed && t->batch > 1 && t->b_batch != 0)) return kOneDnnNotTaken;
  DnnKey key;
  memset(&key, 0, sizeof key);
  const int64_t wanted = (t->m + kMostBlockRows - 1) / kMostBlockRows;
  const int64_t rows = wanted == 1 ? t->m : dnn_round_up((t->m + wanted - 1) / wanted, kRowUnit), blocks = (t->m + rows - 1) / rows;
  key.dtype = t->dtype, key.result_dtype = t->epilogue ? COIL_FLOAT32 : t->dtype, key.weight = weight;
  key.m = rows, key.n = t->n, key.k = t->k;
  key.a_row = t->m == 1 ? t->k * t->a_col : t->a_row, key.a_col = t->a_col;
  key.pairs = weight >= 0 && t->b_pairs;
  if (weight < 0) key.b_row = t->b_row, key.b_col = t->b_col;
  key.c_row = t->epilogue ? dnn_round_up(t->n, 16) : t->c_row;
  if (key.a_row <= 0 || key.a_col <= 0 || (weight < 0 && (key.b_row <= 0 || key.b_col <= 0))) return kOneDnnNotTaken;
  Job job = {};
  job.plan = job.first = dnn_plan(key, t->b);
  job.last_rows = t->m - (blocks - 1) * rows;
  key.m = job.last_rows;
  job.last = job.plan ? dnn_plan(key, t->b) : nullptr;
  if (!job.last) return kOneDnnNotTaken;
  job.dnn = onednn();
  job.batches = t->batch, job.images = 1, job.blocks = blocks, job.rows = rows, job.cols = t->n;
  const int64_t element = dnn_element_bytes(t->dtype);
  job.a = static_cast<const char*>(t->a), job.a_batch = t->a_batch * element, job.a_block = rows * t->a_row * element;
  job.w = static_cast<const char*>(t->b), job.w_batch = t->b_batch * element;
  job.c = static_cast<char*>(t->c), job.c_batch = t->c_batch * element, job.c_row = t->c_row * element;
  job.epilogue = t->epilogue, job.epilogue_context = t->epilogue_context, job.ld = key.c_row;
  return run(job, host, t->k);
}

int32_t onednn_conv2d(const CoilConv2d* t, int64_t weight, const CoilHost* host) {
  if (!is_served(t->dtype) || t->winograd || t->w_plain || weight < 0) return kOneDnnNotTaken;
  if (t->n <= 0 || t->ic <= 0 || t->ih <= 0 || t->iw <= 0 || t->oc <= 0 || t->oh <= 0 || t->ow <= 0 || t->kh <= 0 || t->kw <= 0) return kOneDnnNotTaken;
  if (t->x_c <= 0 || t->x_h <= 0 || t->x_w <= 0 || (t->epilogue && t->oc % 16 != 0)) return kOneDnnNotTaken;
  DnnKey key;
  memset(&key, 0, sizeof key);
  key.is_convolution = 1, key.dtype = t->dtype, key.result_dtype = t->epilogue ? COIL_FLOAT32 : t->dtype, key.weight = weight;
  key.pairs = t->w_pairs;
  key.n = t->oc, key.c_row = t->oc, key.groups = t->groups, key.panels_of_groups = t->depthwise || t->narrow_groups;
  key.ic = t->ic, key.ih = t->ih, key.iw = t->iw, key.oh = t->oh, key.ow = t->ow, key.kh = t->kh, key.kw = t->kw;
  key.stride_h = t->stride_h, key.stride_w = t->stride_w, key.pad_h = t->pad_h, key.pad_w = t->pad_w;
  key.dilation_h = t->dilation_h, key.dilation_w = t->dilation_w, key.x_c = t->x_c, key.x_h = t->x_h, key.x_w = t->x_w;
  Job job = {};
  if (const int64_t height = strip_height(t); !(height < t->oh && cut(job, t, key, height)) && !cut(job, t, key, t->oh)) return kOneDnnNotTaken;
  job.dnn = onednn();
  job.batches = 1, job.images = t->n, job.cols = t->oc;
  const int64_t element = dnn_element_bytes(t->dtype);
  job.a = static_cast<const char*>(t->x), job.a_image = t->x_n * element;
  job.c = static_cast<char*>(t->y), job.c_row = t->oc * element;
  job.epilogue = t->epilogue, job.epilogue_context = t->epilogue_context, job.ld = t->oc;
  return run(job, host, t->kh * t->kw * t->ic / t->groups);
}

}  // namespace cd
