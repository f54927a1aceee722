// Checks a call's inputs against the tables of a model's generated host source; see host_support.h. No allocation, no C++
// library. The fast path decides only whether an input is right; what is wrong is found out and worded on the slow path.
#include "input_errors.h"

namespace cd {
namespace {

// What does not depend on symbols other than those solved on the way.
inline int32_t check_sizes(const Signature& s, int32_t i, const CoilTensorView& view, int64_t* symbols, bool* empty, const Report& to) {
  const Input& input = s.inputs[i];
  for (int32_t d = 0; d < input.ndim; d++) {
    const Size& size = input.sizes[d];
    const int64_t got = view.sizes[d];
    *empty |= got == 0;
    if (size.kind == kFixed) {
      if (got != size.b) return fail_size(s, i, d, view, kUnsolved, to);
    } else if (size.kind == kLinear) {
      int64_t& solved = symbols[size.index];
      if (solved != kUnsolved) {
        if (got != size.a * solved + size.b) return fail_size(s, i, d, view, solved, to);
        continue;
      }
      if (got < 0 || got > kMostElements) return fail_size(s, i, d, view, kUnsolved, to);
      int64_t value = got - size.b;
      if (size.a != 1) {
        if (value < 0 || value % size.a) return fail_size(s, i, d, view, kUnsolved, to);
        value /= size.a;
      }
      const Symbol& symbol = s.symbols[size.index];
      if (value < symbol.min || value > symbol.max) return fail_size(s, i, d, view, kUnsolved, to);
      solved = value;
    } else if (got < 0 || got > kMostElements) {
      return fail_size(s, i, d, view, kUnsolved, to);
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
int32_t check_late(const Signature& s, const CoilTensorView* views, const int64_t* symbols, const Report& to) {
  for (int32_t i = 0; i < s.num_inputs; i++) {
    const Input& input = s.inputs[i];
    const CoilTensorView& view = views[i];
    bool empty = false;
    for (int32_t d = 0; d < input.ndim; d++) {
      empty |= view.sizes[d] == 0;
      if (input.sizes[d].kind != kExpr) continue;
      const int64_t want = s.evaluate(input.sizes[d].index, symbols);
      if (view.sizes[d] != want) return fail_expression(s, i, d, view, want, to);
    }
    if (!input.strides || empty) continue;
    if (!view.strides && input.ndim) {
      // A host that means contiguous by null strides.
      int64_t dense = 1;
      for (int32_t d = input.ndim - 1; d >= 0; d--) {
        if (view.sizes[d] != 1 && value_of(s, input.strides[d], symbols) != dense) return fail_strides(s, i, view, symbols, to);
        dense *= view.sizes[d];
      }
      continue;
    }
    for (int32_t d = 0; d < input.ndim; d++) {
      if (view.sizes[d] != 1 && view.strides[d] != value_of(s, input.strides[d], symbols)) return fail_strides(s, i, view, symbols, to);
    }
  }
  for (int32_t i = 0; i < s.num_checks; i++) {
    if (!s.evaluate(s.first_check + i, symbols)) return fail_check(s, s.first_check + i, symbols, to);
  }
  return 0;
}

int32_t bind_scalar(const Signature& s, int32_t i, const CoilTensorView& view, int64_t* symbols, const Report& to) {
  const int32_t index = s.inputs[i].symbol;
  const int64_t value = *static_cast<const int64_t*>(view.data);
  if (symbols[index] != kUnsolved) return symbols[index] == value ? 0 : fail_scalar(s, i, value, symbols[index], to);
  if (value < s.symbols[index].min || value > s.symbols[index].max) return fail_scalar(s, i, value, kUnsolved, to);
  symbols[index] = value;
  return 0;
}

}  // namespace

int32_t bind_inputs(const Signature& s, const CoilTensorView* views, int32_t count, int64_t* symbols, CoilError* error, CoilInputFault* fault) {
  const Report to = {error, fault};
  if (count != s.num_inputs) return fail_count(s, count, to);
  for (int32_t i = 0; i < s.num_symbols; i++) symbols[i] = kUnsolved;
  bool late = s.num_checks > 0;
  for (int32_t i = 0; i < count; i++) {
    const Input& input = s.inputs[i];
    const CoilTensorView& view = views[i];
    if (view.dtype != input.dtype || view.ndim != input.ndim || view.device_type != input.device_type || (input.ndim && !view.sizes))
      return fail_kind(s, i, view, to);
    bool empty = false;
    if (int32_t failed = check_sizes(s, i, view, symbols, &empty, to)) return failed;
    for (int32_t d = 0; d < input.ndim; d++) late |= input.sizes[d].kind == kExpr;
    if (empty) continue;
    if (!view.data || (reinterpret_cast<uintptr_t>(view.data) & alignment_mask(input.dtype))) return fail_data(s, i, view, to);
    if (input.symbol >= 0) {
      if (int32_t failed = bind_scalar(s, i, view, symbols, to)) return failed;
    } else if (input.strides) {
      late = true;
    } else if (!is_contiguous(view)) {
      return fail_strides(s, i, view, symbols, to);
    }
  }
  for (int32_t i = 0; i < s.num_symbols; i++) {
    if (symbols[i] == kUnsolved) symbols[i] = 0;
  }
  for (int32_t i = 0; i < s.num_limits; i++) {
    const double most = s.limits[i].most;
    if (!(s.measure(i, symbols) < (most > 0 ? most : kMostAmount))) return fail_limit(s, i, symbols, to);
  }
  return late ? check_late(s, views, symbols, to) : 0;
}

int32_t fail(CoilError* error, int32_t code, const char* format, ...) {
  error->code = code;
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  __builtin_va_end(arguments);
  return 1;
}

int32_t fail_at(CoilError* error, const char* place) {
  size_t at = 0;
  const auto add = [&](const char* text) {
    for (; *text && at + 1 < sizeof error->message; text++) error->message[at++] = *text;
  };
  while (at + 1 < sizeof error->message && error->message[at]) at++;
  if (*place) add(" ("), add(place), add(")");
  error->message[at] = 0;
  return 1;
}

}  // namespace cd
