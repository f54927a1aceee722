// What a model's generated host source builds on: tables that describe its inputs, and one call that checks a call's inputs
// against them and solves the dynamic sizes. The code behind it is device/host_support.cc, input_errors.cc and machine_level.cc, compiled once with coil and
// linked into every package; this header only declares, so that it costs a compile next to nothing. Needs no other header.
//
// What the generator emits, for f(x: f32[batch, 3, 2*side, side], mask: bool[batch, 128], step: int) -> ...:
//
//   #include "host_support.h"
//   static const cd::Symbol kSymbols[] = {{"batch", 1, 64}, {"side", 2, 512}, {"step", 0, cd::kUnbounded}};
//   static const cd::Size kSizes[] = {cd::symbol(0), cd::fixed(3), cd::linear(1, 2, 0), cd::symbol(1),    // x
//                                     cd::symbol(0), cd::fixed(128)};                                     // mask
//   static const cd::Size kStrides[] = {cd::expr(0), cd::fixed(1), cd::linear(1, 3, 0), cd::fixed(3)};    // x: channels last
//   static const char* const kTexts[] = {"6*side**2", "side % 2 == 0"};                                   // in the user's
//   words static int64_t evaluate(int32_t i, const int64_t* s) {                                                // s: values of
//   kSymbols
//     switch (i) {
//       case 0: return 6 * s[1] * s[1];
//       case 1: return s[1] % 2 == 0;
//     }
//     return 0;
//   }
//   static const cd::Input kInputs[] = {{"x", COIL_FLOAT32, 4, kSizes + 0, kStrides + 0},
//                                       {"mask", COIL_BOOL, 2, kSizes + 4},                               // contiguous
//                                       {.name = "step", .dtype = COIL_INT64, .symbol = 2}};              // a symbolic int
//   static const cd::Signature kSignature = {kInputs, 3, kSymbols, 3, evaluate, kTexts, /*first_check=*/1, /*num_checks=*/1,
//                                           /*num_assertions=*/0};
//   static const CoilModel kModel = {..., cd::bind<kSignature>, ..., cd::find_fault<kSignature>, ...};
//
// The sizes are visited in order of inputs and dimensions. The first size that names a symbol solves it (a linear size must
// divide evenly) and checks its range; later ones are compared. Then expressions and strides, then the extra checks are
// evaluated: all symbols have their values by then. A symbol that no input solves keeps the value 0.
#ifndef COIL_DEVICE_HOST_SUPPORT_H_
#define COIL_DEVICE_HOST_SUPPORT_H_

#include "model_abi.h"
#include "trace.h"

namespace cd {

inline constexpr int64_t kUnbounded = INT64_MAX;

// A dynamic size in the user's word and its inclusive range.
struct Symbol {
  const char* name;
  int64_t min;
  int64_t max;  // kUnbounded: none
};

// An expected size or stride: a number, a * symbol + b, or evaluate(index). Make one with the four functions below.
struct Size {
  int64_t a;
  int64_t b;
  int32_t index;
  int32_t kind;  // 0 fixed (b), 1 linear, 2 expression
};
constexpr Size fixed(int64_t value) { return {0, value, 0, 0}; }
constexpr Size symbol(int32_t index) { return {1, 0, index, 1}; }
constexpr Size linear(int32_t index, int64_t a, int64_t b) { return {a, b, index, 1}; }  // a > 0
constexpr Size expr(int32_t index) { return {0, 0, index, 2}; }

struct Input {
  const char* name;
  int32_t dtype;
  int32_t ndim = 0;
  const Size* sizes = nullptr;
  const Size* strides = nullptr;  // null: contiguous. Strides of dimensions of size 1 and of empty tensors do not matter.
  int32_t symbol = -1;            // a symbolic int input, passed as a 0-d int64 tensor: the symbol that its value binds
  int32_t device_type = COIL_CPU;
  bool exact_strides = false;  // the program counts in its memory: a copy with the strides expected gives other results
};

// An amount that must stay below kMostAmount for the arithmetic of sizes to be right.
struct Limit {
  const char* what;     // "the scratch space"
  const char* formula;  // in the user's words
  double most = 0;      // not 0: what kernels for a device count by 32 bits, and must stay below instead
};
inline constexpr double kMostAmount = 4611686018427387904.0;  // 2^62
inline constexpr int64_t kMostElements = int64_t{1} << 48;    // of one dimension

struct Signature {
  const Input* inputs;
  int32_t num_inputs;
  const Symbol* symbols;
  int32_t num_symbols;
  int64_t (*evaluate)(int32_t index, const int64_t* symbols);  // may be null when there is no expression
  const char* const* texts;                                    // of the expressions, in the user's words
  int32_t first_check;                                         // evaluate(first_check + i) for i in [0, num_checks) must not be 0, e.g. "seq % 8 == 0"
  int32_t num_checks;
  int32_t num_assertions = 0;  // so many of the checks, the last ones, are assertions of the program: error 211, not 204
  const Limit* limits = nullptr;
  int32_t num_limits = 0;
  double (*measure)(int32_t index, const int64_t* symbols) = nullptr;  // limit `index`, in floating point: does not overflow
};

// Checks all inputs and fills symbols[0, num_symbols). Returns 0, or 1 with *error filled, and *fault unless it is null. About 10 ns an input.
int32_t bind_inputs(const Signature& signature, const CoilTensorView* inputs, int32_t count, int64_t* symbols, CoilError* error,
                    CoilInputFault* fault = nullptr);

// CoilModel::bind and find_fault of a program.
template <const Signature& signature>
int32_t bind(const CoilTensorView* inputs, int32_t count, int64_t* symbols, CoilError* error) {
  return bind_inputs(signature, inputs, count, symbols, error);
}
template <const Signature& signature>
int32_t find_fault(const CoilTensorView* inputs, int32_t count, int64_t* symbols, CoilInputFault* fault, CoilError* error) {
  return bind_inputs(signature, inputs, count, symbols, error, fault);
}

// Fills *error with a printf-like text and returns 1. `code` is a number of src/base/error_codes.def, e.g. 211 for an
// assertion.
__attribute__((format(printf, 3, 4))) int32_t fail(CoilError* error, int32_t code, const char* format, ...);

// Adds " (place)" to the text of an error, as far as there is room, and returns 1.
int32_t fail_at(CoilError* error, const char* place);

// Chooses the code to run: the last of levels[0, count) that this machine (and the variable COIL_ISA, which lowers the limit:
// "v3" or "x86-64-v3") allows. A level is its number in the machine's levels.h. Returns its index and names it in *isa_name ("x86-64-v4"), or -1
// with *error filled (COIL-E303). For CoilModel::select:
//   static int32_t chosen;
//   static int32_t select(const char** name, CoilError* error) { return (chosen = cd::select_isa(kLevels, 2, name, error)) < 0;
//   }
int32_t select_isa(const int32_t* levels, int32_t count, const char** isa_name, CoilError* error);

// The context of kernels that run image by image: host null: each worker computes its images alone, in `part_bytes` of the memory.
struct Images {
  const TracedCall* call;
  const long* s;
  const CoilHost* host;
  uint8_t* memory;
  int64_t part_bytes;
};

}  // namespace cd
#endif  // COIL_DEVICE_HOST_SUPPORT_H_
