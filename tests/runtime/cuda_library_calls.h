// A product and a convolution as generated code hands them to NVIDIA's libraries, with memory of their own, and what their results must be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "device/cuda/params.h"
#include "device/model_abi.h"
#include "templates/cuda_library.h"

namespace coil::runtime_test {

using templates::kLibraryScratchBytes;

inline float value(int64_t i) { return static_cast<float>(i * 7 % 11 - 5) / 4; }  // exact in every type

// Elements of a dtype, at an address of which `offset` bytes are beyond a multiple of 256.
struct Memory {
  Memory(int64_t count, int32_t dtype, size_t offset = 0) : dtype(dtype), bytes(static_cast<size_t>(count) * size() + 512) {
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 255) / 256 * 256) + offset;
    for (int64_t i = 0; i < count; i++) set(i, value(i));
  }
  size_t size() const { return dtype == COIL_FLOAT32 ? 4 : dtype == COIL_FLOAT64 ? 8 : 2; }
  void set(int64_t i, float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    const uint16_t half = dtype == COIL_BFLOAT16 ? static_cast<uint16_t>(bits >> 16) : half_of(v);
    std::memcpy(data + static_cast<size_t>(i) * size(), size() == 2 ? static_cast<const void*>(&half) : &v, std::min<size_t>(size(), 4));
  }
  // Of the few values that value() gives.
  static uint16_t half_of(float v) {
    if (v == 0) return 0;
    int exponent;
    const float fraction = std::frexp(std::fabs(v), &exponent);
    return static_cast<uint16_t>((v < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | static_cast<int>((2 * fraction - 1) * 1024));
  }

  int32_t dtype;
  std::vector<char> bytes;
  char* data;
};

// t.scratch, with what must stay as it is before and behind it.
struct Scratch {
  explicit Scratch(int64_t result_bytes) : bytes(static_cast<size_t>(result_bytes + kLibraryScratchBytes) + 2 * kEdge + 64, 0x77) {
    base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + kEdge + 63) / 64 * 64);
    end = base + result_bytes + kLibraryScratchBytes;
  }
  bool edges_hold() const {
    return std::all_of(bytes.data(), const_cast<const char*>(base), [](char c) { return c == 0x77; }) &&
           std::all_of(const_cast<const char*>(end), bytes.data() + bytes.size(), [](char c) { return c == 0x77; });
  }
  static constexpr size_t kEdge = 256;
  std::vector<char> bytes;
  char *base, *end;
};

struct Product {
  int64_t m = 5, n = 7, k = 9;
  int32_t dtype = COIL_FLOAT32;
  bool a_across = true, b_across = true;  // whether the last index is the contiguous one
  int64_t pad = 0;                        // elements between lines
  size_t a_offset = 0, b_offset = 0;      // bytes
};

class Call {
 public:
  explicit Call(const Product& p)
      : p_(p), a_((p.m + p.pad) * (p.k + p.pad), p.dtype, p.a_offset), b_((p.k + p.pad) * (p.n + p.pad), p.dtype, p.b_offset), scratch_(p.m * p.n * 4) {
    t.batch = 1, t.m = p.m, t.n = p.n, t.k = p.k, t.split = 1;
    t.a = a_.data, t.a_row = p.a_across ? p.k + p.pad : 1, t.a_col = p.a_across ? 1 : p.m + p.pad;
    t.b = b_.data, t.b_row = p.b_across ? p.n + p.pad : 1, t.b_col = p.b_across ? 1 : p.k + p.pad;
    t.scratch = scratch_.base;
  }
  // "" or what is wrong with the result.
  std::string wrong() const {
    if (!scratch_.edges_hold()) return "bytes beside the scratch memory changed";
    if (reinterpret_cast<uintptr_t>(t.scratch) % 256) return "the result is not aligned";
    for (int64_t i = 0; i < p_.m; i++) {
      for (int64_t j = 0; j < p_.n; j++) {
        float sum = 0;
        for (int64_t l = 0; l < p_.k; l++) sum += value(i * t.a_row + l * t.a_col) * value(l * t.b_row + j * t.b_col);
        const float got = static_cast<const float*>(t.scratch)[i * p_.n + j];
        if (got != sum) return "element " + std::to_string(i) + ", " + std::to_string(j) + " is " + std::to_string(got) + ", not " + std::to_string(sum);
      }
    }
    return "";
  }
  bool untouched() const { return t.scratch == scratch_.base; }

  CudaGemm t = {};

 private:
  Product p_;
  Memory a_, b_;
  Scratch scratch_;
};

struct Convolution {
  int64_t n = 2, ic = 8, ih = 6, iw = 5, oc = 12;
  int kernel = 3, stride = 1, pad = 1, dilation = 1;
  int32_t dtype = COIL_FLOAT32;
  int64_t gap = 0;  // elements between pixels
  size_t x_offset = 0;
};

class ConvCall {
 public:
  explicit ConvCall(const Convolution& c)
      : c_(c),
        x_(c.n * c.ih * c.iw * (c.ic + c.gap), c.dtype, c.x_offset),
        w_(c.oc * c.kernel * c.kernel * c.ic, c.dtype),
        scratch_(c.n * out(c.ih) * out(c.iw) * c.oc * static_cast<int64_t>(x_.size())) {
    t.n = c.n, t.ic = c.ic, t.ih = c.ih, t.iw = c.iw, t.oc = c.oc, t.oh = out(c.ih), t.ow = out(c.iw);
    t.kh = t.kw = c.kernel, t.stride_h = t.stride_w = c.stride, t.pad_h = t.pad_w = c.pad, t.dilation_h = t.dilation_w = c.dilation;
    t.groups = t.split = 1;
    t.x = x_.data, t.x_c = 1, t.x_w = c.ic + c.gap, t.x_h = t.x_w * c.iw, t.x_n = t.x_h * c.ih;
    t.w = w_.data, t.scratch = scratch_.base;
  }
  int64_t out(int64_t in) const { return (in + 2 * c_.pad - c_.dilation * (c_.kernel - 1) - 1) / c_.stride + 1; }
  std::string wrong() const {
    if (!scratch_.edges_hold()) return "bytes beside the scratch memory changed";
    if (reinterpret_cast<uintptr_t>(t.scratch) % 256) return "the result is not aligned";
    for (int64_t p = 0; p < t.n * t.oh * t.ow; p++) {
      for (int64_t o = 0; o < t.oc; o++) {
        const float want = at(p / (t.oh * t.ow), o, p / t.ow % t.oh, p % t.ow), got = result(p * t.oc + o);
        if (std::fabs(got - want) > (c_.dtype == COIL_FLOAT32 ? 0 : std::fabs(want) / 256))
          return "pixel " + std::to_string(p) + " is " + std::to_string(got) + ", not " + std::to_string(want);
      }
    }
    return "";
  }
  bool untouched() const { return t.scratch == scratch_.base; }

  CudaConv2d t = {};

 private:
  float at(int64_t n, int64_t o, int64_t oh, int64_t ow) const {
    float sum = 0;
    for (int64_t h = 0; h < t.kh; h++) {
      for (int64_t w = 0; w < t.kw; w++) {
        const int64_t ih = oh * t.stride_h - t.pad_h + h * t.dilation_h, iw = ow * t.stride_w - t.pad_w + w * t.dilation_w;
        if (ih < 0 || ih >= t.ih || iw < 0 || iw >= t.iw) continue;
        for (int64_t c = 0; c < t.ic; c++) sum += value(n * t.x_n + ih * t.x_h + iw * t.x_w + c) * value(((o * t.kh + h) * t.kw + w) * t.ic + c);
      }
    }
    return sum;
  }
  float result(int64_t i) const {
    if (c_.dtype == COIL_FLOAT32) return static_cast<const float*>(t.scratch)[i];
    uint16_t half;
    std::memcpy(&half, static_cast<const char*>(t.scratch) + i * 2, 2);
    if (c_.dtype == COIL_FLOAT16) {
      const float magnitude = half & 0x7fff ? std::ldexp(static_cast<float>((half & 0x3ff) | 0x400), (half >> 10 & 31) - 25) : 0;
      return half & 0x8000 ? -magnitude : magnitude;
    }
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }

  Convolution c_;
  Memory x_, w_;
  Scratch scratch_;
};

}  // namespace coil::runtime_test
