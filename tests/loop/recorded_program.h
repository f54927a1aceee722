// Loop programs that tests write with the recorder, and tensors for them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "loop/recorder.h"

namespace coil {

// Contiguous, in row-major order.
template <class T>
TensorData tensor(DType dtype, std::vector<int64_t> sizes, const std::vector<T>& values) {
  TensorData t;
  t.dtype = dtype;
  t.sizes = sizes;
  t.strides.resize(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    t.strides[i] = step;
    step *= sizes[i];
  }
  auto bytes = std::make_shared<std::vector<uint8_t>>(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes->data(), values.data(), bytes->size());
  t.bytes = *bytes;
  t.owner = bytes;
  return t;
}

// Numbers from -11 to 11 times `scale`, in no order.
inline std::vector<float> counted(int64_t n, float scale = 1) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(scale * static_cast<float>((i * 37) % 23 - 11));
  return v;
}

class RecordedProgram : public testing::Test {
 protected:
  void output(const View& v) {
    const BufferId id(v.body->id);
    rec.program().buffer(id).strides = contiguous_strides(p, v.sizes);
    LoopOutput out;
    out.source = id;
    out.name = rec.program().buffer(id).name;
    rec.program().outputs.push_back(out);
  }

  std::shared_ptr<ExprPool> pool = std::make_shared<ExprPool>();
  ExprPool& p = *pool;
  Recorder rec{pool};
};

}  // namespace coil
