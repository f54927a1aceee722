// The register-blocked products of a few rows of bytes with one panel, for every number of rows that the blocking uses.
//
// A panel's rows come four to a lane, so that one lane of a sum takes four products a step: one instruction with AVX512_VNNI,
// or where the machine's level has it (COIL_BYTE_DOT), elsewhere two of pairs widened to 16 bits, which cannot overflow.
#include "bytes.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// A tile's sums between registers and memory.
template <int mr, int nv>
COIL_INLINE void begin_sums(const ByteChunk& c, VecI32 (&sum)[mr][nv]) {
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) sum[i][j] = c.accumulate ? load_raw<VecI32>(c.acc + i * kPanel + j * kLanes) : VecI32(0);
  }
}
template <int mr, int nv>
COIL_INLINE void end_sums(const ByteChunk& c, const VecI32 (&sum)[mr][nv]) {
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) store_raw(c.acc + i * kPanel + j * kLanes, sum[i][j]);
  }
}

// Sums of `mr` rows by nv vectors of columns, four products a lane at a time.
template <int mr, int nv>
__attribute__((noinline)) void micro_widened(const ByteChunk& c) {
  VecI32 sum[mr][nv];
  begin_sums(c, sum);
  const uint8_t* b = c.b;
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < c.steps; p++, b += kPanel * 4) {
    VecI32 even[nv], odd[nv];
#pragma unroll
    for (int j = 0; j < nv; j++) {
      const auto s = __builtin_bit_cast(Shorts, load_raw<VecI32>(b + j * kLanes * 4));
      even[j] = __builtin_bit_cast(VecI32, (s << 8) >> 8);
      odd[j] = __builtin_bit_cast(VecI32, s >> 8);
    }
#pragma unroll
    for (int i = 0; i < mr; i++) {
      const int32_t four = load_raw<int32_t>(c.a + i * kByteStride + p * 4);
#pragma unroll
      for (int j = 0; j < nv; j++) sum[i][j] += pair_sums(VecI32(four & 0x00ff00ff), even[j]) + pair_sums(VecI32((four >> 8) & 0x00ff00ff), odd[j]);
    }
  }
  end_sums(c, sum);
}

#ifdef COIL_BYTE_DOT
template <int mr, int nv>
COIL_BYTE_DOT __attribute__((noinline)) void micro_dot(const ByteChunk& c) {
  VecI32 sum[mr][nv];
  begin_sums(c, sum);
  const uint8_t* b = c.b;
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < c.steps; p++, b += kPanel * 4) {
    VecI32 column[nv];
#pragma unroll
    for (int j = 0; j < nv; j++) column[j] = load_raw<VecI32>(b + j * kLanes * 4);
#pragma unroll
    for (int i = 0; i < mr; i++) {
      const VecI32 four = VecI32(load_raw<int32_t>(c.a + i * kByteStride + p * 4));
#pragma unroll
      for (int j = 0; j < nv; j++) sum[i][j] = byte_dot(sum[i][j], four, column[j]);
    }
  }
  end_sums(c, sum);
}
#endif

template <int mr>
COIL_INLINE void micro(int64_t cols, const ByteChunk& c, [[maybe_unused]] bool dot) {
#ifdef __AVX512F__
  if (dot) return cols > kLanes ? micro_dot<mr, 2>(c) : micro_dot<mr, 1>(c);
  return cols > kLanes ? micro_widened<mr, 2>(c) : micro_widened<mr, 1>(c);
#else
  for (int64_t j = 0; j < kPanel && j < cols; j += 2 * kLanes) {
    ByteChunk part = c;
    part.b += j * 4;
    part.acc += j;
#ifdef COIL_BYTE_DOT
    micro_dot<mr, 2>(part);
#else
    micro_widened<mr, 2>(part);
#endif
  }
#endif
}

}  // namespace

void byte_tile(int64_t rows, int64_t cols, const ByteChunk& c, bool dot) {
  switch (row_capacity(rows)) {
    case 1: return micro<1>(cols, c, dot);
    case 2: return micro<2>(cols, c, dot);
    case 4: return micro<4>(cols, c, dot);
    case 6: return micro<6>(cols, c, dot);
#ifdef __AVX512F__
    case 7: return micro<7>(cols, c, dot);
    case 8: return micro<8>(cols, c, dot);
    case 10: return micro<10>(cols, c, dot);
    case 12: return micro<12>(cols, c, dot);
    default: return micro<14>(cols, c, dot);
#else
    default: __builtin_unreachable();
#endif
  }
}

#ifdef __AVX512F__
// AVX512_VNNI is not part of x86-64-v4.
bool has_byte_dot() {
  static int32_t known = -1;  // cpuid is slow in virtual machines; threads that race here write the same answer
  int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer < 0) {
    uint32_t a = 7, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    answer = c >> 11 & 1;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer;
}
#else
bool has_byte_dot() { return false; }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
