// Checks a call's inputs against the tables of a model's generated host source; see host_support.h. No allocation, no C++
// library. The fast path decides only whether an input is right; what is wrong is found out and worded on the slow path.
#include "host_support.h"

extern "C" {
int snprintf(char* out, size_t size, const char* format, ...);
int vsnprintf(char* out, size_t size, const char* format, __builtin_va_list arguments);
char* getenv(const char* name);
int strcmp(const char* a, const char* b);
}

#define SLOW __attribute__((noinline, cold))

namespace cd {
namespace {

enum : int32_t {
  kInputCount = 201,
  kInputDtype = 202,
  kInputRank = 203,
  kInputSize = 204,
  kInputStride = 205,
  kInputDevice = 206,
  kInputNull = 207,
  kRuntimeAssert = 211,
  kOutOfMemory = 401,
  kWrongMachine = 303
};
enum : int32_t { kFixed = 0, kLinear = 1, kExpr = 2 };
constexpr int64_t kUnsolved = INT64_MIN;

// An error text under construction; what does not fit is cut.
struct Text {
  char* at;
  char* end;

  SLOW explicit Text(CoilError* error) : at(error->message), end(error->message + sizeof error->message) { *at = 0; }
  __attribute__((format(printf, 2, 3))) SLOW Text& add(const char* format, ...) {
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    const int n = vsnprintf(at, static_cast<size_t>(end - at), format, arguments);
    __builtin_va_end(arguments);
    if (n > 0) at += n < end - at ? n : end - at - 1;
    return *this;
  }
};

const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case COIL_UINT8:
      return "uint8";
    case COIL_INT8:
      return "int8";
    case COIL_INT16:
      return "int16";
    case COIL_INT32:
      return "int32";
    case COIL_INT64:
      return "int64";
    case COIL_FLOAT16:
      return "float16";
    case COIL_FLOAT32:
      return "float32";
    case COIL_FLOAT64:
      return "float64";
    case COIL_COMPLEX64:
      return "complex64";
    case COIL_COMPLEX128:
      return "complex128";
    case COIL_BOOL:
      return "bool";
    case COIL_BFLOAT16:
      return "bfloat16";
    case COIL_FLOAT8_E5M2:
      return "float8_e5m2";
    case COIL_FLOAT8_E4M3FN:
      return "float8_e4m3fn";
    case COIL_FLOAT8_E5M2FNUZ:
      return "float8_e5m2fnuz";
    case COIL_FLOAT8_E4M3FNUZ:
      return "float8_e4m3fnuz";
    case COIL_FLOAT8_E8M0FNU:
      return "float8_e8m0fnu";
  }
  return nullptr;
}

// Low bits that must be zero in an address of an element.
inline uintptr_t alignment_mask(int32_t dtype) {
  switch (dtype) {
    case COIL_INT16:
    case COIL_FLOAT16:
    case COIL_BFLOAT16:
      return 1;
    case COIL_INT32:
    case COIL_FLOAT32:
    case COIL_COMPLEX64:
      return 3;
    case COIL_INT64:
    case COIL_FLOAT64:
    case COIL_COMPLEX128:
      return 7;
  }
  return 0;
}

SLOW void add_dtype(Text& text, int32_t dtype) {
  if (const char* name = dtype_name(dtype))
    text.add("%s", name);
  else
    text.add("dtype number %d", dtype);
}

SLOW void add_size(Text& text, const Signature& s, const Size& size) {
  if (size.kind == kFixed) {
    text.add("%lld", static_cast<long long>(size.b));
  } else if (size.kind == kExpr) {
    text.add("%s", s.texts[size.index]);
  } else {
    if (size.a != 1) text.add("%lld*", static_cast<long long>(size.a));
    text.add("%s", s.symbols[size.index].name);
    if (size.b) text.add(" %c %lld", size.b < 0 ? '-' : '+', static_cast<long long>(size.b < 0 ? -size.b : size.b));
  }
}

SLOW void add_range(Text& text, const Symbol& symbol) {
  if (symbol.max == kUnbounded)
    text.add("%lld or more", static_cast<long long>(symbol.min));
  else
    text.add("%lld..%lld", static_cast<long long>(symbol.min), static_cast<long long>(symbol.max));
}

// "float32[batch, 3] with batch in 1..64"
SLOW void add_expected(Text& text, const Signature& s, const Input& input) {
  add_dtype(text, input.dtype);
  text.add("[");
  for (int32_t d = 0; d < input.ndim; d++) {
    if (d) text.add(", ");
    add_size(text, s, input.sizes[d]);
  }
  text.add("]");
  const char* separator = " with ";
  for (int32_t d = 0; d < input.ndim; d++) {
    if (input.sizes[d].kind != kLinear) continue;
    bool seen = false;
    for (int32_t e = 0; e < d; e++) seen |= input.sizes[e].kind == kLinear && input.sizes[e].index == input.sizes[d].index;
    if (seen) continue;
    const Symbol& symbol = s.symbols[input.sizes[d].index];
    text.add("%s%s in ", separator, symbol.name);
    add_range(text, symbol);
    separator = ", ";
  }
}

SLOW void add_list(Text& text, const int64_t* values, int32_t count) {
  text.add("[");
  for (int32_t d = 0; d < count; d++) text.add(d ? ", %lld" : "%lld", static_cast<long long>(values[d]));
  text.add("]");
}

SLOW void add_got(Text& text, const CoilTensorView& view) {
  add_dtype(text, view.dtype);
  if (view.ndim < 0 || view.ndim > COIL_MAX_RANK || (view.ndim > 0 && !view.sizes))
    text.add(" of rank %d", view.ndim);
  else
    add_list(text, view.sizes, view.ndim);
}

// "input 'x' (0): expected float32[batch, 3] with batch in 1..64, got float32[65, 3]: "
SLOW void add_head(Text& text, const Signature& s, int32_t i, const CoilTensorView& view) {
  text.add("input '%s' (%d): expected ", s.inputs[i].name, i);
  add_expected(text, s, s.inputs[i]);
  text.add(", got ");
  add_got(text, view);
  text.add(": ");
}

// Names the input and dimension that gave `symbol` its value: the first that could.
SLOW void add_source(Text& text, const Signature& s, int32_t symbol) {
  for (int32_t i = 0; i < s.num_inputs; i++) {
    const Input& input = s.inputs[i];
    if (input.symbol == symbol) {
      text.add("input '%s'", input.name);
      return;
    }
    for (int32_t d = 0; d < input.ndim; d++) {
      if (input.sizes[d].kind != kLinear || input.sizes[d].index != symbol) continue;
      text.add("dimension %d of input '%s'", d, input.name);
      return;
    }
  }
}

SLOW int32_t fail_count(const Signature& s, int32_t count, CoilError* error) {
  error->code = kInputCount;
  Text text(error);
  text.add("expected %d input%s", s.num_inputs, s.num_inputs == 1 ? "" : "s");
  for (int32_t i = 0; i < s.num_inputs && i < 16; i++) text.add("%s'%s'", i ? ", " : " (", s.inputs[i].name);
  if (s.num_inputs) text.add(s.num_inputs > 16 ? ", ...)" : ")");
  text.add(", got %d; pass one tensor for each, in this order", count);
  return 1;
}

SLOW int32_t fail_kind(const Signature& s, int32_t i, const CoilTensorView& view, CoilError* error) {
  const Input& input = s.inputs[i];
  Text text(error);
  add_head(text, s, i, view);
  if (view.dtype != input.dtype) {
    error->code = kInputDtype;
    text.add("convert it to ");
    add_dtype(text, input.dtype);
  } else if (view.ndim != input.ndim) {
    error->code = kInputRank;
    text.add("it has %d dimension%s instead of %d; reshape it", view.ndim, view.ndim == 1 ? "" : "s", input.ndim);
  } else if (view.device_type != input.device_type) {
    error->code = kInputDevice;
    if (view.device_type == COIL_CPU)
      text.add("it is on the CPU");
    else if (view.device_type == COIL_CUDA)
      text.add("it is on cuda:%d", view.device_index);
    else
      text.add("it is on device type %d", view.device_type);
    text.add(", the program takes it on %s; move it there", input.device_type == COIL_CPU ? "the CPU" : "its CUDA device");
  } else {
    error->code = kInputSize;
    text.add("the pointer to its sizes is null");
  }
  return 1;
}

// `value` is what the size `got` says about the symbol; `solved` its value so far, or kUnsolved.
SLOW int32_t fail_size(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t solved, CoilError* error) {
  const Size& size = s.inputs[i].sizes[d];
  const long long got = view.sizes[d];
  error->code = kInputSize;
  Text text(error);
  add_head(text, s, i, view);
  text.add("size %lld of dimension %d ", got, d);
  if (got < 0) {
    text.add("is negative");
  } else if (got > kMostElements && size.kind != kFixed) {
    text.add("is more than any memory holds");
  } else if (size.kind == kFixed) {
    text.add("must be %lld, which the export fixed", static_cast<long long>(size.b));
  } else if (solved != kUnsolved) {
    text.add("('");
    add_size(text, s, size);
    text.add("') must be %lld, because '%s' is %lld by ", static_cast<long long>(size.a * solved + size.b),
             s.symbols[size.index].name, static_cast<long long>(solved));
    add_source(text, s, size.index);
  } else if (got >= size.b && (got - size.b) % size.a) {
    text.add("is not of the form ");
    add_size(text, s, size);
  } else {
    text.add("('");
    add_size(text, s, size);
    text.add("') is outside ");
    const Symbol& symbol = s.symbols[size.index];
    Symbol range = {"", size.a * symbol.min + size.b, kUnbounded};
    if (symbol.max != kUnbounded) range.max = size.a * symbol.max + size.b;
    add_range(text, range);
    text.add("; export the program with a wider range of '%s' if you need it", symbol.name);
  }
  return 1;
}

SLOW int32_t fail_data(const Signature& s, int32_t i, const CoilTensorView& view, CoilError* error) {
  error->code = kInputNull;
  Text text(error);
  add_head(text, s, i, view);
  if (!view.data)
    text.add("its data pointer is null");
  else
    text.add("its data at %p is not aligned to its elements of %d bytes; copy it", view.data,
             static_cast<int>(alignment_mask(view.dtype) + 1));
  return 1;
}

SLOW int32_t fail_expression(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t want,
                             CoilError* error) {
  error->code = kInputSize;
  Text text(error);
  add_head(text, s, i, view);
  text.add("size %lld of dimension %d must be %s = %lld", static_cast<long long>(view.sizes[d]), d,
           s.texts[s.inputs[i].sizes[d].index], static_cast<long long>(want));
  return 1;
}

inline int64_t value_of(const Signature& s, const Size& size, const int64_t* symbols) {
  if (size.kind == kFixed) return size.b;
  if (size.kind == kLinear) return size.a * symbols[size.index] + size.b;
  return s.evaluate(size.index, symbols);
}

SLOW int32_t fail_strides(const Signature& s, int32_t i, const CoilTensorView& view, const int64_t* symbols, CoilError* error) {
  const Input& input = s.inputs[i];
  int64_t want[COIL_MAX_RANK];
  int64_t dense = 1;
  for (int32_t d = input.ndim - 1; d >= 0; d--) {
    want[d] = input.strides ? value_of(s, input.strides[d], symbols) : dense;
    dense *= view.sizes[d];
  }
  error->code = kInputStride;
  Text text(error);
  add_head(text, s, i, view);
  text.add("expected strides ");
  add_list(text, want, input.ndim);
  text.add(input.strides ? "" : " (contiguous)");
  text.add(", got ");
  if (view.strides)
    add_list(text, view.strides, view.ndim);
  else
    text.add("contiguous ones");
  if (input.exact_strides)
    text.add("; the program counts in this input's memory (as_strided), so a copy would give other results: export with an input laid out like this one");
  else
    text.add(input.strides ? "; copy it into a tensor with these strides, or export with an input laid out like this one"
                           : "; make it contiguous");
  return 1;
}

SLOW int32_t fail_scalar(const Signature& s, int32_t i, int64_t value, int64_t solved, CoilError* error) {
  const Symbol& symbol = s.symbols[s.inputs[i].symbol];
  error->code = 210;
  Text text(error);
  text.add("input '%s' (%d): ", s.inputs[i].name, i);
  if (solved != kUnsolved) {
    text.add("must be %lld, because '%s' is set by ", static_cast<long long>(solved), symbol.name);
    add_source(text, s, s.inputs[i].symbol);
    text.add("; got %lld", static_cast<long long>(value));
  } else {
    text.add("value %lld is outside ", static_cast<long long>(value));
    add_range(text, symbol);
    text.add("; export the program with a wider range if you need it");
  }
  return 1;
}

// " (here batch is 4, seq is 7)"
SLOW void add_values(Text& text, const Signature& s, const int64_t* symbols) {
  for (int32_t i = 0; i < s.num_symbols && i < 16; i++) {
    text.add("%s%s is %lld", i ? ", " : " (here ", s.symbols[i].name, static_cast<long long>(symbols[i]));
  }
  if (s.num_symbols) text.add(s.num_symbols > 16 ? ", ...)" : ")");
}

SLOW int32_t fail_check(const Signature& s, int32_t check, const int64_t* symbols, CoilError* error) {
  const bool asserted = check >= s.first_check + s.num_checks - s.num_assertions;
  error->code = asserted ? kRuntimeAssert : kInputSize;
  Text text(error);
  if (asserted)
    text.add("assertion failed: %s", s.texts[check]);
  else
    text.add("the sizes of the inputs must satisfy %s, which the export assumed", s.texts[check]);
  add_values(text, s, symbols);
  return 1;
}

SLOW int32_t fail_limit(const Signature& s, int32_t i, const int64_t* symbols, CoilError* error) {
  error->code = kOutOfMemory;
  Text text(error);
  text.add("%s would have %.3g bytes or elements, more than any memory, by the formula %s", s.limits[i].what,
           s.measure(i, symbols), s.limits[i].formula);
  add_values(text, s, symbols);
  return 1;
}

// What does not depend on symbols other than those solved on the way.
inline int32_t check_sizes(const Signature& s, int32_t i, const CoilTensorView& view, int64_t* symbols, bool* empty,
                           CoilError* error) {
  const Input& input = s.inputs[i];
  for (int32_t d = 0; d < input.ndim; d++) {
    const Size& size = input.sizes[d];
    const int64_t got = view.sizes[d];
    *empty |= got == 0;
    if (size.kind == kFixed) {
      if (got != size.b) return fail_size(s, i, d, view, kUnsolved, error);
    } else if (size.kind == kLinear) {
      int64_t& solved = symbols[size.index];
      if (solved != kUnsolved) {
        if (got != size.a * solved + size.b) return fail_size(s, i, d, view, solved, error);
        continue;
      }
      if (got < 0 || got > kMostElements) return fail_size(s, i, d, view, kUnsolved, error);
      int64_t value = got - size.b;
      if (size.a != 1) {
        if (value < 0 || value % size.a) return fail_size(s, i, d, view, kUnsolved, error);
        value /= size.a;
      }
      const Symbol& symbol = s.symbols[size.index];
      if (value < symbol.min || value > symbol.max) return fail_size(s, i, d, view, kUnsolved, error);
      solved = value;
    } else if (got < 0 || got > kMostElements) {
      return fail_size(s, i, d, view, kUnsolved, error);
    }
  }
  return 0;
}

inline bool is_contiguous(const CoilTensorView& view) {
  if (!view.strides) return true;
  int64_t dense = 1;
  for (int32_t d = view.ndim - 1; d >= 0; d--) {
    if (view.sizes[d] == 1) continue;
    if (view.strides[d] != dense) return false;
    dense *= view.sizes[d];
  }
  return true;
}

// Expected strides and size expressions, once every symbol is solved.
int32_t check_late(const Signature& s, const CoilTensorView* views, const int64_t* symbols, CoilError* error) {
  for (int32_t i = 0; i < s.num_inputs; i++) {
    const Input& input = s.inputs[i];
    const CoilTensorView& view = views[i];
    bool empty = false;
    for (int32_t d = 0; d < input.ndim; d++) {
      empty |= view.sizes[d] == 0;
      if (input.sizes[d].kind != kExpr) continue;
      const int64_t want = s.evaluate(input.sizes[d].index, symbols);
      if (view.sizes[d] != want) return fail_expression(s, i, d, view, want, error);
    }
    if (!input.strides || empty) continue;
    if (!view.strides && input.ndim) {
      // A host that means contiguous by null strides.
      int64_t dense = 1;
      for (int32_t d = input.ndim - 1; d >= 0; d--) {
        if (view.sizes[d] != 1 && value_of(s, input.strides[d], symbols) != dense)
          return fail_strides(s, i, view, symbols, error);
        dense *= view.sizes[d];
      }
      continue;
    }
    for (int32_t d = 0; d < input.ndim; d++) {
      if (view.sizes[d] != 1 && view.strides[d] != value_of(s, input.strides[d], symbols))
        return fail_strides(s, i, view, symbols, error);
    }
  }
  for (int32_t i = 0; i < s.num_checks; i++) {
    if (!s.evaluate(s.first_check + i, symbols)) return fail_check(s, s.first_check + i, symbols, error);
  }
  return 0;
}

int32_t bind_scalar(const Signature& s, int32_t i, const CoilTensorView& view, int64_t* symbols, CoilError* error) {
  const int32_t index = s.inputs[i].symbol;
  const int64_t value = *static_cast<const int64_t*>(view.data);
  if (symbols[index] != kUnsolved) return symbols[index] == value ? 0 : fail_scalar(s, i, value, symbols[index], error);
  if (value < s.symbols[index].min || value > s.symbols[index].max) return fail_scalar(s, i, value, kUnsolved, error);
  symbols[index] = value;
  return 0;
}

}  // namespace

int32_t bind_inputs(const Signature& s, const CoilTensorView* views, int32_t count, int64_t* symbols, CoilError* error) {
  if (count != s.num_inputs) return fail_count(s, count, error);
  for (int32_t i = 0; i < s.num_symbols; i++) symbols[i] = kUnsolved;
  bool late = s.num_checks > 0;
  for (int32_t i = 0; i < count; i++) {
    const Input& input = s.inputs[i];
    const CoilTensorView& view = views[i];
    if (view.dtype != input.dtype || view.ndim != input.ndim || view.device_type != input.device_type ||
        (input.ndim && !view.sizes))
      return fail_kind(s, i, view, error);
    bool empty = false;
    if (int32_t failed = check_sizes(s, i, view, symbols, &empty, error)) return failed;
    for (int32_t d = 0; d < input.ndim; d++) late |= input.sizes[d].kind == kExpr;
    if (empty) continue;
    if (!view.data || (reinterpret_cast<uintptr_t>(view.data) & alignment_mask(input.dtype)))
      return fail_data(s, i, view, error);
    if (input.symbol >= 0) {
      if (int32_t failed = bind_scalar(s, i, view, symbols, error)) return failed;
    } else if (input.strides) {
      late = true;
    } else if (!is_contiguous(view)) {
      return fail_strides(s, i, view, symbols, error);
    }
  }
  for (int32_t i = 0; i < s.num_symbols; i++) {
    if (symbols[i] == kUnsolved) symbols[i] = 0;
  }
  for (int32_t i = 0; i < s.num_limits; i++) {
    if (!(s.measure(i, symbols) < kMostAmount)) return fail_limit(s, i, symbols, error);
  }
  return late ? check_late(s, views, symbols, error) : 0;
}

int32_t fail(CoilError* error, int32_t code, const char* format, ...) {
  error->code = code;
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  __builtin_va_end(arguments);
  return 1;
}

// ---- The machine ------------------------------------------------------------------------------------------------------------

namespace {

constexpr char kIsaNames[][10] = {"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};  // "v2" is name + 7

#if defined(__x86_64__)
void cpuid(uint32_t leaf, uint32_t sub_leaf, uint32_t (&r)[4]) {
  __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(sub_leaf));
}

template <size_t N>
constexpr uint32_t bits(const int (&list)[N]) {
  uint32_t mask = 0;
  for (int bit : list) mask |= 1u << bit;
  return mask;
}
constexpr bool all(uint32_t value, uint32_t mask) { return (value & mask) == mask; }

// The N of x86-64-vN: what the processor has and the system saves on a context switch.
int32_t machine_level() {
  uint32_t r[4];
  cpuid(0, 0, r);
  if (r[0] < 7) return 1;
  uint32_t basic[4], extended[4], more[4];
  cpuid(1, 0, basic);
  cpuid(7, 0, extended);
  cpuid(0x80000001u, 0, more);
  const uint32_t osxsave = bits({27});
  if (!all(basic[2], bits({0, 9, 13, 19, 20, 23}))) return 1;      // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  if (!all(basic[2], osxsave | bits({12, 22, 28, 29}))) return 2;  // FMA, MOVBE, AVX, F16C
  if (!all(extended[1], bits({3, 5, 8})) || !all(more[2], bits({5}))) return 2;  // BMI1, AVX2, BMI2; LZCNT
  uint32_t saved, high;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!all(saved, bits({1, 2}))) return 2;                      // xmm, ymm
  if (!all(extended[1], bits({16, 17, 28, 30, 31}))) return 3;  // AVX512 F, DQ, CD, BW, VL
  return all(saved, bits({5, 6, 7})) ? 4 : 3;                   // masks, zmm
}
#else
int32_t machine_level() { return 0; }
#endif

}  // namespace

int32_t select_isa(const int32_t* levels, int32_t count, const char** isa_name, CoilError* error) {
  int32_t limit = machine_level();
  const char* wish = getenv("COIL_ISA");
  if (wish && *wish) {
    int32_t level = 4;
    while (level > 0 && strcmp(wish, kIsaNames[level]) != 0 && strcmp(wish, kIsaNames[level] + 7) != 0) level--;
    if (!level) return fail(error, 402, "COIL_ISA=%s is not one of v2, v3, v4 or x86-64-v2, ...", wish), -1;
    if (level < limit) limit = level;
  }
  int32_t best = -1;
  for (int32_t i = 0; i < count; i++) {
    if (levels[i] <= limit && (best < 0 || levels[i] >= levels[best])) best = i;
  }
  if (best >= 0) {
    *isa_name = kIsaNames[levels[best]];
    return best;
  }
  error->code = kWrongMachine;
  Text text(error);
  text.add("the package holds code for");
  for (int32_t i = 0; i < count; i++) text.add("%s %s", i ? "," : "", kIsaNames[levels[i]]);
  text.add("; this machine runs %s%s; compile for it with --target", limit ? kIsaNames[limit] : "another architecture",
           wish && *wish ? " (limited by COIL_ISA)" : "");
  return -1;
}

}  // namespace cd
