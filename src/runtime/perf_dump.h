// COIL_PERF=FOLDER: tells Linux's `perf` of the code that this process loads from packages, which lies in memory where perf finds no names.
//   FOLDER/jit-PID.dump   in perf's format for code that is made while a process runs: names, bytes, and lines of the generated texts, for
//                         `perf inject --jit`
//   FOLDER/perf-PID.map   names alone: "address bytes name", in hexadecimal; perf and others look for it in /tmp
// Names of kernels have the module and line that they come from. They, and lines, are known of packages that were compiled with --debug-info; of
// others the code is one entry.
#pragma once

#include "base/result.h"

namespace coil::runtime {

class Model;

// Adds the model's code, if somebody asks for it. Does nothing on a GPU. Errors: bad_option where the folder cannot be written to.
Status tell_perf(const Model& model);

}  // namespace coil::runtime
