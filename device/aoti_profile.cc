// Kernels as ranges of libtorch's profiler: torch.profiler shows them under the module and line that they come from. While none
// listens a call asks once, and that is all. See aoti_adapter.h.
#include <string.h>

#include "aoti_adapter.h"

extern "C" __attribute__((weak, visibility("hidden"))) const char COIL_KERNEL_LABELS_SYMBOL[];

namespace coil_aoti {
namespace {

struct Ranges {
  const Shim* shim;
  const char* label;  // of kernel `number`: kernels mostly come in order
  int32_t number;
  void* open;  // the range of the kernel that runs; of one that failed until the call is over
};

const char* first_label() {
  const char* labels = COIL_KERNEL_LABELS_SYMBOL;
  __asm__("" : "+r"(labels));  // a compiler may not conclude that the address of an object is never null
  return labels;
}

const char* label_of(Ranges* r, int32_t kernel) {
  if (kernel < r->number) r->label = first_label(), r->number = 0;
  for (; r->number < kernel; r->number++) r->label += strlen(r->label) + 1;
  return r->label;
}

void close(Ranges* r) {
  if (r->open) r->shim->aoti_record_function_end(r->open);
  r->open = nullptr;
}

// Of the workers that run kernels image by image one tells: their ranges would lie on threads where no profiler listens.
void begin(const CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t*) {
  Ranges* r = static_cast<Ranges*>(trace->owner);
  if (worker == 0 && r->shim->aoti_record_function_start(label_of(r, kernel), nullptr, nullptr, 0, &r->open)) r->open = nullptr;
}

void end(const CoilTrace* trace, int32_t, int32_t worker) {
  if (worker == 0) close(static_cast<Ranges*>(trace->owner));
}

}  // namespace

int32_t run_model(const Container* c, const CoilCall& call) {
  const bool watched = c->shim.is_watched && first_label() && c->shim.is_watched();
  if (__builtin_expect(!watched, true)) return c->model->run(&call, &last_error);
  Ranges ranges = {&c->shim, first_label(), 0, nullptr};
  const CoilTrace trace = {begin, end, &ranges};
  const int32_t failed = c->model->run_traced(&call, &trace, &last_error);
  close(&ranges);
  return failed;
}

}  // namespace coil_aoti
