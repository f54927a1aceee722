// See input_errors.h.
#include "input_errors.h"

#include "dtype_names.h"

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
  kInputValue = 210,
  kRuntimeAssert = 211,
  kOutOfMemory = 401
};

// Notes the code, and which input is at fault; -1: none in particular.
SLOW CoilError* note(const Report& to, int32_t code, int32_t input) {
  to.error->code = code;
  if (to.fault) to.fault->input = input, to.fault->ndim = 0;
  return to.error;
}

SLOW void add_dtype(Text& text, int32_t dtype) {
  if (const char* name = dtype_name(dtype)) text.add("%s", name);
  else text.add("dtype number %d", dtype);
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
  if (symbol.max == kUnbounded) text.add("%lld or more", static_cast<long long>(symbol.min));
  else text.add("%lld..%lld", static_cast<long long>(symbol.min), static_cast<long long>(symbol.max));
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
  if (view.ndim < 0 || view.ndim > COIL_MAX_RANK || (view.ndim > 0 && !view.sizes)) text.add(" of rank %d", view.ndim);
  else add_list(text, view.sizes, view.ndim);
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

// " (here batch is 4, seq is 7)"
SLOW void add_values(Text& text, const Signature& s, const int64_t* symbols) {
  for (int32_t i = 0; i < s.num_symbols && i < 16; i++) {
    text.add("%s%s is %lld", i ? ", " : " (here ", s.symbols[i].name, static_cast<long long>(symbols[i]));
  }
  if (s.num_symbols) text.add(s.num_symbols > 16 ? ", ...)" : ")");
}

}  // namespace

int32_t fail_count(const Signature& s, int32_t count, const Report& to) {
  Text text(note(to, kInputCount, -1));
  text.add("expected %d input%s", s.num_inputs, s.num_inputs == 1 ? "" : "s");
  for (int32_t i = 0; i < s.num_inputs && i < 16; i++) text.add("%s'%s'", i ? ", " : " (", s.inputs[i].name);
  if (s.num_inputs) text.add(s.num_inputs > 16 ? ", ...)" : ")");
  text.add(", got %d; pass one tensor for each, in this order", count);
  return 1;
}

int32_t fail_kind(const Signature& s, int32_t i, const CoilTensorView& view, const Report& to) {
  const Input& input = s.inputs[i];
  Text text(note(to, kInputSize, i));
  add_head(text, s, i, view);
  if (view.dtype != input.dtype) {
    to.error->code = kInputDtype;
    text.add("convert it to ");
    add_dtype(text, input.dtype);
  } else if (view.ndim != input.ndim) {
    to.error->code = kInputRank;
    text.add("it has %d dimension%s instead of %d; reshape it", view.ndim, view.ndim == 1 ? "" : "s", input.ndim);
  } else if (view.device_type != input.device_type) {
    to.error->code = kInputDevice;
    if (view.device_type == COIL_CPU) text.add("it is on the CPU");
    else if (view.device_type == COIL_CUDA) text.add("it is on cuda:%d", view.device_index);
    else text.add("it is on device type %d", view.device_type);
    text.add(", the program takes it on %s; move it there", input.device_type == COIL_CPU ? "the CPU" : "its CUDA device");
  } else {
    text.add("the pointer to its sizes is null");
  }
  return 1;
}

// `value` is what the size `got` says about the symbol; `solved` its value so far, or kUnsolved.
int32_t fail_size(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t solved, const Report& to) {
  const Size& size = s.inputs[i].sizes[d];
  const long long got = view.sizes[d];
  Text text(note(to, kInputSize, i));
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
    text.add("') must be %lld, because '%s' is %lld by ", static_cast<long long>(size.a * solved + size.b), s.symbols[size.index].name,
             static_cast<long long>(solved));
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

int32_t fail_data(const Signature& s, int32_t i, const CoilTensorView& view, const Report& to) {
  Text text(note(to, kInputNull, i));
  add_head(text, s, i, view);
  if (!view.data) text.add("its data pointer is null");
  else text.add("its data at %p is not aligned to its elements of %d bytes; copy it", view.data, static_cast<int>(alignment_mask(view.dtype) + 1));
  return 1;
}

int32_t fail_expression(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t want, const Report& to) {
  Text text(note(to, kInputSize, i));
  add_head(text, s, i, view);
  text.add("size %lld of dimension %d must be %s = %lld", static_cast<long long>(view.sizes[d]), d, s.texts[s.inputs[i].sizes[d].index],
           static_cast<long long>(want));
  return 1;
}

int32_t fail_strides(const Signature& s, int32_t i, const CoilTensorView& view, const int64_t* symbols, const Report& to) {
  const Input& input = s.inputs[i];
  int64_t own[COIL_MAX_RANK], *want = to.fault ? to.fault->strides : own;
  int64_t dense = 1;
  for (int32_t d = input.ndim - 1; d >= 0; d--) {
    want[d] = input.strides ? value_of(s, input.strides[d], symbols) : dense;
    dense *= view.sizes[d];
  }
  Text text(note(to, kInputStride, i));
  if (to.fault) to.fault->ndim = input.ndim;
  add_head(text, s, i, view);
  text.add("expected strides ");
  add_list(text, want, input.ndim);
  text.add(input.strides ? "" : " (contiguous)");
  text.add(", got ");
  if (view.strides) add_list(text, view.strides, view.ndim);
  else text.add("contiguous ones");
  if (input.exact_strides)
    text.add("; the program counts in this input's memory (as_strided), so a copy would give other results: export with an input laid out like this one");
  else text.add(input.strides ? "; copy it into a tensor with these strides, or export with an input laid out like this one" : "; make it contiguous");
  return 1;
}

int32_t fail_scalar(const Signature& s, int32_t i, int64_t value, int64_t solved, const Report& to) {
  const Symbol& symbol = s.symbols[s.inputs[i].symbol];
  Text text(note(to, kInputValue, i));
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

int32_t fail_check(const Signature& s, int32_t check, const int64_t* symbols, const Report& to) {
  const bool asserted = check >= s.first_check + s.num_checks - s.num_assertions;
  Text text(note(to, asserted ? kRuntimeAssert : kInputSize, -1));
  if (asserted) text.add("assertion failed: %s", s.texts[check]);
  else text.add("the sizes of the inputs must satisfy %s, which the export assumed", s.texts[check]);
  add_values(text, s, symbols);
  return 1;
}

int32_t fail_limit(const Signature& s, int32_t i, const int64_t* symbols, const Report& to) {
  const double most = s.limits[i].most;
  Text text(note(to, most > 0 ? kInputSize : kOutOfMemory, -1));
  if (most > 0)
    text.add("%s are %.10g, of which kernels for CUDA take fewer than %.10g, by the formula %s", s.limits[i].what, s.measure(i, symbols), most,
             s.limits[i].formula);
  else text.add("%s would have %.3g bytes or elements, more than any memory, by the formula %s", s.limits[i].what, s.measure(i, symbols), s.limits[i].formula);
  add_values(text, s, symbols);
  return 1;
}

}  // namespace cd
