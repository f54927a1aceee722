// Rows of a that do not begin at multiples of 32 bytes: TMA reads pieces that begin between those half as long again, and none between multiples of 16.
//
// Every CLASSES = 2, 4 or 8 rows are a multiple of 32 bytes apart (8 of an odd number of elements: 16), so t.map_a[c] (cuda_class_map) holds the rows
// c, c + CLASSES, ... from such a multiple before each. A tile's lines are its rows class by class (class_row). A step's window of 64 columns begins a few
// elements early, by its class; what belongs to the step is in its window and the first elements of the next one's. So a is not multiplied from shared
// memory but read from there word by word into registers, where it falls into place. Beyond a row's end the maps give zeros.
#ifndef COIL_DEVICE_CUDA_WGMMA_ROWS_H_
#define COIL_DEVICE_CUDA_WGMMA_ROWS_H_

#include "cuda/wgmma_stages.h"

namespace cd {

#ifdef CD_HAS_WGMMA

CD_FN u32 shared_word(u32 address) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

// Where a thread reads its words of a step: those of the rows lane / 4 and lane / 4 + 8 of its warp's 16.
template <int BM, int CLASSES>
struct OddRows {
  static constexpr int kKinds = BM / CLASSES >= 16 ? 1 : 2;  // of the two rows: of the same class or not
  u32 line, from[kKinds];                                    // bytes: of the first row's line in a stage; in the line, of the first whole word
  u32 at[kKinds][8];                                         // of the words of each 8 of k, in a stage
  u32 select[kKinds];                                        // which bytes of two words
  bool halves = false;                                       // words begin in the middle of words

  __device__ __forceinline__ explicit OddRows(const CudaGemm& t) {
    const int lane = threadIdx.x % 32, first = (int)(threadIdx.x / 32) * 16 % BM + lane / 4;
    const u64 unit = CLASSES * t.a_row * 2 % 32 == 0 ? 32 : 16;
    line = (u32)first * 128;
#pragma unroll
    for (int s = 0; s < kKinds; ++s) {
      const int c = (first + s * 8) / (BM / CLASSES);
      const u32 early = (u32)(((u64)t.a + (u64)((c < t.m ? c : 0) * t.a_row * 2)) % unit);
      from[s] = (u32)lane % 4 * 4 + early / 4 * 4;
      select[s] = early % 4 ? 0x5432 : 0x3210;
      halves = halves || early % 4 != 0;
      asm volatile("" : "+r"(line), "+r"(from[s]), "+r"(select[s]));  // kept in registers: to compute them again in each step costs more
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        at[s][j] = place(s, j * 16);
        asm volatile("" : "+r"(at[s][j]));
      }
    }
    halves = __any_sync(~0u, halves);
  }
  // The words of a step, four for each 16 of k, in the order of wgmma's fragments. here, next: where a's part of its window's stage and of the next begin.
  __device__ __forceinline__ void read(u32 (&x)[4][4], u32 here, u32 next) const {
    if (halves) {
      read<true>(x, here, next);
    } else {
      read<false>(x, here, next);
    }
  }

 private:
  // Of the word `byte` after a line's first, in TMA's swizzle.
  __device__ __forceinline__ u32 place(int s, u32 byte) const { return line + (u32)s * 1024 + ((from[s] + byte) % 128 ^ threadIdx.x % 32 / 4 * 16); }
  template <bool HALVES>
  __device__ __forceinline__ void read(u32 (&x)[4][4], u32 here, u32 next) const {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int s = h % kKinds;
        const u32 other = kKinds == 1 ? (u32)h * 1024 : 0;
        const auto stage = [&](u32 byte) { return byte >= 96 && from[s] + byte >= 128 ? next : here; };
        const u32 word = shared_word(stage((u32)j * 16) + at[s][j] + other), byte = (u32)j * 16 + 4;
        x[j / 2][j % 2 * 2 + h] = HALVES ? __byte_perm(word, shared_word(stage(byte) + place(s, byte) + other), select[s]) : word;
      }
  }
};

// As WgmmaStages, of CLASSES of rows. a has one window more than there are steps, and leaves its stages earlier than b: each has barriers and a place of its
// own.
template <class T, int BM, int BN, int STAGES, bool B_K, int CLASSES>
struct OddStages {
  using Stages = WgmmaStages<T, BM, BN, STAGES, true, B_K>;
  static constexpr int kStep = Stages::kStep, kBytesA = Stages::kBytesA, kBytesB = Stages::kBytesB, kBytes = Stages::kBytes;
  Stages a, b;  // of the one only a's part, of the other only b's

  __device__ __forceinline__ OddStages(u32 base, u32 barriers) : a(base, barriers), b(base, barriers + 16 * STAGES) {}
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void init(const WgmmaShare<DOWN, ACROSS>&, int warps) const {
    a.init(1, warps * ACROSS), b.init(1, warps * DOWN);
  }
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void load(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, int, int, int row0, int col0, int first, int steps) {
#pragma unroll 1
    for (int window = first; window <= first + steps && steps > 0; ++window) {
      load_a(share, t, row0, window * 64);
      if (window == first) continue;
      barrier_wait(b.empty + 8 * b.stage, b.phase ^ 1);
      barrier_expect(b.full + 8 * b.stage, kBytesB);
      wgmma_load_b<BN, B_K>(share, &t.map_b, b.b + b.stage * kBytesB, b.full + 8 * b.stage, 0, col0, (window - 1) * 64);
      b.advance();
    }
  }
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void multiply(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, float (&d)[BN / 2], int steps) {
    const OddRows<BM, CLASSES> rows(t);
    u32 x[2][4][4];                                  // of the step under way and of the next
    u32 previous = 0, read = a.empty + 8 * a.stage;  // read: what to say when the words of the step under way have come
    const auto wait_a = [&] { return barrier_wait(a.full + 8 * a.stage, a.phase), a.a + a.stage * kBytesA; };
    u32 here = wait_a();
    const auto fetch = [&](u32(&to)[4][4], u32 next) {
      rows.read(to, here, next);
      here = next;
    };
    a.advance();
    fetch(x[0], wait_a());
    // The words of the next step are read while this one's products run; between these nothing else is done, since a warp cannot begin a product of
    // registers before the one before has read its own.
    const auto turn = [&](const u32(&now)[4][4], u32(&then)[4][4], int step) {
      const u64 db = wgmma_tile(b.b + b.stage * kBytesB, 8192);
      const bool more = step + 1 < steps;
      barrier_wait(b.full + 8 * b.stage, b.phase);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < 4; ++q) wgmma<B_K ? 0 : 1>(T{}, d, now[q], db + q * (B_K ? 2 : 128), (step | q) != 0);
      wgmma_commit();
      share.release_a(read);
      read = a.empty + 8 * a.stage;
      u32 next = 0;
      if (more) {
        a.advance();
        next = wait_a();
      }
      wgmma_wait<1>();
      if (more) fetch(then, next);
      if (step) share.release_b(b.empty + 8 * previous);
      previous = b.stage;
      b.advance();
    };
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      turn(x[0], x[1], step);
      if (step + 1 < steps) turn(x[1], x[0], step + 1);
    }
    wgmma_wait<0>();
    share.release_b(b.empty + 8 * previous);
    share.release_a(a.empty + 8 * a.stage);
    a.advance();
  }

 private:
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void load_a(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, int row0, int k) {
    const u32 barrier = a.full + 8 * a.stage, to = a.a + a.stage * kBytesA;
    barrier_wait(a.empty + 8 * a.stage, a.phase ^ 1);
    barrier_expect(barrier, kBytesA);
#pragma unroll
    for (int i = 0; i < CLASSES / ACROSS; ++i) {
      const int c = share.across * (CLASSES / ACROSS) + i;
      const u32 at = to + c * (BM / CLASSES) * 128;
      if constexpr (ACROSS == 1) tma_load(at, &t.map_a[c], barrier, k, row0 / CLASSES);
      else tma_load_multicast(at, &t.map_a[c], barrier, k, row0 / CLASSES, share.in_row());
    }
    a.advance();
  }
};

// The same for two warpgroups that take every other step of a tile of 64 rows: one reads words while the other multiplies. Each has a part of the sums.
template <class T, int BN, int STAGES, bool B_K, int CLASSES>
struct OddTurns : OddStages<T, 64, BN, STAGES, B_K, CLASSES> {
  using OddStages<T, 64, BN, STAGES, B_K, CLASSES>::OddStages;
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void init(const WgmmaShare<DOWN, ACROSS>&, int warps) const {
    this->a.init(1, warps * ACROSS), this->b.init(1, warps / 2 * DOWN);
  }
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void multiply(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, float (&d)[BN / 2], int steps) {
    auto &a = this->a, &b = this->b;
    const int own = (int)threadIdx.x / 128;  // the first step of this warpgroup's
    const OddRows<64, CLASSES> rows(t);
    u32 x[2][4][4];             // of the step under way and of this warpgroup's next
    u32 previous = 0, read[2];  // read: what to say when the words of the step under way have come
    if (own >= steps) {
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) d[i] = 0;
      return;
    }
    const auto skip = [&] { share.release_a(a.empty + 8 * a.stage), a.advance(), b.advance(); };
    const auto window = [&](u32& empty) {
      const u32 at = a.a + a.stage * this->kBytesA;
      barrier_wait(a.full + 8 * a.stage, a.phase);
      empty = a.empty + 8 * a.stage;
      a.advance();
      return at;
    };
    const auto turn = [&](const u32(&now)[4][4], u32(&then)[4][4], int step) {
      const u64 db = wgmma_tile(b.b + b.stage * this->kBytesB, 8192);
      barrier_wait(b.full + 8 * b.stage, b.phase);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < 4; ++q) wgmma<B_K ? 0 : 1>(T{}, d, now[q], db + q * (B_K ? 2 : 128), step != own || q != 0);
      wgmma_commit();
      share.release_a(read[0]), share.release_a(read[1]);
      const bool more = step + 2 < steps;
      u32 here = 0, next = 0;
      if (more) here = window(read[0]), next = window(read[1]);
      wgmma_wait<1>();
      if (more) rows.read(then, here, next);
      if (step != own) share.release_b(b.empty + 8 * previous);
      previous = b.stage;
      b.advance(), b.advance();
    };
    if (own) skip();
    {
      const u32 here = window(read[0]), next = window(read[1]);
      rows.read(x[0], here, next);
    }
#pragma unroll 1
    for (int step = own; step < steps; step += 4) {
      turn(x[0], x[1], step);
      if (step + 2 < steps) turn(x[1], x[0], step + 2);
    }
    wgmma_wait<0>();
  }
};

template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K, int CLASSES, int TURNS>
struct WgmmaPipelineOf {
  static_assert(A_K);
  using type = OddStages<T, BM, BN, STAGES, B_K, CLASSES>;
};
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K, int CLASSES>
struct WgmmaPipelineOf<T, BM, BN, STAGES, A_K, B_K, CLASSES, 2> {
  static_assert(A_K && BM == 64);
  using type = OddTurns<T, BN, STAGES, B_K, CLASSES>;
};
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K>
struct WgmmaPipelineOf<T, BM, BN, STAGES, A_K, B_K, 1, 1> {
  using type = WgmmaStages<T, BM, BN, STAGES, A_K, B_K>;
};
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K, int CLASSES, int TURNS = 1>
using WgmmaPipeline = typename WgmmaPipelineOf<T, BM, BN, STAGES, A_K, B_K, CLASSES, TURNS>::type;

#endif

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_WGMMA_ROWS_H_
