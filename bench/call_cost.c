/* Load and per-call cost through the C API: call_cost PACKAGE [CALLS] [SIZE...]   (a size for each dynamic dimension, in order)
 * Prints one JSON line: time of coil_open + context, of the first call, median and least time of a call, heap allocations in the steady state,
 * the bytes that a run takes from the heap and the growth of resident memory in a run, beside what coil_memory_of_run says. bench/startup.py builds and runs it. */
#define _GNU_SOURCE
#include <coil/coil.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
static long allocations, requested;

static void count(size_t n) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&requested, (long)n, __ATOMIC_RELAXED);
}

/* These take the place of libc's for the whole process, the runtime included. */
void* malloc(size_t n) { count(n); return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { count(n * m); return __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { count(n); return __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { count(n); return __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) { count(n); return (*p = __libc_memalign(a, n)) ? 0 : 12; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Resident anonymous memory of this process, bytes. */
static long anonymous(void) {
  char line[256];
  long kb = 0;
  FILE* f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %ld", &kb);
  if (f) fclose(f);
  return kb * 1024;
}

static int compare(const void* a, const void* b) { return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b); }
static int fail(void) { return fprintf(stderr, "%s\n", coil_last_error()), 1; }

int main(int argc, char** argv) {
  static coil_tensor in[64], out[64];
  static int64_t sizes[64][16];
  coil_model* model;
  coil_context* context;
  coil_memory memory;
  if (argc < 2) return 2;
  int calls = argc > 2 ? atoi(argv[2]) : 100000;
  double start = now();
  if (coil_open(argv[1], NULL, &model) || coil_context_create(model, &context)) return fail();
  double load = now() - start;
  int n = coil_num_inputs(model), m = coil_num_outputs(model), known = 0;
  const char* names[16];
  int64_t values[16];
  for (int i = 0; i < n; i++) {
    coil_tensor_info info;
    if (coil_input_info(model, i, &info)) return fail();
    size_t bytes = coil_dtype_bytes(info.dtype);
    for (int d = 0; d < info.rank; d++) {
      int64_t size = info.dims[d].min;
      if (info.dims[d].symbol) {
        int k = 0;
        while (k < known && strcmp(names[k], info.dims[d].symbol)) k++;
        if (k == known) names[known] = info.dims[d].symbol, values[known++] = argc > 3 + k ? atoll(argv[3 + k]) : size;
        size = values[k];
      }
      sizes[i][d] = size, bytes *= size;
    }
    void* data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(data, 0, bytes);
    in[i] = (coil_tensor){.data = data, .sizes = sizes[i], .rank = info.rank, .dtype = info.dtype};
  }
  double* times = malloc(sizeof(double) * calls);
  memset(times, 0, sizeof(double) * calls);
  if (coil_infer(context, in, n, out, m)) return fail();
  long before = anonymous(), heap_before = requested;
  memset(out, 0, sizeof out);
  start = now();
  if (coil_run(context, in, n, out, m)) return fail();
  double first = now() - start;
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < m; k++) out[k].data = NULL;
    if (coil_run(context, in, n, out, m)) return fail();
  }
  long taken = anonymous() - before, heap_bytes = requested - heap_before;
  if (coil_memory_of_run(context, &memory)) return fail();
  long heap = allocations;
  for (int i = 0; i < calls; i++) {
    for (int k = 0; k < m; k++) out[k].data = NULL;
    start = now();
    if (coil_run(context, in, n, out, m)) return fail();
    times[i] = now() - start;
  }
  heap = allocations - heap;
  qsort(times, calls, sizeof(double), compare);
  printf("{\"load_ms\": %.4f, \"first_ms\": %.4f, \"call_us\": %.4f, \"call_us_min\": %.4f, \"calls\": %d, \"allocations\": %ld, \"arena_bytes\": %lld, "
         "\"output_bytes\": %lld, \"constant_bytes\": %lld, \"heap_bytes\": %ld, \"anonymous_bytes\": %ld, \"isa\": \"%s\", \"threads\": %d}\n",
         load * 1e3, first * 1e3, times[calls / 2] * 1e6, times[0] * 1e6, calls, heap, (long long)memory.arena_bytes, (long long)memory.output_bytes,
         (long long)memory.constant_bytes, heap_bytes, taken, coil_isa(model), coil_num_threads(model));
  return 0;
}
