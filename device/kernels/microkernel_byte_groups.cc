// byte_group_tile. Four k of a column lie in a lane, as in microkernel_bytes.cc. The weights are the unsigned factor, so that what makes them so (8 of a
// 4-bit number, 128 of a byte) is taken away by the sum of a row's numbers, one for a whole group.
#include "byte_groups.h"
#include "bytes.h"
#include "fetch.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

COIL_INLINE VecI32 evens(VecI32 four) { return __builtin_bit_cast(VecI32, (__builtin_bit_cast(Shorts, four) << 8) >> 8); }
COIL_INLINE VecI32 odds(VecI32 four) { return __builtin_bit_cast(VecI32, __builtin_bit_cast(Shorts, four) >> 8); }

template <int mr>
COIL_INLINE VecI32 four_of(const int8_t* a, int64_t stride, int i, int64_t step) {
  return VecI32(load_raw<int32_t>(a + i * stride + step * 4));
}

// How the numbers of 4 and of 8 bits lie: kStep bytes are four k of a panel; vector j of part h begins at column(h, j).
struct FourBits {
  static constexpr int64_t kStep = COIL_PANEL * 2;
  static constexpr int column(int h, int j) { return h * kLanes + j * (COIL_PANEL / 2); }
  static COIL_INLINE_MEMBER void load_unsigned(const GroupChunk&, const uint8_t* b, int h, VecI32 (&w)[2]) {
    const VecI32 v = load_raw<VecI32>(b + h * kLanes * 4);
    w[0] = v & 0x0f0f0f0f;
    w[1] = (v >> 4) & 0x0f0f0f0f;
  }
  static constexpr int32_t kAdded = 8;
};
struct EightBits {
  static constexpr int64_t kStep = COIL_PANEL * 4;
  static constexpr int column(int h, int j) { return (h * 2 + j) * kLanes; }
  static COIL_INLINE_MEMBER void load_signed(const GroupChunk&, const uint8_t* b, int h, VecI32 (&w)[2]) {
#pragma unroll
    for (int j = 0; j < 2; j++) w[j] = load_raw<VecI32>(b + column(h, j) * 4);
  }
  static COIL_INLINE_MEMBER void load_unsigned(const GroupChunk& c, const uint8_t* b, int h, VecI32 (&w)[2]) {
    load_signed(c, b, h, w);
#pragma unroll
    for (int j = 0; j < 2; j++) w[j] ^= static_cast<int32_t>(0x80808080);
  }
  [[maybe_unused]] static constexpr int32_t kAdded = 128;
};
// Codes become the bytes that they stand for.
struct Codes {
  static constexpr int64_t kStep = FourBits::kStep;
  static constexpr int column(int h, int j) { return FourBits::column(h, j); }
  static COIL_INLINE_MEMBER void look_up(const VecI32& list, const uint8_t* b, int h, VecI32 (&w)[2]) {
    const VecI32 v = load_raw<VecI32>(b + h * kLanes * 4);
    w[0] = looked_up(list, v & 0x0f0f0f0f);
    w[1] = looked_up(list, (v >> 4) & 0x0f0f0f0f);
  }
  static COIL_INLINE_MEMBER void load_signed(const GroupChunk& c, const uint8_t* b, int h, VecI32 (&w)[2]) { look_up(c.list, b, h, w); }
  static COIL_INLINE_MEMBER void load_unsigned(const GroupChunk& c, const uint8_t* b, int h, VecI32 (&w)[2]) {
    look_up(c.list ^ static_cast<int32_t>(0x80808080), b, h, w);
  }
  [[maybe_unused]] static constexpr int32_t kAdded = 128;
};

// The ways to multiply. run() adds `steps` times four k to `sum`; kAdded is what each weight had too much.
template <class Numbers>
struct Widened {
  static constexpr int32_t kAdded = __is_same(Numbers, FourBits) ? FourBits::kAdded : 0;
  template <int mr>
  static COIL_INLINE_MEMBER void run(const GroupChunk& c, const int8_t* a, const uint8_t* b, int h, int64_t steps, VecI32 (&sum)[mr][2]) {
#pragma clang loop unroll(disable)
    for (int64_t s = 0; s < steps; s++, b += Numbers::kStep) {
      VecI32 w[2];
      if (fetches_stream(mr) && h == 0) fetch_stream<Numbers::kStep>(b);
      if constexpr (__is_same(Numbers, FourBits)) Numbers::load_unsigned(c, b, h, w);
      else Numbers::load_signed(c, b, h, w);
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const VecI32 x = four_of<mr>(a, c.a_stride, i, s), even = evens(x), odd = odds(x);
#pragma unroll
        for (int j = 0; j < 2; j++) sum[i][j] += pair_sums(even, evens(w[j])) + pair_sums(odd, odds(w[j]));
      }
    }
  }
};

#ifdef COIL_BYTE_PAIRS
// Sums of two products in 16 bits, of which eight fit: 8 * 2 * 15 * 128 < 2^15.
struct PairsOfFourBits {
  static constexpr int32_t kAdded = FourBits::kAdded;
  template <int mr>
  static COIL_INLINE_MEMBER void run(const GroupChunk& c, const int8_t* a, const uint8_t* b, int h, int64_t steps, VecI32 (&sum)[mr][2]) {
    const VecI32 ones = VecI32(0x00010001);
    for (int64_t begin = 0; begin < steps; begin += 8) {
      Shorts pairs[mr][2] = {};
      const int64_t end = min64(begin + 8, steps);
#pragma clang loop unroll(disable)
      for (int64_t s = begin; s < end; s++, b += FourBits::kStep) {
        VecI32 w[2];
        if (fetches_stream(mr) && h == 0) fetch_stream<FourBits::kStep>(b);
        FourBits::load_unsigned(c, b, h, w);
#pragma unroll
        for (int i = 0; i < mr; i++) {
          const VecI32 x = four_of<mr>(a, c.a_stride, i, s);
#pragma unroll
          for (int j = 0; j < 2; j++) pairs[i][j] += byte_pairs(w[j], x);
        }
      }
#pragma unroll
      for (int i = 0; i < mr; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) sum[i][j] += pair_sums(__builtin_bit_cast(VecI32, pairs[i][j]), ones);
      }
    }
  }
};
#endif

#ifdef COIL_SIGNED_BYTE_DOT
template <class Numbers>
struct SignedDots {
  static constexpr int32_t kAdded = 0;
  template <int mr>
  static COIL_INLINE_MEMBER void run(const GroupChunk& c, const int8_t* a, const uint8_t* b, int h, int64_t steps, VecI32 (&sum)[mr][2]) {
#pragma clang loop unroll(disable)
    for (int64_t s = 0; s < steps; s++, b += Numbers::kStep) {
      VecI32 w[2];
      if (fetches_stream(mr) && h == 0) fetch_stream<Numbers::kStep>(b);
      Numbers::load_signed(c, b, h, w);
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const VecI32 x = four_of<mr>(a, c.a_stride, i, s);
#pragma unroll
        for (int j = 0; j < 2; j++) sum[i][j] = signed_byte_dot(sum[i][j], x, w[j]);
      }
    }
  }
};
#endif

#ifdef COIL_BYTE_DOT
template <class Numbers>
struct Dots {
  static constexpr int32_t kAdded = Numbers::kAdded;
  template <int mr>
  COIL_BYTE_DOT static COIL_INLINE_MEMBER void run(const GroupChunk& c, const int8_t* a, const uint8_t* b, int h, int64_t steps, VecI32 (&sum)[mr][2]) {
    // Sums of few rows would wait for each other: every second step has its own.
    constexpr int kApart = mr <= 2 ? 2 : 1;
    VecI32 apart[mr][2] = {};
    const auto step = [&](int64_t s, VecI32(&to)[mr][2]) __attribute__((always_inline)) COIL_BYTE_DOT {
      VecI32 w[2];
      Numbers::load_unsigned(c, b, h, w);
      b += Numbers::kStep;
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const VecI32 x = four_of<mr>(a, c.a_stride, i, s);
#pragma unroll
        for (int j = 0; j < 2; j++) to[i][j] = byte_dot(to[i][j], w[j], x);
      }
    };
    int64_t s = 0;
#pragma clang loop unroll(disable)
    for (; s + kApart <= steps; s += kApart) {
      step(s, sum);
      if (kApart == 2) step(s + 1, apart);
    }
    if (s < steps) step(s, sum);
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) sum[i][j] += apart[i][j];
    }
  }
};
#endif

// Group by group; `Way` says how its sums are made.
#define COIL_GROUP_TILE(NAME, ATTRIBUTES)                               \
  template <int mr, class Numbers, class Way>                           \
  ATTRIBUTES __attribute__((noinline)) void NAME(const GroupChunk& c) { \
    int64_t left = c.first, number = 0;                                 \
    for (int64_t p = 0; p < c.k; number++) {                            \
      const int64_t end = min64(c.k, p + left), steps = (end - p) / 4;  \
      const uint8_t* b = c.b + p / 4 * Numbers::kStep;                  \
      for (int h = 0; h < kParts; h++) {                                \
        VecI32 sum[mr][2] = {};                                         \
        Way::template run<mr>(c, c.a + p, b, h, steps, sum);            \
        finish<mr, Numbers, Way::kAdded>(c, h, number, sum);            \
      }                                                                 \
      p = end;                                                          \
      left = c.group;                                                   \
    }                                                                   \
  }

// A group's sums, scaled, are added to the rows.
template <int mr, class Numbers, int32_t added>
COIL_INLINE void finish(const GroupChunk& c, int h, int64_t number, const VecI32 (&sum)[mr][2]) {
  const bool accumulate = number > 0 || c.accumulate;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int column = Numbers::column(h, j);
    const Vec scale = c.scale.data ? c.scale.at(c.number + number, column) : Vec(1.0f);
#pragma unroll
    for (int i = 0; i < mr; i++) {
      const int32_t own = c.sums[i * c.sum_stride + number];
      Vec value = __builtin_convertvector(sum[i][j] - own * added, Vec);
      if (c.zero.data) value -= static_cast<float>(own) * c.zero.at(c.number + number, column);
      float* to = c.acc + i * kPanel + column;
      store(to, accumulate ? load(to) + value * scale : value * scale);
    }
  }
}

COIL_GROUP_TILE(tile, )
#ifdef COIL_BYTE_DOT
COIL_GROUP_TILE(dot_tile, COIL_BYTE_DOT)
#endif

// Of numbers that are, or become, signed bytes.
template <int mr, class Numbers>
void run_bytes([[maybe_unused]] bool dot, const GroupChunk& c) {
#ifdef COIL_BYTE_DOT
  if (dot) return dot_tile<mr, Numbers, Dots<Numbers>>(c);
#endif
#ifdef COIL_SIGNED_BYTE_DOT
  if (c.no_least) return tile<mr, Numbers, SignedDots<Numbers>>(c);
#endif
  tile<mr, Numbers, Widened<Numbers>>(c);
}

template <int mr>
void run_rows(int bits, [[maybe_unused]] bool dot, const GroupChunk& c) {
  if (bits == 8) return run_bytes<mr, EightBits>(dot, c);
  if (c.coded) return run_bytes<mr, Codes>(dot, c);
#ifdef COIL_BYTE_DOT
  if (dot) return dot_tile<mr, FourBits, Dots<FourBits>>(c);
#endif
#ifdef COIL_BYTE_PAIRS
  tile<mr, FourBits, PairsOfFourBits>(c);
#else
  tile<mr, FourBits, Widened<FourBits>>(c);
#endif
}

}  // namespace

void byte_group_tile(int64_t rows, int bits, bool dot, const GroupChunk& c) {
  GroupChunk rest = c;
  for (int64_t done = 0; done < rows;) {
    const int64_t left = rows - done, count = left >= kGroupTileRows ? kGroupTileRows : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    if (count == 8) run_rows<kGroupTileRows>(bits, dot, rest);
    else if (count == 4) run_rows<4>(bits, dot, rest);
    else if (count == 2) run_rows<2>(bits, dot, rest);
    else run_rows<1>(bits, dot, rest);
    done += count;
    rest.a += count * c.a_stride;
    rest.sums += count * c.sum_stride;
    rest.acc += count * kPanel;
  }
}

}  // namespace COIL_KERNELS_NAMESPACE
