// The functions of device/ (of the CPU, or of CUDA through tests/cuda_emulation) against the rows of scalar_ops.def: a row without a
// function does not compile. Included after the header that has namespace cd.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>
#include <vector>

#include "expr/scalar_rows.h"

// Rows that are no functions: emitters write them out. A call of one of these does not compile.
namespace cd {
struct NoFunction;
void masked(NoFunction), checked_index(NoFunction), iadd(NoFunction), imul(NoFunction), idiv(NoFunction), imod(NoFunction), imin(NoFunction), imax(NoFunction);
}  // namespace cd

namespace coil::device_test {

template <class T>
std::vector<T> row_values() {
  if constexpr (std::is_floating_point_v<T>) {
    const T inf = std::numeric_limits<T>::infinity();
    return {T(0),
            T(-0.0),
            T(0.5),
            T(-0.5),
            T(1),
            T(-1),
            T(1.5),
            T(2.5),
            T(-2.5),
            T(0.1),
            T(3.7),
            T(-7.5),
            T(20),
            T(-90),
            T(1e-20),
            T(1e20),
            inf,
            -inf,
            std::numeric_limits<T>::quiet_NaN()};
  } else {
    const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
    return {T(0), T(1), T(2), T(3), T(7), T(31), T(100), most, T(most - 1), least, T(least + 1), T(-1), T(-2), T(-7), T(-100)};
  }
}

// What a row says of a, b and c, as the type that its function gives.
template <class Row, class T>
auto row_value(T a, T b, T c) {
  constexpr bool boolean = info(Row::kOp).result == ResultRule::boolean;
  if constexpr (!std::is_floating_point_v<T>) {
    const int64_t v = Row::of_integers(a, b, c, 8 * sizeof(T), false);
    return static_cast<std::conditional_t<boolean, bool, T>>(v);
  } else if constexpr (Row::kRounded == scalar::Rounded::each) {
    return Row::of_floats(a, b, c);
  } else if constexpr (boolean) {
    return Row::of_floats(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)) != 0;
  } else {
    return static_cast<T>(Row::of_floats(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
  }
}

// Mathematics within the 8 units in the last place that reference/number.cc allows; all else exactly. Which of two zeros is the larger
// one is left open.
template <class Row, class T>
bool row_agrees(T got, T want) {
  if constexpr (!std::is_floating_point_v<T>) {
    return got == want;
  } else {
    if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
    if (got == want) return got != 0 || std::signbit(got) == std::signbit(want) || Row::kError == "larger" || Row::kHeader != "core";
    if (Row::kHeader == "core" && Row::kError != "pole") return false;
    const T tiny = std::numeric_limits<T>::min();
    return std::isfinite(got) && std::isfinite(want) && std::fabs(got - want) <= 8 * std::numeric_limits<T>::epsilon() * std::fabs(want) + tiny;
  }
}

// Calls check(row, function) for every row that is a function of T's; function(a, b, c) calls it with as many operands as it has.
template <class T, class F>
void for_each_function(F check) {
  const auto one = [&]<class Row>(Row row, auto unary, auto binary, auto ternary) {
    constexpr bool has = std::is_floating_point_v<T> ? Row::kForFloats : Row::kForIntegers;
    if constexpr (has && !is_index_op(Row::kOp)) {
      check(row, [=](auto a, [[maybe_unused]] auto b, [[maybe_unused]] auto c) {
        if constexpr (info(Row::kOp).arity == 1) return unary(a);
        else if constexpr (info(Row::kOp).arity == 2) return binary(a, b);
        else return ternary(a, b, c);
      });
    }
  };
#define OP(name, ...)                                                                                                   \
  one(                                                                                                                  \
      scalar::Row<ScalarOp::name>{}, [](auto a) { return cd::name(a); }, [](auto a, auto b) { return cd::name(a, b); }, \
      [](auto a, auto b, auto c) { return cd::name(a, b, c); });
#include "ops/scalar_ops.def"
#undef OP
}

// Every combination of values; the number of results that a row does not say, each printed.
template <class T>
int wrong_scalars(const char* type) {
  const std::vector<T> values = row_values<T>();
  int wrong = 0;
  for_each_function<T>([&](auto row, auto function) {
    using Row = decltype(row);
    constexpr int arity = info(Row::kOp).arity;
    for (const T a : values) {
      for (size_t j = 0; j < (arity > 1 ? values.size() : 1); ++j) {
        for (size_t k = 0; k < (arity > 2 ? values.size() : 1); ++k) {
          const T b = values[j], c = values[k];
          const auto want = row_value<Row>(a, b, c);
          const auto got = static_cast<std::remove_const_t<decltype(want)>>(function(a, b, c));
          if (row_agrees<Row>(got, want) || ++wrong > 50) continue;
          std::printf("%.*s of %s: (%.9g, %.9g, %.9g) gives %.17g, the row says %.17g\n", static_cast<int>(info(Row::kOp).name.size()),
                      info(Row::kOp).name.data(), type, static_cast<double>(a), static_cast<double>(b), static_cast<double>(c), static_cast<double>(got),
                      static_cast<double>(want));
        }
      }
    }
  });
  return wrong;
}

}  // namespace coil::device_test
