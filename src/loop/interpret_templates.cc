// The interpreter's part for templates: products, convolutions and attention, straight from their definitions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "loop/interpret.h"
#include "loop/memory.h"

namespace coil {
namespace {

using interpreter::BlockView;

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

}  // namespace

template <class T>
Result<std::vector<T>> Interpreter::gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars) {
  ExprPool& pool = *program_.pool;
  const int top = vars.empty() ? 0 : *std::max_element(vars.begin(), vars.end()) + 1;
  std::vector<Expr> renamed(static_cast<size_t>(std::max(top, 16)), pool.index(0));
  for (size_t i = 0; i < vars.size(); ++i) renamed[static_cast<size_t>(vars[i])] = pool.var(static_cast<int32_t>(i));
  std::vector<Expr> coordinates;
  for (Expr c : operand.coordinates) coordinates.push_back(substitute_vars(c, renamed));
  Expr body = pool.load(operand.buffer, program_.buffer(operand.buffer).dtype, std::move(coordinates));
  std::vector<T> values(static_cast<size_t>(product(domain)));
  TRY_STATUS(evaluate(body, domain, [&](const BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      values[static_cast<size_t>(b.first + i)] = b.floats ? static_cast<T>(b.floats[i]) : static_cast<T>(b.integers[i]);
    }
  }));
  return values;
}

template <class T>
void Interpreter::store(BufferId buffer, const std::vector<T>& values) {
  const DType dtype = program_.buffer(buffer).dtype;
  uint8_t* memory = allocate(buffer);
  interpreter::with_type(dtype, [&](auto type) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto v = interpreter::to_memory<decltype(type)>(static_cast<double>(values[i]));
      std::memcpy(memory + i * sizeof v, &v, sizeof v);
    }
  });
}

Status Interpreter::run_template(const Loop& loop) {
  if (const Gemm* def = std::get_if<Gemm>(&loop.def)) {
    const bool wide = program_.buffer(def->a.buffer).dtype == DType::f64 || is_int(program_.buffer(def->a.buffer).dtype);
    return wide ? run_gemm<double>(loop, *def) : run_gemm<float>(loop, *def);
  }
  if (const GroupedGemm* def = std::get_if<GroupedGemm>(&loop.def)) {
    return run_grouped(loop, *def);
  }
  if (const Conv2d* def = std::get_if<Conv2d>(&loop.def)) {
    return is_int(program_.buffer(def->x.buffer).dtype) || program_.buffer(def->x.buffer).dtype == DType::f64 ? run_conv<double>(loop, *def) : run_conv<float>(loop, *def);
  }
  return run_attention(loop, std::get<Attention>(loop.def));
}

// b is [k][columns].
template <class T>
Status Interpreter::dequantise(const Gemm::Quantised& q, size_t columns, std::vector<T>& b) {
  std::vector<Expr> whole{program_.pool->var(0), program_.pool->var(1)};
  const auto values = [&](BufferId id, T otherwise) -> Result<std::vector<T>> {
    const size_t groups = columns ? b.size() / columns / static_cast<size_t>(q.group) : 0;
    if (!id.valid()) return std::vector<T>(groups * columns, otherwise);
    return gathered<T>(Operand{id, whole}, sizes(program_.buffer(id).sizes), {0, 1});
  };
  TRY(const std::vector<T> scale, values(q.scale, 1));
  TRY(const std::vector<T> zero, values(q.zero, 0));
  for (size_t i = 0; i < b.size(); ++i) {
    const size_t at = i / columns / static_cast<size_t>(q.group) * columns + i % columns;
    b[i] = (b[i] - zero[at]) * scale[at];
  }
  return ok_status();
}

template <class T>
Status Interpreter::run_gemm(const Loop& loop, const Gemm& def) {
  std::vector<int64_t> batch = sizes(def.batch), m = sizes(def.m), n = sizes(def.n), k = sizes(def.k);
  const int nb = static_cast<int>(batch.size()), nm = static_cast<int>(m.size()), nn = static_cast<int>(n.size());
  std::vector<int64_t> da = batch, db = batch;
  std::vector<int> va, vb;
  for (int i = 0; i < nb; ++i) va.push_back(i), vb.push_back(i);
  auto add = [](std::vector<int64_t>& domain, std::vector<int>& vars, const std::vector<int64_t>& s, int first) {
    for (size_t i = 0; i < s.size(); ++i) {
      domain.push_back(s[i]);
      vars.push_back(first + static_cast<int>(i));
    }
  };
  add(da, va, m, nb);
  add(da, va, k, nb + nm + nn);
  add(db, vb, k, nb + nm + nn);
  add(db, vb, n, nb + nm);
  TRY(std::vector<T> a, gathered<T>(def.a, da, va));
  TRY(std::vector<T> b, gathered<T>(def.b, db, vb));
  const size_t rows = static_cast<size_t>(product(m)), columns = static_cast<size_t>(product(n)), depth = static_cast<size_t>(product(k));
  const size_t batches = static_cast<size_t>(product(batch));
  if (def.quantised) TRY_STATUS(dequantise(*def.quantised, columns, b));
  std::vector<T> c(batches * rows * columns);
  for (size_t t = 0; t < batches; ++t) {
    for (size_t i = 0; i < rows; ++i) {
      T* out = c.data() + (t * rows + i) * columns;
      for (size_t p = 0; p < depth; ++p) {
        const T x = a[(t * rows + i) * depth + p];
        const T* y = b.data() + (t * depth + p) * columns;
        for (size_t j = 0; j < columns; ++j) out[j] += x * y[j];
      }
    }
  }
  store(loop.outputs[0], c);
  return ok_status();
}

// One group after the other; rows that no group has stay 0.
Status Interpreter::run_grouped(const Loop& loop, const GroupedGemm& def) {
  const std::vector<int64_t> d = sizes({def.groups, def.m, def.n, def.k});
  const int64_t G = d[0], M = d[1], N = d[2], K = d[3];
  const bool rows = def.kind == GroupedGemm::Kind::rows;
  TRY(const std::vector<double> ends, gathered<double>({def.ends, {program_.pool->var(0)}}, {G}, {0}));
  TRY(const std::vector<float> a, gathered<float>(def.a, {M, K}, {1, 3}));
  TRY(const std::vector<float> b, gathered<float>(def.b, {rows ? G : 1, K, N}, rows ? std::vector<int>{0, 3, 2} : std::vector<int>{4, 3, 2}));
  std::vector<float> c(static_cast<size_t>((rows ? 1 : G) * M * N));
  int64_t begin = 0;
  for (int64_t g = 0; g < G; ++g) {
    const auto end = static_cast<int64_t>(ends[static_cast<size_t>(g)]);
    if (end < begin || end > (rows ? M : K)) {
      return Error{ErrorCode::input_value, "an index is out of range in " + loop.op + ": the ends of its groups decrease, or leave what is grouped", "", ""};
    }
    for (int64_t i = rows ? begin : 0; i < (rows ? end : M); ++i) {
      float* out = c.data() + ((rows ? 0 : g * M) + i) * N;
      for (int64_t p = rows ? 0 : begin; p < (rows ? K : end); ++p) {
        const float x = a[static_cast<size_t>(i * K + p)];
        const float* y = b.data() + ((rows ? g * K : 0) + p) * N;
        for (int64_t j = 0; j < N; ++j) out[j] += x * y[j];
      }
    }
    begin = end;
  }
  store(loop.outputs[0], c);
  return ok_status();
}

// [planes, rows, columns] with `top` and `left` zeros in front and as many behind as make `height` and `width`.
template <class T>
std::vector<T> padded(const std::vector<T>& x, int64_t planes, std::array<int64_t, 2> from, std::array<int64_t, 2> front, std::array<int64_t, 2> to) {
  std::vector<T> y(static_cast<size_t>(planes * to[0] * to[1]));
  for (int64_t n = 0; n < planes; ++n) {
    for (int64_t h = 0; h < std::min(from[0], to[0] - front[0]); ++h) {
      const T* row = x.data() + (n * from[0] + h) * from[1];
      std::copy_n(row, std::min(from[1], to[1] - front[1]), y.data() + (n * to[0] + h + front[0]) * to[1] + front[1]);
    }
  }
  return y;
}

// The padding's zeros are multiplied like pixels: beside a weight that is NaN or infinite they give NaN.
template <class T>
Status Interpreter::run_conv(const Loop& loop, const Conv2d& def) {
  const std::vector<int64_t> xs = sizes(def.x_sizes), out = sizes(program_.buffer(loop.outputs[0]).sizes);
  const std::vector<int64_t> ws = sizes(program_.buffer(def.weight).sizes);
  TRY(std::vector<T> x, gathered<T>(def.x, xs, {0, 1, 2, 3}));
  for (T& v : x) v -= static_cast<T>(def.x_zero);
  std::vector<Expr> whole;
  for (int32_t i = 0; i < 4; ++i) whole.push_back(program_.pool->var(i));
  TRY(std::vector<T> w, gathered<T>({def.weight, whole}, ws, {0, 1, 2, 3}));
  std::vector<T> y(static_cast<size_t>(product(out)));
  if (y.empty()) return ok_status();
  const int64_t oc_per_group = out[1] / def.groups, ic = ws[1], kh = ws[2], kw = ws[3];
  std::array<int64_t, 2> seen;
  for (size_t i = 0; i < 2; ++i) seen[i] = (out[2 + i] - 1) * def.stride[i] + (ws[2 + i] - 1) * def.dilation[i] + 1;
  x = padded<T>(x, xs[0] * xs[1], {xs[2], xs[3]}, def.padding, seen);
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t o = 0; o < out[1]; ++o) {
      for (int64_t c = 0; c < ic; ++c) {
        const T* plane = x.data() + (n * xs[1] + o / oc_per_group * ic + c) * seen[0] * seen[1];
        for (int64_t p = 0; p < kh * kw; ++p) {
          const T weight = w[static_cast<size_t>((o * ic + c) * kh * kw + p)];
          for (int64_t h = 0; h < out[2]; ++h) {
            const T* row = plane + (h * def.stride[0] + p / kw * def.dilation[0]) * seen[1] + p % kw * def.dilation[1];
            T* to = y.data() + ((n * out[1] + o) * out[2] + h) * out[3];
            for (int64_t v = 0; v < out[3]; ++v) to[v] += weight * row[v * def.stride[1]];
          }
        }
      }
    }
  }
  store(loop.outputs[0], y);
  return ok_status();
}

Status Interpreter::run_attention(const Loop& loop, const Attention& def) {
  const std::vector<int64_t> d = sizes({def.batch, def.heads, def.kv_heads, def.q_len, def.kv_len, def.dim, def.v_dim});
  const int64_t B = d[0], H = d[1], G = d[2], Q = d[3], K = d[4], D = d[5], V = d[6];
  TRY(std::vector<float> q, gathered<float>(def.q, {B, H, Q, D}, {0, 1, 2, 3}));
  TRY(std::vector<float> k, gathered<float>(def.k, {B, G, K, D}, {0, 1, 2, 3}));
  TRY(std::vector<float> v, gathered<float>(def.v, {B, G, K, V}, {0, 1, 2, 3}));
  std::vector<float> mask;
  if (def.mask) {
    TRY(mask, gathered<float>(*def.mask, {B, H, Q, K}, {0, 1, 2, 3}));
  }
  const bool boolean = def.mask && is_bool(program_.buffer(def.mask->buffer).dtype);
  const double none = -std::numeric_limits<double>::infinity();
  std::vector<float> out(static_cast<size_t>(B * H * Q * V));
  std::vector<double> scores(static_cast<size_t>(K));
  for (int64_t row = 0; row < B * H * Q; ++row) {
    const int64_t b = row / (H * Q), h = row / Q % H, i = row % Q, kv = b * G + h / (H / G);
    double top = none, sum = 0;
    for (int64_t j = 0; j < K; ++j) {
      double s = 0;
      for (int64_t c = 0; c < D; ++c) s += static_cast<double>(q[static_cast<size_t>(row * D + c)]) * k[static_cast<size_t>((kv * K + j) * D + c)];
      s *= def.scale;
      if (def.mask) {
        const float m = mask[static_cast<size_t>(row * K + j)];
        s = !boolean ? s + m : m != 0 ? s : none;
      }
      if (def.causal && j > i) s = none;
      scores[static_cast<size_t>(j)] = s;
      top = std::max(top, s);
    }
    if (top == none && (def.masked_rows_zero || K == 0)) continue;  // nothing to attend to: zeros, else NaN of exp(-inf - -inf)
    for (double& s : scores) sum += s = std::exp(s - top);
    for (int64_t c = 0; c < V; ++c) {
      double total = 0;
      for (int64_t j = 0; j < K; ++j) total += scores[static_cast<size_t>(j)] * v[static_cast<size_t>((kv * K + j) * V + c)];
      out[static_cast<size_t>(row * V + c)] = static_cast<float>(total / sum);
    }
  }
  store(loop.outputs[0], out);
  return ok_status();
}

}  // namespace coil
