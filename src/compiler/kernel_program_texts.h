// The texts of the programs that kernel_programs.h writes around one kernel: what loads its inputs, calls and times it, and compares what it wrote.
#pragma once

#include <string_view>

namespace coil {

// kName, kBuffers and kFiles are in call.h. Both mains end with `compare`.
inline constexpr std::string_view kKernelData = R"cc(
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>

  static unsigned char* load(const char* name, size_t bytes) {
    unsigned char* memory = (unsigned char*)aligned_alloc(64, (bytes + 191) / 64 * 64);
    memset(memory, 0, (bytes + 191) / 64 * 64);
    if (!name) return memory;
    FILE* file = fopen(name, "rb");
    if (!file || fread(memory, 1, bytes, file) != bytes) {
      fprintf(stderr, "cannot read %s\n", name);
      exit(2);
    }
    fclose(file);
    return memory;
  }

  // What the kernel wrote beside what it wrote in the program: 1 where any of it differs.
  static int compare(void* const* p, int flag) {
    int different = 0;
    if (flag) printf("  an index is out of range\n");
    for (int i = 0; i < kBuffers; ++i) {
      if (!kFiles[i].after) continue;
      const unsigned char *expected = load(kFiles[i].after, kFiles[i].bytes), *found = (const unsigned char*)p[i];
      if (memcmp(expected, found, kFiles[i].bytes) == 0) {
        printf("  p%d %s: same as in the program\n", i, kFiles[i].value);
        continue;
      }
      different = 1;
      double most = 0;
      size_t count = 0, first = 0;
      const size_t size = kFiles[i].element;
      for (size_t e = 0; e < kFiles[i].bytes / size; ++e) {
        if (memcmp(expected + e * size, found + e * size, size) == 0) continue;
        if (count++ == 0) first = e;
        if (kFiles[i].floats == 4) most = fmax(most, fabs(((const float*)found)[e] - ((const float*)expected)[e]));
        if (kFiles[i].floats == 8) most = fmax(most, fabs(((const double*)found)[e] - ((const double*)expected)[e]));
      }
      printf("  p%d %s: %zu elements differ, the first is number %zu", i, kFiles[i].value, count, first);
      printf(kFiles[i].floats ? ", by at most %.6g\n" : "\n", most);
    }
    return different;
  }
)cc";

inline constexpr std::string_view kCpuMain = R"cc(
  static double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
  }

  int main() {
    void* p[kBuffers + 1] = {};
    int flag = 0;
    struct {
      void* const* p;
      const long* s;
      int* flag;
    } args = {p, kSizes, &flag};
    double best = 1e30;
    for (int run = 0; run < 20; ++run) {
      for (int i = 0; i < kBuffers; ++i) {
        free(p[i]);
        p[i] = load(kFiles[i].before, kFiles[i].bytes);
      }
      const double begin = now();
      KERNEL(&args, 0, kItems, 0);
      const double seconds = now() - begin;
      if (seconds < best) best = seconds;
    }
    printf("%s: %.3g us\n", kName, best * 1e6);
    return compare(p, flag);
  }
)cc";

inline constexpr std::string_view kCudaMain = R"cc(
  int main() {
    void *host[kBuffers + 1] = {}, *p[kBuffers + 1] = {};
    int* flag = 0;
    check(cudaMalloc((void**)&flag, sizeof *flag), "cannot allocate memory");
    for (int i = 0; i < kBuffers; ++i) {
      host[i] = load(kFiles[i].before, kFiles[i].bytes);
      check(cudaMalloc(&p[i], kFiles[i].bytes + 256), "cannot allocate memory");
    }
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "no event");
    check(cudaEventCreate(&end), "no event");
    float best = 1e30f, ms = 0;
    for (int run = 0; run < 20; ++run) {
      check(cudaMemset(flag, 0, sizeof *flag), "cannot clear the flag");
      for (int i = 0; i < kBuffers; ++i) check(cudaMemcpy(p[i], host[i], kFiles[i].bytes, cudaMemcpyHostToDevice), "cannot copy to the device");
      check(cudaEventRecord(begin), "no event");
      call(p, flag);
      check(cudaEventRecord(end), "no event");
      check(cudaEventSynchronize(end), "the kernel failed");
      check(cudaEventElapsedTime(&ms, begin, end), "no time");
      if (ms < best) best = ms;
    }
    printf("%s: %.3g us\n", kName, best * 1e3);
    int bad_index = 0;
    check(cudaMemcpy(&bad_index, flag, sizeof bad_index, cudaMemcpyDeviceToHost), "cannot copy from the device");
    for (int i = 0; i < kBuffers; ++i) check(cudaMemcpy(host[i], p[i], kFiles[i].bytes, cudaMemcpyDeviceToHost), "cannot copy from the device");
    return compare(host, bad_index);
  }
)cc";

// COIL is the command, or the Python package's where there is no command.
inline constexpr const char* kCpuMakefile = R"mk(# make run: builds the kernel and runs it on its inputs. make package: the model with this kernel.
COIL ?= $(shell command -v coil || echo python3 -m coil)
CXX = $(shell for c in clang++-21 clang++-20 clang++-19 clang++-18 clang++; do command -v $$c && break; done)
ISA = {isa}
FLAGS = -std=c++20 -O2 -w -ffp-contract=on -fwrapv -fno-rtti -march={march}$(ISA) -DCOIL_ISA=$(ISA) -DCOIL_ISA_$(shell echo $(ISA) | tr a-z A-Z)=1 -I../../include
MODEL = {model}
OPTIONS = {options}

run: program
	./program

program: kernel.cc main.cc call.h
	@test -n "$(CXX)" || {{ echo "no clang++ was found: install clang 18 or later, or say where it is: make run CXX=/path/to/clang++" >&2; exit 1; }}
	$(CXX) $(FLAGS) kernel.cc main.cc -o program -lm

package:
	$(COIL) compile $(MODEL) $(OPTIONS) --replace-kernel {function}=kernel.cc -o edited.coil.pt2

.PHONY: run package
)mk";

inline constexpr const char* kCudaMakefile =
    R"mk(# make run: builds the kernel and runs it on its inputs, on a machine with a GPU. make package: the model with this kernel.
COIL ?= $(shell command -v coil || echo python3 -m coil)
NVCC ?= $(shell for c in nvcc "$$CUDA_HOME/bin/nvcc" /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc; do command -v "$$c" && break; done)
ARCH = {arch}
FLAGS = -std=c++20 -O3 -w -arch=$(ARCH) -lineinfo --expt-relaxed-constexpr -I../../include
MODEL = {model}
OPTIONS = {options}

run: program
	./program

program: $(wildcard *.cu) call.h
	@test -n "$(NVCC)" || {{ echo "nvcc was not found: install NVIDIA's CUDA toolkit, or say where it is: make run NVCC=/path/to/nvcc" >&2; exit 1; }}
	$(NVCC) $(FLAGS) main.cu -o program

package:
	$(COIL) compile $(MODEL) $(OPTIONS) {edited} -o edited.coil.pt2

.PHONY: run package
)mk";

}  // namespace coil
