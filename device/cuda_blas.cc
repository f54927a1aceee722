// See cuda_blas.h. The library's types and numbers are declared here: no CUDA header at build time.
#include "cuda_blas.h"

#include <string.h>

#include "cuda_graph.h"
#include "cuda_loader.h"
#include "cuda_plans.h"

namespace cd {
namespace {

constexpr uint64_t kAlign = kLibraryAlign, kWorkspaceBytes = kLibraryWorkspaceBytes;

enum : int32_t { kReal32 = 0, kReal16 = 2, kRealB16 = 14 };                                            // cudaDataType
enum : int32_t { kCompute32 = 68 };                                                                    // CUBLAS_COMPUTE_32F: float32, no TF32
enum : int32_t { kTransA = 3, kTransB = 4 };                                                           // cublasLtMatmulDescAttributes_t
enum : int32_t { kMaxWorkspace = 1, kMinAlignA = 5, kMinAlignB = 6, kMinAlignC = 7, kMinAlignD = 8 };  // ...PreferenceAttributes_t

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};

struct Functions {
  size_t (*version)();
  int32_t (*create)(void** handle);
  int32_t (*destroy)(void* handle);
  int32_t (*make_desc)(void** desc, int32_t compute, int32_t scale_type);
  int32_t (*set_desc)(void* desc, int32_t attribute, const void* value, size_t bytes);
  int32_t (*delete_desc)(void* desc);
  int32_t (*make_layout)(void** layout, int32_t type, uint64_t rows, uint64_t cols, int64_t ld);
  int32_t (*delete_layout)(void* layout);
  int32_t (*make_wish)(void** wish);
  int32_t (*set_wish)(void* wish, int32_t attribute, const void* value, size_t bytes);
  int32_t (*delete_wish)(void* wish);
  int32_t (*advise)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* wish, int32_t wanted, Heuristic* found, int32_t* count);
  int32_t (*multiply)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout, const void* beta,
                      const void* c, void* c_layout, void* d, void* d_layout, const Algorithm*, void* workspace, size_t bytes, void* stream);
};

// What a plan is for. The library's matrices are column by column: ours transposed, so its first operand is our b.
struct Key {
  int64_t dtype, m, n, k;
  int64_t a_trans, a_ld, b_trans, b_ld, a_align, b_align;
};
struct Plan {
  bool usable, warm;
  void *desc, *a, *b, *d;
  Algorithm algorithm;
  size_t workspace;
};

Functions blas;

const CudaSymbol kSymbols[] = {
    {&blas.version, "cublasLtGetVersion"},
    {&blas.create, "cublasLtCreate"},
    {&blas.destroy, "cublasLtDestroy"},
    {&blas.make_desc, "cublasLtMatmulDescCreate"},
    {&blas.set_desc, "cublasLtMatmulDescSetAttribute"},
    {&blas.delete_desc, "cublasLtMatmulDescDestroy"},
    {&blas.make_layout, "cublasLtMatrixLayoutCreate"},
    {&blas.delete_layout, "cublasLtMatrixLayoutDestroy"},
    {&blas.make_wish, "cublasLtMatmulPreferenceCreate"},
    {&blas.set_wish, "cublasLtMatmulPreferenceSetAttribute"},
    {&blas.delete_wish, "cublasLtMatmulPreferenceDestroy"},
    {&blas.advise, "cublasLtMatmulAlgoGetHeuristic"},
    {&blas.multiply, "cublasLtMatmul"},
};
const CudaLibraryTable kTable = {"cublasLt",   "COIL_CUBLASLT", {"libcublasLt.so.13", "libcublasLt.so.12"}, kSymbols, sizeof kSymbols / sizeof kSymbols[0],
                                 &blas.version};

int64_t alignment(const void* p) {
  const uintptr_t low = reinterpret_cast<uintptr_t>(p) | 16;
  return static_cast<int64_t>(low & (~low + 1));
}

// How the library reads one of our operands of rows x cols: as its transpose (trans 0: cols x rows, column by column), or as it
// is (1).
bool read_operand(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, int64_t* trans, int64_t* ld) {
  if (col_stride == 1 && row_stride >= cols) {
    *trans = 0, *ld = row_stride;
    return true;
  }
  *trans = 1, *ld = col_stride;
  return row_stride == 1 && col_stride >= rows;
}

bool key_of(const CudaGemm& t, int32_t dtype, Key* key) {
  constexpr int64_t most = 0x7fffffff;
  if (dtype != COIL_FLOAT32 && dtype != COIL_BFLOAT16 && dtype != COIL_FLOAT16) return false;
  if (t.batch != 1 || t.m <= 0 || t.n <= 0 || t.k <= 0 || t.m > most || t.n > most || t.k > most) return false;
  memset(key, 0, sizeof *key);
  key->dtype = dtype, key->m = t.m, key->n = t.n, key->k = t.k;
  key->a_align = alignment(t.a), key->b_align = alignment(t.b);
  return read_operand(t.m, t.k, t.a_row, t.a_col, &key->a_trans, &key->a_ld) && read_operand(t.k, t.n, t.b_row, t.b_col, &key->b_trans, &key->b_ld);
}

void* layout(int32_t type, bool trans, int64_t rows, int64_t cols, int64_t ld) {
  void* made = nullptr;
  const uint64_t r = static_cast<uint64_t>(trans ? rows : cols), c = static_cast<uint64_t>(trans ? cols : rows);
  return blas.make_layout(&made, type, r, c, ld) == 0 ? made : nullptr;
}

bool advise(void* handle, const Key& key, Plan* plan) {
  void* wish = nullptr;
  if (blas.make_wish(&wish) != 0) return false;
  const auto set = [&](int32_t attribute, int64_t value) {
    const uint32_t align = static_cast<uint32_t>(value);
    return attribute == kMaxWorkspace ? blas.set_wish(wish, attribute, &value, sizeof value) == 0 : blas.set_wish(wish, attribute, &align, sizeof align) == 0;
  };
  Heuristic best;
  int32_t count = 0;
  const bool right = set(kMaxWorkspace, kWorkspaceBytes) && set(kMinAlignA, key.b_align) && set(kMinAlignB, key.a_align) && set(kMinAlignC, kAlign) &&
                     set(kMinAlignD, kAlign) && blas.advise(handle, plan->desc, plan->b, plan->a, plan->d, plan->d, wish, 1, &best, &count) == 0 && count > 0 &&
                     best.state == 0;
  blas.delete_wish(wish);
  if (!right || best.workspace > kWorkspaceBytes) return false;
  plan->algorithm = best.algorithm;
  plan->workspace = best.workspace;
  return true;
}

bool fill(void* handle, const Key& key, Plan* plan) {
  const int32_t type = key.dtype == COIL_FLOAT32 ? kReal32 : key.dtype == COIL_FLOAT16 ? kReal16 : kRealB16;
  const int32_t trans_a = key.b_trans != 0, trans_b = key.a_trans != 0;
  if (blas.make_desc(&plan->desc, kCompute32, kReal32) != 0) return false;
  plan->b = layout(type, key.b_trans, key.k, key.n, key.b_ld);
  plan->a = layout(type, key.a_trans, key.m, key.k, key.a_ld);
  plan->d = layout(kReal32, false, key.m, key.n, key.n);
  return plan->a && plan->b && plan->d && blas.set_desc(plan->desc, kTransA, &trans_a, sizeof trans_a) == 0 &&
         blas.set_desc(plan->desc, kTransB, &trans_b, sizeof trans_b) == 0 && advise(handle, key, plan);
}

void clear(Plan* plan) {
  void* const layouts[] = {plan->a, plan->b, plan->d};
  for (void* l : layouts) {
    if (l) blas.delete_layout(l);
  }
  if (plan->desc) blas.delete_desc(plan->desc);
  plan->a = plan->b = plan->d = plan->desc = nullptr;
}

struct Blas {
  using Key = cd::Key;
  using Plan = cd::Plan;
  static constexpr int32_t kAttachment = kCublasAttachment;
  static bool load() { return cuda_load_library(kTable); }
  static bool create(void** handle) { return blas.create(handle) == 0; }
  static void destroy(void* handle) { blas.destroy(handle); }
  static void clear(Plan* plan) { cd::clear(plan); }
  static void fill(void* handle, const Key& key, Plan* plan) {
    plan->usable = cd::fill(handle, key, plan);
    if (!plan->usable) clear(plan);
    cuda_trace("cublasLt %lld x %lld x %lld, dtype %lld: %s", static_cast<long long>(key.m), static_cast<long long>(key.n), static_cast<long long>(key.k),
               static_cast<long long>(key.dtype), plan->usable ? "used" : "cannot");
  }
};
using Plans = CudaPlans<Blas>;

}  // namespace

bool cublas_gemm(const CudaCall* call, CudaGemm* t, int32_t dtype) {
  if (call->tape) return tape_refuse(call->tape), false;
  Key key;
  if (!key_of(*t, dtype, &key)) return false;
  void* handle = nullptr;
  Plans::lock();
  Plan* plan = Plans::find(call, key, &handle);
  Plans::unlock();
  if (!plan) return false;
  // The handle and the plan's descriptions are only read from here on: calls of several threads need not wait for each other.
  char* result = reinterpret_cast<char*>((reinterpret_cast<uint64_t>(t->scratch) + kAlign - 1) / kAlign * kAlign);
  char* workspace = result + (static_cast<uint64_t>(t->m) * static_cast<uint64_t>(t->n) * 4 + kAlign - 1) / kAlign * kAlign;
  const float one = 1, zero = 0;
  const int32_t status = blas.multiply(handle, plan->desc, &one, t->b, plan->b, t->a, plan->a, &zero, result, plan->d, result, plan->d, &plan->algorithm,
                                       workspace, plan->workspace, call->stream);
  if (status != 0) {
    __atomic_store_n(&plan->usable, false, __ATOMIC_RELAXED);
    cuda_trace("cublasLt: a product failed with status %d", status);
    return false;
  }
  __atomic_store_n(&plan->warm, true, __ATOMIC_RELAXED);
  t->scratch = result;
  return true;
}

}  // namespace cd
