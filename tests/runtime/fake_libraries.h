// Stand-ins for cuBLASLt and cuDNN on the fake driver (fake_libraries.cpp, one shared library that COIL_CUBLASLT and COIL_CUDNN
// name). They compute on the CPU, at once, after the stream's queue; arguments that the real ones would refuse are refused.
#pragma once

#include <stdint.h>

struct FakeLibraries {
  // What they do: statuses to return instead of 0, and the workspace that they ask for.
  int32_t fail_create, fail_advise, fail_run;
  int64_t workspace;
  // cuDNN: of its 3 engines, how many of the first have a note that coil must not accept, and how many use tensor cores.
  int32_t inexact, tensor_cores;

  // What they saw.
  int32_t handles, objects;        // alive: descriptors, layouts, preferences
  int32_t created, advised, runs;  // ever
  int32_t engine;                  // cuDNN: of the last run
  void* stream;                    // of the last run
  uint32_t align_a, align_b;       // cuBLASLt: what the last advice was asked for
  int64_t workspace_given;         // cuBLASLt: bytes, the last run
};

// Exported by fake_libraries.cpp.
using FakeLibrariesFn = FakeLibraries* (*)();  // "fake_libraries"
