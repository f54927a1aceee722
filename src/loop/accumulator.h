// How interpreters write what they computed to memory, and reductions in progress.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "loop/block_eval.h"
#include "loop/log_sum.h"
#include "ops/memory.h"

namespace coil::interpreter {

// Writes a block at element `at` of dense memory.
inline void write_block(DType dtype, uint8_t* memory, int64_t at, const BlockView& block, int64_t from, int64_t n) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < n; ++i) {
      const T v = block.floats ? interpreter::to_memory<T>(block.floats[from + i]) : interpreter::to_memory<T>(block.integers[from + i]);
      std::memcpy(memory + (at + i) * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
    }
  });
}

// A reduction in progress.
struct Accumulator {
  ReduceOp op;
  bool floating;
  DType type;
  double f = 0;
  int64_t i = 0, position = 0, seen = 0;

  void start() {
    position = seen = 0;
    const double inf = std::numeric_limits<double>::infinity();
    f = op == ReduceOp::prod ? 1 : op == ReduceOp::max || op == ReduceOp::log_sum ? -inf : op == ReduceOp::min ? inf : 0;
    i = op == ReduceOp::prod || op == ReduceOp::all ? 1 : 0;
    if (op == ReduceOp::max) i = type == DType::u8 ? 0 : INT64_MIN >> (64 - 8 * byte_size(type));
    if (op == ReduceOp::min) i = type == DType::u8 ? 255 : INT64_MAX >> (64 - 8 * byte_size(type));
    if (is_bool(type)) i = op == ReduceOp::min || op == ReduceOp::all || op == ReduceOp::prod;
  }

  void add(double x) {
    switch (op) {
      case ReduceOp::sum: f += x; break;
      case ReduceOp::prod: f *= x; break;
      case ReduceOp::max: f = std::isnan(f) || f > x ? f : x; break;
      case ReduceOp::min: f = std::isnan(f) || f < x ? f : x; break;
      case ReduceOp::log_sum: f = log_sum(f, x); break;
      case ReduceOp::any: i = i || x != 0; break;
      case ReduceOp::all: i = i && x != 0; break;
      case ReduceOp::argmax:
      case ReduceOp::argmin: {
        const bool better = op == ReduceOp::argmax ? x > f : x < f;
        if (seen == 0 || (!std::isnan(f) && (better || std::isnan(x)))) {
          f = x;
          position = seen;
        }
        break;
      }
    }
    ++seen;
  }

  void add(int64_t x) {
    switch (op) {
      case ReduceOp::sum: i = static_cast<int64_t>(static_cast<uint64_t>(i) + static_cast<uint64_t>(x)); break;
      case ReduceOp::prod: i = static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(x)); break;
      case ReduceOp::max: i = std::max(i, x); break;
      case ReduceOp::min: i = std::min(i, x); break;
      case ReduceOp::log_sum: break;  // of floats alone
      case ReduceOp::any: i = i || x; break;
      case ReduceOp::all: i = i && x; break;
      case ReduceOp::argmax:
      case ReduceOp::argmin:
        if (seen == 0 || (op == ReduceOp::argmax ? x > i : x < i)) {
          i = x;
          position = seen;
        }
        break;
    }
    ++seen;
  }

  void write(DType dtype, uint8_t* memory, int64_t at) const {
    const bool place = op == ReduceOp::argmax || op == ReduceOp::argmin;
    const bool logic = op == ReduceOp::any || op == ReduceOp::all;
    const double fv = f;
    const int64_t iv = place ? position : i;
    BlockView one;
    if (floating && !place && !logic) one.floats = &fv;
    else one.integers = &iv;
    write_block(dtype, memory, at, one, 0, 1);
  }
};

}  // namespace coil::interpreter
