// The matrix unit of AMX in plain C++, for device/kernels/amx.cc: what the instructions do according to Intel's manual, subnormal numbers
// aside. It also finds what the processor would fault on or what would give numbers of no meaning.
#pragma once

#include "device/kernels/vector.h"

#define COIL_EMULATED_TILES 1

namespace COIL_KERNELS_NAMESPACE {

inline int64_t emulated_products;  // of registers, by all threads: that the unit was asked at all

namespace {

struct Tiles {
  struct Register {
    uint8_t bytes[16][64];
  };
  struct State {
    bool configured = false;
    int rows[8], row_bytes[8];
    Register registers[8];
  };
  static State& state() {
    static thread_local State s;
    return s;
  }
  static void require(bool holds) {
    if (!holds) __builtin_trap();
  }
  static Register& used(int t) {
    require(state().configured);
    return state().registers[t];
  }

  static bool available() { return true; }

  static void configure(const void* shapes) {
    const uint8_t* from = static_cast<const uint8_t*>(shapes);
    require(from[0] == 1 && from[1] == 0);
    for (int i = 2; i < 16; i++) require(from[i] == 0);
    for (int t = 0; t < 16; t++) {
      uint16_t row_bytes;
      memcpy(&row_bytes, from + 16 + 2 * t, 2);
      require(t < 8 ? row_bytes > 0 && row_bytes <= 64 && from[48 + t] > 0 && from[48 + t] <= 16 : row_bytes == 0 && from[48 + t] == 0);
      if (t < 8) state().rows[t] = from[48 + t], state().row_bytes[t] = row_bytes;
    }
    memset(state().registers, 0, sizeof state().registers);
    state().configured = true;
  }
  static void release() {
    require(state().configured);
    state().configured = false;
    memset(state().registers, 0xA5, sizeof state().registers);
  }
  template <int t>
  static void zero() {
    memset(&used(t), 0, sizeof(Register));
  }
  template <int t>
  static void load(const void* from, int64_t stride) {
    zero<t>();
    for (int r = 0; r < state().rows[t]; r++) memcpy(used(t).bytes[r], static_cast<const char*>(from) + r * stride, static_cast<size_t>(state().row_bytes[t]));
  }
  template <int t>
  static void store(void* to, int64_t stride) {
    for (int r = 0; r < state().rows[t]; r++) memcpy(static_cast<char*>(to) + r * stride, used(t).bytes[r], static_cast<size_t>(state().row_bytes[t]));
  }
  // sum[m][n] += a[m][k] * b[k][n], where k counts the 4-byte groups of a's rows and `multiply` adds a group's products.
  template <int sum, int a, int b, class Sum, class Multiply>
  static void add_products(const Multiply& multiply) {
    State& s = state();
    require(s.configured && sum != a && a != b && sum != b);
    __atomic_fetch_add(&emulated_products, 1, __ATOMIC_RELAXED);
    require(s.rows[sum] == s.rows[a] && s.row_bytes[a] / 4 == s.rows[b] && s.row_bytes[sum] == s.row_bytes[b]);
    for (int m = 0; m < s.rows[sum]; m++) {
      for (int k = 0; k < s.rows[b]; k++) {
        for (int n = 0; n < s.row_bytes[sum] / 4; n++) {
          Sum total;
          memcpy(&total, s.registers[sum].bytes[m] + 4 * n, 4);
          multiply(total, s.registers[a].bytes[m] + 4 * k, s.registers[b].bytes[k] + 4 * n);
          memcpy(s.registers[sum].bytes[m] + 4 * n, &total, 4);
        }
      }
    }
  }
  template <int sum, int a, int b>
  static void dot() {
    add_products<sum, a, b, float>([](float& total, const uint8_t* x, const uint8_t* y) {
      for (int half = 0; half < 2; half++) total += number(x + 2 * half) * number(y + 2 * half);
    });
  }
  template <int sum, int a, int b>
  static void byte_dot() {
    add_products<sum, a, b, uint32_t>([](uint32_t& total, const uint8_t* x, const uint8_t* y) {
      for (int i = 0; i < 4; i++) total += static_cast<uint32_t>(x[i] * static_cast<int8_t>(y[i]));
    });
  }
  static float number(const uint8_t* bits) {
    uint16_t half;
    memcpy(&half, bits, 2);
    return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
  }
};

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE
