// Memory access of the device headers, against plain loops.
#include "device/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace coil::device_test {
namespace {

using cd::kLanes;

template <class M>
M element(int i) {
  if constexpr (std::is_same_v<M, bool>) return i % 3 == 0;
  else if constexpr (std::is_same_v<M, cd::bf16>) return cd::to_bf16(static_cast<float>(i) * 1.25f - 7);
  else if constexpr (std::is_same_v<M, cd::f16>) return cd::to_f16(static_cast<float>(i) * 1.25f - 7);
  else return static_cast<M>(i * 7 - 20);
}

template <class M>
bool same(const M& a, const M& b) {
  return std::memcmp(&a, &b, sizeof(M)) == 0;
}

// Elements of `size` bytes. Out of line, and for all types the same: assertions inside of loops over lanes took the compiler most of a minute.
__attribute__((noinline)) void expect_same(const void* got, const void* want, size_t size, int count, const char* what, int64_t which) {
  for (int i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    EXPECT_EQ(std::memcmp(static_cast<const char*>(got) + at, static_cast<const char*>(want) + at, size), 0) << what << " " << which << ", element " << i;
  }
}

template <class M>
void expect_same(const M* got, const M* want, int count, const char* what, int64_t which) {
  expect_same(got, want, sizeof(M), count, what, which);
}

template <class T>
struct Memory : testing::Test {};
using MemoryTypes = testing::Types<float, double, cd::bf16, cd::f16, cd::i8, cd::i16, cd::i32, cd::i64, cd::u8, bool>;
TYPED_TEST_SUITE(Memory, MemoryTypes);

// Every tail length, in a buffer of exactly that size (sanitizers see a read beyond it), unaligned.
TYPED_TEST(Memory, contiguous_and_tails) {
  using M = TypeParam;
  for (int n = -1; n <= kLanes + 1; ++n) {
    const int count = std::clamp(n, 0, kLanes);
    std::vector<char> bytes(count * sizeof(M) + 1);
    M* p = reinterpret_cast<M*>(bytes.data() + 1);
    for (int i = 0; i < count; ++i) {
      const M e = element<M>(i);
      std::memcpy(static_cast<void*>(p + i), &e, sizeof(M));
    }
    const auto x = count == kLanes ? cd::load(p) : cd::load_tail(p, n);
    M all[kLanes], want[kLanes + 2] = {};
    cd::store(all, x);
    for (int i = 0; i < count; ++i) want[i] = element<M>(i);
    expect_same(all, want, kLanes, "lanes that are loaded", n);
    M out[kLanes + 2];
    std::memset(static_cast<void*>(out), 1, sizeof out);
    for (int i = count; i < kLanes + 2; ++i) want[i] = out[0];
    cd::store_tail(out, x, n);
    expect_same(out, want, kLanes + 2, "lanes that are stored", n);
  }
}

TYPED_TEST(Memory, lanes_that_count) {
  using M = TypeParam;
  M data[kLanes];
  for (int i = 0; i < kLanes; ++i) data[i] = element<M>(i);
  for (unsigned bits = 0; bits < (1u << kLanes); bits += kLanes == 8 ? 1 : 37) {
    cd::maskv counts = {};
    for (int i = 0; i < kLanes; ++i) counts[i] = bits >> i & 1 ? ~0u : 0;
    M got[kLanes], want[kLanes] = {};
    cd::store(got, cd::load_masked(data, counts));
    for (int i = 0; i < kLanes; ++i) want[i] = counts[i] ? data[i] : M{};
    expect_same(got, want, kLanes, "mask", bits);
  }
  // Lanes that do not count may lie where there is no memory.
  cd::maskv none = {};
  M got[kLanes];
  cd::store(got, cd::load_masked((const M*)nullptr, none));
  EXPECT_TRUE(same(got[0], M{}));
}

TYPED_TEST(Memory, strided_and_indexed) {
  using M = TypeParam;
  constexpr int kSize = 200;
  M data[kSize];
  for (int i = 0; i < kSize; ++i) data[i] = element<M>(i % 30);
  for (const int stride : {0, 1, 3, -2}) {
    const M* base = data + 60;
    M got[kLanes], tail[kLanes];
    cd::store(got, cd::load_strided(base, stride));
    cd::store(tail, cd::load_strided_tail(base, stride, 3));
    const cd::i64v index = cd::iota() * (cd::i64)stride;
    M gathered[kLanes], gathered_tail[kLanes];
    cd::store(gathered, cd::gather(base, index));
    cd::store(gathered_tail, cd::gather_tail(base, index, 3));
    M narrow[kLanes], narrow_tail[kLanes];
    cd::store(narrow, cd::gather(base, cd::cast<cd::i32>(index)));
    cd::store(narrow_tail, cd::gather_tail(base, cd::cast<cd::i32>(index), 3));
    M want[kLanes], want_tail[kLanes] = {};
    for (int i = 0; i < kLanes; ++i) want[i] = base[i * stride];
    for (int i = 0; i < 3; ++i) want_tail[i] = want[i];
    expect_same(got, want, kLanes, "stride", stride);
    expect_same(gathered, want, kLanes, "gathered at stride", stride);
    expect_same(narrow, want, kLanes, "gathered by i32 at stride", stride);
    expect_same(tail, want_tail, kLanes, "tail at stride", stride);
    expect_same(gathered_tail, want_tail, kLanes, "gathered tail at stride", stride);
    expect_same(narrow_tail, want_tail, kLanes, "gathered tail by i32 at stride", stride);
    if (stride == 0) continue;
    M a[kSize], b[kSize];
    for (const int n : {0, 1, 5, kLanes}) {
      std::memset(static_cast<void*>(a), 1, sizeof a);
      std::memset(static_cast<void*>(b), 1, sizeof b);
      const auto x = cd::load(data);
      if (n == kLanes) cd::store_strided(a + 60, x, stride);
      else cd::store_strided_tail(a + 60, x, stride, n);
      for (int i = 0; i < n; ++i) b[60 + i * stride] = data[i];
      expect_same(a, b, kSize, "stored at stride", stride);
      std::memset(static_cast<void*>(a), 1, sizeof a);
      if (n == kLanes) cd::scatter(a + 60, index, x);
      else cd::scatter_tail(a + 60, index, x, n);
      expect_same(a, b, kSize, "scattered at stride", stride);
    }
    EXPECT_TRUE(cd::load1(base + stride) == cd::gather(base, (cd::i64)stride));
  }
}

TYPED_TEST(Memory, streamed) {
  using M = TypeParam;
  M data[kLanes];
  for (int i = 0; i < kLanes; ++i) data[i] = element<M>(i);
  const size_t vector = sizeof(M) * kLanes;
  std::vector<char> bytes(4 * vector);
  char* const aligned = bytes.data() + (vector - reinterpret_cast<uintptr_t>(bytes.data()) % vector) % vector;
  for (const size_t offset : {size_t{0}, sizeof(M), vector}) {
    std::fill(bytes.begin(), bytes.end(), 1);
    cd::stream(reinterpret_cast<M*>(aligned + offset), cd::load(data));
    cd::end_streams();
    EXPECT_EQ(std::memcmp(aligned + offset, data, vector), 0) << offset;
    EXPECT_TRUE(std::all_of(bytes.data(), aligned + offset, [](char c) { return c == 1; }));
    EXPECT_TRUE(std::all_of(aligned + offset + vector, bytes.data() + bytes.size(), [](char c) { return c == 1; }));
  }
}

// Squares and parts of them, in a buffer of exactly the size that is read.
TYPED_TEST(Memory, turned) {
  using M = TypeParam;
  for (int rows = 1; rows <= kLanes; ++rows) {
    for (const int count : {1, 3, kLanes - 1, kLanes}) {
      for (const int stride : {count, count + 5}) {
        std::vector<char> bytes((static_cast<size_t>((rows - 1) * stride + count)) * sizeof(M) + 1);
        char* const from = bytes.data() + 1;
        for (int r = 0; r < rows; ++r) {
          for (int i = 0; i < count; ++i) {
            const M e = element<M>((r * 7 + i) % 30);
            std::memcpy(from + static_cast<size_t>(r * stride + i) * sizeof(M), &e, sizeof(M));
          }
        }
        M to[kLanes * kLanes];
        if (rows == kLanes && count == kLanes) cd::turn(reinterpret_cast<const M*>(from), stride, to);
        else cd::turn_part(reinterpret_cast<const M*>(from), stride, to, rows, count);
        for (int i = 0; i < count; ++i) {
          M want[kLanes] = {};
          for (int r = 0; r < rows; ++r) want[r] = element<M>((r * 7 + i) % 30);
          expect_same(to + i * kLanes, want, rows, "rows, turned", rows);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coil::device_test
