// The same on CUDA: a block of THREADS threads for each row.
template <class T, int N>
__global__ void rms_norm(coil::Tensor<const T, N> x, coil::Tensor<const T, 1> weight, double eps, coil::Tensor<T, N> out) {
  __shared__ float sums[THREADS];
  const int64_t n = x.size(-1);
  const T* in = x.data + blockIdx.x * n;
  T* to = out.data + blockIdx.x * n;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += THREADS) sum += float(in[i]) * float(in[i]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const float scale = rsqrtf(sums[0] / n + float(eps));
  for (int64_t i = threadIdx.x; i < n; i += THREADS) to[i] = float(in[i]) * scale * float(weight[i]);
}
