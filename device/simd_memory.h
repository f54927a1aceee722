// Loads and stores of vectors: contiguous, tails, strided, gather and scatter, for every memory type. Included by simd.h.
//
// Strides and indices count elements. A tail function touches only its first n elements; a tail load gives 0 in the others.
// Scatter writes lane 0 first, so the highest lane wins where indices are equal.
#ifndef COIL_DEVICE_SIMD_MEMORY_H_
#define COIL_DEVICE_SIMD_MEMORY_H_

namespace cd {

// Memory types as the raw elements that are moved, and raw vectors as register values.
template <class M>
struct RawOf {
  using type = M;
};
template <>
struct RawOf<bf16> {
  using type = u16;
};
template <>
struct RawOf<f16> {
  using type = u16;
};
template <>
struct RawOf<bool> {
  using type = u8;
};
template <class M>
using Raw = typename RawOf<M>::type;

template <class M>
CD_FN typename Reg<M>::vector from_raw(Vec<Raw<M>> x) {
  if constexpr (__is_same(M, bf16)) return bf16_to_f32(x);
  else if constexpr (__is_same(M, f16)) return f16_to_f32(x);
  else if constexpr (__is_same(M, bool)) return ne(x, (u8v)0);
  else return x;
}
template <class M>
CD_FN Vec<Raw<M>> to_raw(typename Reg<M>::vector x) {
  if constexpr (__is_same(M, bf16)) return f32_to_bf16(x);
  else if constexpr (__is_same(M, f16)) return f32_to_f16(x);
  else if constexpr (__is_same(M, bool)) return __builtin_convertvector(x & 1u, u8v);
  else return x;
}

// Brings a line nearer that will be loaded, or stored to.
CD_FN void fetch(const void* p) { __builtin_prefetch(p); }
CD_FN void fetch_for_store(const void* p) { __builtin_prefetch(p, 1); }
// So many elements, wherever the address points to.
template <class M>
CD_FN void fetch_row(const M* p, i64 count) {
  for (i64 b = 0; b < count * (i64)sizeof(M); b += 64) __builtin_prefetch((const char*)p + b);
}

// ---- One element ------------------------------------------------------------------------------------------------------------

template <class M>
CD_FN typename Reg<M>::scalar load1(const M* p) {
  Raw<M> raw = load_raw1<Raw<M>>(p);
  if constexpr (__is_same(M, bf16)) return to_f32(bf16{raw});
  else if constexpr (__is_same(M, f16)) return to_f32(f16{raw});
  else if constexpr (__is_same(M, bool)) return raw != 0;
  else return raw;
}
template <class M>
CD_FN void store1(M* p, typename Reg<M>::scalar x) {
  if constexpr (__is_same(M, bf16)) store_raw1<u16>(p, to_bf16(x).bits);
  else if constexpr (__is_same(M, f16)) store_raw1<u16>(p, to_f16(x).bits);
  else store_raw1<Raw<M>>(p, (Raw<M>)x);
}

// ---- Contiguous -------------------------------------------------------------------------------------------------------------

template <class M>
CD_FN typename Reg<M>::vector load(const M* p) {
  return from_raw<M>(load_raw<Raw<M>>(p));
}
template <class M>
CD_FN typename Reg<M>::vector load_tail(const M* p, i64 n) {
  return from_raw<M>(load_raw_tail<Raw<M>>(p, n));
}
// The lanes that count; the others are 0, and need not exist.
template <class M>
CD_FN typename Reg<M>::vector load_masked(const M* p, maskv counts) {
  if constexpr (sizeof(M) == 4 && kHasMaskedLoads) {
    return from_raw<M>(__builtin_bit_cast(Vec<Raw<M>>, load_counted((const f32*)p, counts)));
  } else {
    if (__builtin_reduce_and(counts) != 0) return load(p);  // what is left out lies at borders, mostly
    Vec<Raw<M>> x = {};
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) {
      if (counts[i]) x[i] = load_raw1<Raw<M>>(p + i);
    }
    return from_raw<M>(x);
  }
}
template <class M>
CD_FN void store(M* p, typename Reg<M>::vector x) {
  store_raw<Raw<M>>(p, to_raw<M>(x));
}
template <class M>
CD_FN void store_tail(M* p, typename Reg<M>::vector x, i64 n) {
  store_raw_tail<Raw<M>>(p, to_raw<M>(x), n);
}

// Past the caches, where the address allows it; end_streams() (of the machine's vectors.h) before other threads read it.
template <class M>
CD_FN void stream(M* p, typename Reg<M>::vector x) {
  const auto raw = to_raw<M>(x);
  if ((u64)p % sizeof raw == 0) __builtin_nontemporal_store(raw, (decltype(raw)*)p);
  else store_raw<Raw<M>>(p, raw);
}

// ---- Tiles ------------------------------------------------------------------------------------------------------------------

#if COIL_LANES == 16
#define CD_EACH_LANE(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#else
#define CD_EACH_LANE(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#endif
#define CD_LOW_HALF(i) ((i) & s ? kLanes + (i) - s : (i))
#define CD_HIGH_HALF(i) ((i) & s ? kLanes + (i) : (i) + s)
// Exchanges, of rows that are s apart, the s by s squares off the diagonal.
template <int s, class V>
CD_FN void exchange(V* x) {
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) {
    if (r & s) continue;
    const V a = x[r], b = x[r + s];
    x[r] = __builtin_shufflevector(a, b, CD_EACH_LANE(CD_LOW_HALF));
    x[r + s] = __builtin_shufflevector(a, b, CD_EACH_LANE(CD_HIGH_HALF));
  }
}
#undef CD_EACH_LANE
#undef CD_LOW_HALF
#undef CD_HIGH_HALF

template <class V>
CD_FN void turn_square(V* x) {
#if COIL_LANES == 16
  exchange<8>(x);
#endif
  exchange<4>(x);
  exchange<2>(x);
  exchange<1>(x);
}

// A square of kLanes rows that are `stride` apart: element i of row r becomes element r of row i, of rows `to_stride` apart.
template <class M>
CD_FN void turn(const M* from, i64 stride, M* to, i64 to_stride = kLanes) {
  Vec<Raw<M>> x[kLanes];
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) x[r] = load_raw<Raw<M>>(from + r * stride);
  turn_square(x);
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) store_raw<Raw<M>>(to + r * to_stride, x[r]);
}
// Of the first `rows` rows the first `count` elements; the rest of what is written is of no use.
template <class M>
CD_FN void turn_part(const M* from, i64 stride, M* to, i64 rows, i64 count) {
  Vec<Raw<M>> x[kLanes];
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) x[r] = load_raw_tail<Raw<M>>(from + (r < rows ? r : 0) * stride, r < rows ? count : 0);
  turn_square(x);
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) store_raw<Raw<M>>(to + r * kLanes, x[r]);
}

// The way back, of a square without gaps: the first `rows` rows that are written, the first `count` elements of each.
template <class M>
CD_FN void turn_out_part(const M* from, M* to, i64 stride, i64 rows, i64 count) {
  Vec<Raw<M>> x[kLanes];
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) x[r] = load_raw<Raw<M>>(from + r * kLanes);
  turn_square(x);
#pragma clang loop unroll(full)
  for (int r = 0; r < kLanes; ++r) {
    if (r < rows) store_raw_tail<Raw<M>>(to + r * stride, x[r], count);
  }
}

// ---- Strided and indexed ----------------------------------------------------------------------------------------------------
// Single moves: the gather instructions of current machines are no faster.

template <class M>
CD_FN typename Reg<M>::vector load_strided(const M* p, i64 stride) {
  Vec<Raw<M>> x = {};
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) x[i] = load_raw1<Raw<M>>(p + i * stride);
  return from_raw<M>(x);
}
template <class M>
CD_FN typename Reg<M>::vector load_strided_tail(const M* p, i64 stride, i64 n) {
  Raw<M> lanes[kLanes] = {};
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < kLanes && i < n; ++i) lanes[i] = load_raw1<Raw<M>>(p + i * stride);
  return from_raw<M>(load_raw<Raw<M>>(lanes));
}
template <class M>
CD_FN void store_strided(M* p, typename Reg<M>::vector x, i64 stride) {
  Vec<Raw<M>> raw = to_raw<M>(x);
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) store_raw1<Raw<M>>(p + i * stride, raw[i]);
}
template <class M>
CD_FN void store_strided_tail(M* p, typename Reg<M>::vector x, i64 stride, i64 n) {
  Raw<M> lanes[kLanes];
  store_raw<Raw<M>>(lanes, to_raw<M>(x));
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < kLanes && i < n; ++i) store_raw1<Raw<M>>(p + i * stride, lanes[i]);
}

// Indices are i64v or, where they are known to fit, i32v.
template <class M, class I>
CD_FN typename Reg<M>::vector gather(const M* p, Vec<I> index) {
  Vec<Raw<M>> x = {};
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) x[i] = load_raw1<Raw<M>>(p + index[i]);
  return from_raw<M>(x);
}
template <class M>
CD_FN typename Reg<M>::scalar gather(const M* p, i64 index) {
  return load1(p + index);
}
template <class M, class I>
CD_FN typename Reg<M>::vector gather_tail(const M* p, Vec<I> index, i64 n) {
  Raw<M> lanes[kLanes] = {};
  I at[kLanes];
  store_raw<I>(at, index);
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < kLanes && i < n; ++i) lanes[i] = load_raw1<Raw<M>>(p + at[i]);
  return from_raw<M>(load_raw<Raw<M>>(lanes));
}
template <class M, class I>
CD_FN void scatter(M* p, Vec<I> index, typename Reg<M>::vector x) {
  Vec<Raw<M>> raw = to_raw<M>(x);
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) store_raw1<Raw<M>>(p + index[i], raw[i]);
}
template <class M>
CD_FN void scatter(M* p, i64 index, typename Reg<M>::scalar x) {
  store1(p + index, x);
}
template <class M, class I>
CD_FN void scatter_tail(M* p, Vec<I> index, typename Reg<M>::vector x, i64 n) {
  Raw<M> lanes[kLanes];
  I at[kLanes];
  store_raw<Raw<M>>(lanes, to_raw<M>(x));
  store_raw<I>(at, index);
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < kLanes && i < n; ++i) store_raw1<Raw<M>>(p + at[i], lanes[i]);
}

}  // namespace cd

#endif  // COIL_DEVICE_SIMD_MEMORY_H_
