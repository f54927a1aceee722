// y = x / sqrt(mean(x^2) + eps) * weight along the last dimension; the threads share the rows.
#include <cmath>

template <class T, int N>
void rms_norm(coil::Tensor<const T, N> x, coil::Tensor<const T, 1> weight, double eps, coil::Tensor<T, N> out, coil::Range rows) {
  const int64_t n = x.size(-1);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* in = x.data + row * n;
    T* to = out.data + row * n;
    float sums[LANES] = {};  // so that additions do not wait for one another
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
      for (int lane = 0; lane < LANES; ++lane) sums[lane] += float(in[i + lane]) * float(in[i + lane]);
    }
    float sum = 0;
    for (; i < n; ++i) sum += float(in[i]) * float(in[i]);
    for (float part : sums) sum += part;
    const float scale = 1 / std::sqrt(sum / n + float(eps));
    for (int64_t j = 0; j < n; ++j) to[j] = float(in[j]) * scale * float(weight[j]);
  }
}
