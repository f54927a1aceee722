// What device/cuda/wgmma.h has for sm_90a, as C++ of the CPU: mbarriers, TMA, wgmma of bytes, and of float16 with
// one operand in registers. Of the kernels only byte_wgmma.h and byte_f16.h include it (tests/python/emulated_cuda.py). Products and copies
// happen where they are asked for, not later; the threads of a warp meet wherever an instruction is one of the whole warp.
#pragma once

#define CD_HAS_WGMMA 1

namespace cd {

// --- mbarrier: 8 bytes of shared memory
struct EmulatedBarrier {
  int bytes;  // that are to come in this phase
  u16 pending;
  u16 arrivals : 15, phase : 1;

  void settle() {
    if (pending == 0 && bytes == 0) pending = arrivals, phase ^= 1;
  }
};
static_assert(sizeof(EmulatedBarrier) == 8);
inline EmulatedBarrier& emulated_barrier(u32 barrier) { return *(EmulatedBarrier*)emulation::shared_pointer(barrier); }

inline void barrier_init(u32 barrier, u32 arrivals) {
  EmulatedBarrier& b = emulated_barrier(barrier);
  b.bytes = 0, b.pending = (u16)arrivals, b.arrivals = (u16)arrivals, b.phase = 0;
}
inline void barrier_init_done() {}
inline void barrier_arrive(u32 barrier) {
  EmulatedBarrier& b = emulated_barrier(barrier);
  if (b.pending == 0) emulation::fail("an mbarrier with more arrivals than it was made for");
  --b.pending, b.settle();
}
inline void barrier_expect(u32 barrier, u32 bytes) {
  emulated_barrier(barrier).bytes += (int)bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(u32 barrier, u32 parity) {
  while (emulated_barrier(barrier).phase == parity) emulation::yield();
}

// --- barriers of some threads of a block
template <int THREADS>
void named_sync(int barrier) {
  static struct {
    int arrived;
    unsigned generation;
  } places[16][16];
  auto& place = places[emulation::cluster_rank()][barrier];
  const unsigned generation = place.generation;
  if (++place.arrived == THREADS) {
    place.arrived = 0, ++place.generation;
  } else {
    while (place.generation == generation) emulation::yield();
  }
}

template <int N>
void registers_up() {}
template <int N>
void registers_down() {}

// --- TMA
inline void tma_prefetch(const CudaTensorMap*) {}
inline u32 emulated_swizzle(u32 address) { return address ^ (address >> 7 & 7) << 4; }
inline void tma_load(u32 to, const CudaTensorMap* map, u32 barrier, int x, int y) {
  EmulatedTensorMap m;
  memcpy(&m, map, sizeof m);
  if (m.magic != EmulatedTensorMap::kMagic) emulation::fail("a tensor map that nobody has filled");
  if (to % 1024 != 0) emulation::fail("a tile of TMA that does not begin at a multiple of 1024");
  if (x * (int)m.element_bytes % 16 != 0) emulation::fail("a box of TMA that does not begin at a multiple of 16 bytes");
  const u32 line = m.box[0] * m.element_bytes;
  for (u32 r = 0; r < m.box[1]; ++r) {
    for (u32 c = 0; c < m.box[0]; ++c) {
      unsigned char* place = (unsigned char*)emulation::shared_pointer(emulated_swizzle(to + r * line + c * m.element_bytes));
      const i64 row = (i64)y + r, col = (i64)x + c;
      const bool inside = row >= 0 && row < (i64)m.sizes[1] && col >= 0 && col < (i64)m.sizes[0];
      if (inside) memcpy(place, m.base + row * (i64)m.pitch + col * (i64)m.element_bytes, m.element_bytes);
      else memset(place, 0, m.element_bytes);
    }
  }
  EmulatedBarrier& b = emulated_barrier(barrier);
  b.bytes -= (int)(line * m.box[1]), b.settle();
}

// --- wgmma. A descriptor is the address in pieces of 16 bytes: 18 bits of it would not do for the emulation's places.
inline u64 wgmma_tile(u32 address, u32) { return address >> 4; }
inline void async_fence() {}
inline void wgmma_fence() { emulation::warp_barrier(); }
inline void wgmma_commit() { emulation::warp_barrier(); }
template <int N>
void wgmma_wait() {
  emulation::warp_barrier();
}
template <int N>
void wgmma_hold(i32 (&)[N]) {}
template <int N>
void wgmma_hold(float (&)[N]) {}

// Byte k of a tile's row.
inline signed char emulated_byte(u64 tile, int row, int k) {
  return *(const signed char*)emulation::shared_pointer(emulated_swizzle((u32)(tile << 4) + (u32)(row * 128 + k)));
}
template <int N>
void emulated_products(i32 (&d)[N], const signed char (&a)[2][32], u64 b, bool add) {
  for (int i = 0; i < N; ++i) {
    const int column = 8 * (i >> 2) + 2 * (int)(threadIdx.x % 4) + (i & 1);
    i32 sum = add ? d[i] : 0;
    for (int k = 0; k < 32; ++k) sum += a[i >> 1 & 1][k] * emulated_byte(b, column, k);
    d[i] = sum;
  }
}
template <int N>
void wgmma_bytes(i32 (&d)[N], u64 a, u64 b, int add) {
  signed char rows[2][32];
  for (int h = 0; h < 2; ++h) {
    for (int k = 0; k < 32; ++k) rows[h][k] = emulated_byte(a, (int)(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) + 8 * h, k);
  }
  emulated_products(d, rows, b, add != 0);
}
template <int N>
void wgmma_bytes(i32 (&d)[N], const u32 (&a)[4], u64 b, int add) {
  signed char rows[2][32];
  for (int e = 0; e < 4; ++e) {
    for (int t = 0; t < 4; ++t) {
      const u32 word = __shfl_sync(~0u, a[e], (int)(threadIdx.x % 32 & ~3u) + t);
      memcpy(&rows[e % 2][e / 2 * 16 + t * 4], &word, 4);
    }
  }
  emulated_products(d, rows, b, add != 0);
}

// Of float16, 16 of k. a: pairs of the rows lane / 4 and 8 further, of k 2 (lane % 4) and 8 further.
template <int TB, int N>
void wgmma(f16, float (&d)[N], const u32 (&a)[4], u64 b, int add) {
  static_assert(TB == 0);
  u16 rows[2][16];
  for (int e = 0; e < 4; ++e) {
    for (int t = 0; t < 4; ++t) {
      const u32 word = __shfl_sync(~0u, a[e], (int)(threadIdx.x % 32 & ~3u) + t);
      memcpy(&rows[e % 2][e / 2 * 8 + t * 2], &word, 4);
    }
  }
  for (int i = 0; i < N; ++i) {
    const int column = 8 * (i >> 2) + 2 * (int)(threadIdx.x % 4) + (i & 1);
    float sum = add ? d[i] : 0;
    for (int k = 0; k < 16; ++k) {
      const u16 x = *(const u16*)emulation::shared_pointer(emulated_swizzle((u32)(b << 4) + (u32)(column * 128 + k * 2)));
      sum += ptx::f16_value(rows[i >> 1 & 1][k]) * ptx::f16_value(x);
    }
    d[i] = sum;
  }
}

}  // namespace cd
