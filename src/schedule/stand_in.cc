#include "schedule/stand_in.h"

#include <utility>

namespace coil {
namespace {

constexpr const char* kEntry = "coil_stand_in";

// Numbers from -1 to 0.9 that repeat after 20; whole numbers are 0 and 1, which may be positions.
constexpr const char* kSource = R"(template <class T, int N>
static inline void coil_fill(const coil::Tensor<const T, N>&) {}
static inline void coil_fill(coil::NoTensor) {}
static inline void coil_fill(coil::Range) {}
static inline void coil_put(float& to, int64_t i) { to = (float)(i * 7 % 20 - 10) / 10; }
static inline void coil_put(double& to, int64_t i) { to = (double)(i * 7 % 20 - 10) / 10; }
static inline void coil_put(coil::bfloat16& to, int64_t i) { to = coil::bfloat16((float)(i * 7 % 20 - 10) / 10); }
static inline void coil_put(coil::float16& to, int64_t i) { to = coil::float16((float)(i * 7 % 20 - 10) / 10); }
template <class T>
static inline void coil_put(T& to, int64_t i) { to = (T)(i % 2); }
template <class T, int N>
static inline void coil_fill(const coil::Tensor<T, N>& to) {
  for (int64_t i = 0; i < to.numel(); ++i) coil_put(to[i], i);
}
template <class... A>
static inline void coil_stand_in(A... all) { (coil_fill(all), ...); }
)";

}  // namespace

bool has_strides(Expr offset, size_t rank) {
  for (size_t d = 0; d < rank; ++d) {
    const auto affine = as_affine(offset, static_cast<int>(d));
    if (!affine) return false;
    for (size_t v = 0; v < rank; ++v) {
      if (depends_on_var(affine->coefficient, static_cast<int>(v))) return false;
    }
  }
  return true;
}

UserCallKernel stand_in(ExprPool& pool, const std::string& name, std::vector<StandInTensor> tensors, std::vector<BufferId> results) {
  auto kernel = std::make_shared<UserKernel>();
  kernel->name = name;
  kernel->returns = static_cast<int>(results.size());
  kernel->contiguous = false;
  kernel->configs = {{}};
  kernel->cpu = UserKernelCode{};
  kernel->cpu->source = kSource;
  kernel->cpu->file = "stand-in for " + name;
  kernel->cpu->entry = kEntry;
  kernel->cpu->range = "1";
  UserCallKernel k;
  for (StandInTensor& t : tensors) {
    UserKernelArg arg;
    arg.name = "in" + std::to_string(kernel->args.size());
    kernel->args.push_back(std::move(arg));
    k.def.args.emplace_back(UserCall::Tensor{{t.operand.buffer, {}}, std::move(t.sizes)});
    k.operands.push_back(t.operand);
  }
  UserCall::Launch launch;
  launch.range = launch.work = pool.index(1);
  launch.grid = {pool.index(1), pool.index(1), pool.index(1)};
  k.def.launches = {launch};
  k.def.kernel = std::move(kernel);
  k.results = std::move(results);
  return k;
}

bool is_stand_in(const UserCallKernel& kernel) { return kernel.def.kernel->cpu && kernel.def.kernel->cpu->entry == kEntry; }

}  // namespace coil
