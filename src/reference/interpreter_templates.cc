// Products, convolutions and attention, from their definitions.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {
namespace {

constexpr double kTf32Roundoff = 0x1p-11;
constexpr double kWinogradGrowth = 128;  // of roundings, by the transforms of tiles of 6 x 6

const double* from(const std::vector<double>& v, size_t at) { return v.empty() ? nullptr : v.data() + at; }

}  // namespace

void Products::add(size_t row, double x, double ex, const double* y, const double* ey, size_t n) {
  const double magnitude = std::fabs(x);
  for (size_t j = 0; j < n; ++j) {
    f[row + j] += x * y[j];
    size[row + j] += magnitude * std::fabs(y[j]);
  }
  if (ex == 0 && !ey) return;
  for (size_t j = 0; j < n; ++j) e[row + j] += ex * std::fabs(y[j]) + (ey ? (magnitude + ex) * ey[j] : 0);
}

Result<Values> Interpreter::gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars) {
  ExprPool& pool = *program_.pool;
  const int top = vars.empty() ? 0 : *std::max_element(vars.begin(), vars.end()) + 1;
  std::vector<Expr> renamed(static_cast<size_t>(std::max(top, 16)), pool.index(0));
  for (size_t i = 0; i < vars.size(); ++i) renamed[static_cast<size_t>(vars[i])] = pool.var(static_cast<int32_t>(i));
  std::vector<Expr> coordinates;
  for (Expr c : operand.coordinates) coordinates.push_back(substitute_vars(c, renamed));
  const Expr body = pool.load(operand.buffer, type_of(operand.buffer), std::move(coordinates));
  const bool floating = is_float(body->dtype);
  Values out;
  out.f.resize(static_cast<size_t>(product(domain)));
  TRY_STATUS(evaluate(body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) {
    for (size_t i = 0; i < v.size(); ++i) {
      const size_t at = static_cast<size_t>(first) + i;
      out.f[at] = floating ? v[i].f : static_cast<double>(v[i].i);
      if (v[i].e > 0) {
        out.e.resize(out.f.size());
        out.e[at] = v[i].e;
      }
    }
  }));
  return out;
}

// `read`: the type of the factors; chain: how many terms; tf32: float32 factors may have been rounded.
void Interpreter::store_product(BufferId buffer, DType read, const Products& sums, double chain, bool tf32) {
  std::vector<Num> out(sums.f.size());
  const bool whole = !is_float(type_of(buffer)) || is_int(read);
  const double u = unit_roundoff(read == DType::f64 ? DType::f64 : DType::f32);
  const double factors = tf32 && read == DType::f32 ? 2 * kTf32Roundoff : 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double e = sums.e[i] + (whole ? 0 : (2 * chain * u + factors) * sums.size[i]);
    out[i].f = sums.f[i];
    out[i].e = std::isfinite(sums.f[i]) ? (std::isnan(e) ? std::numeric_limits<double>::infinity() : e) : std::isinf(sums.e[i]) ? sums.e[i] : 0;
    if (!is_float(type_of(buffer))) out[i].i = static_cast<int64_t>(sums.f[i]);
  }
  store(buffer, std::move(out));
}

// b is [k][columns].
Status Interpreter::dequantise(const Gemm::Quantised& q, size_t columns, Values& b) {
  const std::vector<Expr> whole{program_.pool->var(0), program_.pool->var(1)};
  Values scale, zero;
  if (q.scale.valid()) {
    TRY(scale, gathered({q.scale, whole}, sizes(program_.buffer(q.scale).sizes), {0, 1}));
  }
  if (q.zero.valid()) {
    TRY(zero, gathered({q.zero, whole}, sizes(program_.buffer(q.zero).sizes), {0, 1}));
  }
  b.e.resize(b.f.size());
  for (size_t i = 0; i < b.f.size(); ++i) {
    const size_t at = i / columns / static_cast<size_t>(q.group) * columns + i % columns;
    const double unscaled = b.f[i] - (zero.f.empty() ? 0 : zero.f[at]);
    const double factor = scale.f.empty() ? 1 : scale.f[at];
    b.f[i] = unscaled * factor;
    b.e[i] = 4 * unit_roundoff(DType::f32) * (std::fabs(b.f[i]) + (zero.f.empty() ? 0 : std::fabs(zero.f[at] * factor)));
  }
  return ok_status();
}

Status Interpreter::run_template(const Loop& loop, const Gemm& def) {
  const std::vector<int64_t> batch = sizes(def.batch), m = sizes(def.m), n = sizes(def.n), k = sizes(def.k);
  const int nb = static_cast<int>(batch.size()), nm = static_cast<int>(m.size()), nn = static_cast<int>(n.size());
  std::vector<int64_t> da = batch, db = batch;
  std::vector<int> va, vb;
  for (int i = 0; i < nb; ++i) va.push_back(i), vb.push_back(i);
  const auto with = [](std::vector<int64_t>& domain, std::vector<int>& vars, const std::vector<int64_t>& s, int first) {
    for (size_t i = 0; i < s.size(); ++i) {
      domain.push_back(s[i]);
      vars.push_back(first + static_cast<int>(i));
    }
  };
  with(da, va, m, nb);
  with(da, va, k, nb + nm + nn);
  with(db, vb, k, nb + nm + nn);
  with(db, vb, n, nb + nm);
  TRY(Values a, gathered(def.a, da, va));
  TRY(Values b, gathered(def.b, db, vb));
  const auto rows = static_cast<size_t>(product(m)), columns = static_cast<size_t>(product(n)), depth = static_cast<size_t>(product(k));
  if (def.quantised) TRY_STATUS(dequantise(*def.quantised, columns, b));
  const auto batches = static_cast<size_t>(product(batch));
  Products sums(batches * rows * columns);
  for (size_t row = 0; row < batches * rows; ++row) {
    for (size_t p = 0; p < depth; ++p) {
      const size_t at = row * depth + p, other = (row / std::max<size_t>(rows, 1) * depth + p) * columns;
      sums.add(row * columns, a.f[at], a.e.empty() ? 0 : a.e[at], b.f.data() + other, from(b.e, other), columns);
    }
  }
  store_product(loop.outputs[0], type_of(def.a.buffer), sums, static_cast<double>(depth), arithmetic_.tf32.products);
  return ok_status();
}

Status Interpreter::run_template(const Loop& loop, const GroupedGemm& def) {
  const std::vector<int64_t> d = sizes({def.groups, def.m, def.n, def.k});
  const int64_t G = d[0], M = d[1], N = d[2], K = d[3];
  const bool rows = def.kind == GroupedGemm::Kind::rows;
  TRY(const Values ends, gathered({def.ends, {program_.pool->var(0)}}, {G}, {0}));
  TRY(const Values a, gathered(def.a, {M, K}, {1, 3}));
  TRY(const Values b, gathered(def.b, {rows ? G : 1, K, N}, rows ? std::vector<int>{0, 3, 2} : std::vector<int>{4, 3, 2}));
  Products sums(static_cast<size_t>((rows ? 1 : G) * M * N));
  int64_t begin = 0;
  for (int64_t g = 0; g < G; ++g) {
    const auto end = static_cast<int64_t>(ends.f[static_cast<size_t>(g)]);
    if (end < begin || end > (rows ? M : K))
      return Error{ErrorCode::input_value, "the ends of the groups of " + loop.op + " decrease, or leave what is grouped", "", ""};
    for (int64_t i = rows ? begin : 0; i < (rows ? end : M); ++i) {
      for (int64_t p = rows ? 0 : begin; p < (rows ? K : end); ++p) {
        const auto at = static_cast<size_t>(i * K + p), other = static_cast<size_t>(((rows ? g * K : 0) + p) * N);
        sums.add(static_cast<size_t>(((rows ? 0 : g * M) + i) * N), a.f[at], a.e.empty() ? 0 : a.e[at], b.f.data() + other, from(b.e, other),
                 static_cast<size_t>(N));
      }
    }
    begin = end;
  }
  store_product(loop.outputs[0], type_of(def.a.buffer), sums, static_cast<double>(K), arithmetic_.tf32.products);
  return ok_status();
}

namespace {

// [planes][rows][columns] with zeros around, large enough for every tap.
std::vector<double> padded(const std::vector<double>& x, int64_t planes, std::array<int64_t, 2> of, std::array<int64_t, 2> front, std::array<int64_t, 2> to) {
  std::vector<double> y(static_cast<size_t>(planes * to[0] * to[1]));
  for (int64_t n = 0; n < planes; ++n) {
    for (int64_t h = 0; h < std::min(of[0], to[0] - front[0]); ++h) {
      const double* row = x.data() + (n * of[0] + h) * of[1];
      std::copy_n(row, std::max<int64_t>(std::min(of[1], to[1] - front[1]), 0), y.data() + (n * to[0] + h + front[0]) * to[1] + front[1]);
    }
  }
  return y;
}

}  // namespace

Status Interpreter::run_template(const Loop& loop, const Conv2d& def) {
  const std::vector<int64_t> xs = sizes(def.x_sizes), out = sizes(program_.buffer(loop.outputs[0]).sizes), ws = sizes(program_.buffer(def.weight).sizes);
  TRY(Values x, gathered(def.x, xs, {0, 1, 2, 3}));
  for (double& v : x.f) v -= static_cast<double>(def.x_zero);
  std::vector<Expr> whole;
  for (int32_t i = 0; i < 4; ++i) whole.push_back(program_.pool->var(i));
  TRY(const Values w, gathered({def.weight, whole}, ws, {0, 1, 2, 3}));
  Products sums(static_cast<size_t>(product(out)));
  const int64_t per_group = std::max<int64_t>(out[1] / def.groups, 1), ic = ws[1], kh = ws[2], kw = ws[3];
  const bool winograd = arithmetic_.winograd && kh == 3 && kw == 3 && def.stride == std::array<int64_t, 2>{1, 1} && is_float(type_of(def.x.buffer));
  std::array<int64_t, 2> seen;
  for (size_t i = 0; i < 2; ++i) seen[i] = (out[2 + i] - 1) * def.stride[i] + (ws[2 + i] - 1) * def.dilation[i] + 1;
  const std::vector<double> padded_x = sums.f.empty() ? x.f : padded(x.f, xs[0] * xs[1], {xs[2], xs[3]}, def.padding, seen);
  const std::vector<double> padded_e = x.e.empty() || sums.f.empty() ? x.e : padded(x.e, xs[0] * xs[1], {xs[2], xs[3]}, def.padding, seen);
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t o = 0; o < out[1]; ++o) {
      double reach = 0;  // of Winograd's sums: each plane's largest number by its weights
      for (int64_t c = 0; c < ic && !sums.f.empty(); ++c) {
        const int64_t plane = (n * xs[1] + o / per_group * ic + c) * seen[0] * seen[1];
        double most = 0, weights = 0;
        for (int64_t p = 0; p < kh * kw; ++p) {
          const auto at = static_cast<size_t>((o * ic + c) * kh * kw + p);
          weights += std::fabs(w.f[at]);
          for (int64_t h = 0; h < out[2]; ++h) {
            const int64_t row = plane + (h * def.stride[0] + p / kw * def.dilation[0]) * seen[1] + p % kw * def.dilation[1];
            const auto to = static_cast<size_t>(((n * out[1] + o) * out[2] + h) * out[3]);
            for (int64_t v = 0; v < out[3]; ++v) {
              const auto place = static_cast<size_t>(row + v * def.stride[1]);
              sums.add(to + static_cast<size_t>(v), w.f[at], w.e.empty() ? 0 : w.e[at], padded_x.data() + place, from(padded_e, place), 1);
            }
          }
        }
        if (!winograd) continue;
        for (int64_t i = 0; i < seen[0] * seen[1]; ++i) most = std::max(most, std::fabs(padded_x[static_cast<size_t>(plane + i)]));
        reach += most * weights;
      }
      const double growth = winograd ? kWinogradGrowth * unit_roundoff(DType::f32) * reach : 0;
      for (int64_t i = 0; i < out[2] * out[3] && winograd; ++i) sums.e[static_cast<size_t>((n * out[1] + o) * out[2] * out[3] + i)] += growth;
    }
  }
  store_product(loop.outputs[0], type_of(def.x.buffer), sums, static_cast<double>(ic * kh * kw), arithmetic_.tf32.convolutions);
  return ok_status();
}

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();  // the score of a key that is not seen

double error_at(const Values& x, size_t at) { return x.e.empty() ? 0.0 : x.e[at]; }

// A query's row: its scores of the keys, which become weights, and the sums of values. Errors of scores are relative errors of weights.
struct AttentionRow {
  const Attention& def;
  const Values &q, &k, &v, &mask;
  int64_t keys, dim, v_dim;
  double u, rounding;  // of sums, and of what is multiplied
  double error_of_scores;
  bool boolean;  // the mask
  std::vector<double> weight, weight_error;
  double top = kHidden, sum = 0, lost = 0;

  // Of query i, row `row` of all; its keys begin at key `first`.
  void take_scores(int64_t row, int64_t i, int64_t first) {
    top = kHidden;
    for (int64_t j = 0; j < keys; ++j) {
      double s = 0, size = 0, e = 0;
      for (int64_t c = 0; c < dim; ++c) {
        const auto x = static_cast<size_t>(row * dim + c), y = static_cast<size_t>((first + j) * dim + c);
        s += q.f[x] * k.f[y];
        size += std::fabs(q.f[x] * k.f[y]);
        e += error_at(q, x) * std::fabs(k.f[y]) + (std::fabs(q.f[x]) + error_at(q, x)) * error_at(k, y);
      }
      s *= def.scale;
      e = (e + error_of_scores * size) * std::fabs(def.scale) + 2 * u * std::fabs(s);
      if (def.mask) {
        const auto at = static_cast<size_t>(row * keys + j);
        const double more = !boolean ? mask.f[at] : mask.f[at] != 0 ? 0 : kHidden;
        const bool fills = more <= def.highest_fill.value_or(NAN);
        s = fills ? more : s + more;
        if (fills) e = 0;
        if (!boolean) e += error_at(mask, at) + (std::isfinite(s) ? 2 * u * std::fabs(s) : 0);
      }
      if (def.causal && j > i) s = kHidden;
      weight[static_cast<size_t>(j)] = s;
      weight_error[static_cast<size_t>(j)] = std::isfinite(s) ? e + 4 * u * std::fabs(s) : 0;
      top = std::max(top, s);
    }
  }

  void make_weights() {
    sum = lost = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double& s = weight[static_cast<size_t>(j)];
      s = std::exp(s - top);
      const double e = std::expm1(std::min(2 * weight_error[static_cast<size_t>(j)] + 16 * u, 700.0));
      lost += s * e;
      weight_error[static_cast<size_t>(j)] = e;
      sum += s;
    }
  }

  // The weighted sum of the values' column c.
  Num result(int64_t first, int64_t c) const {
    const double relative = lost / sum + 2 * static_cast<double>(std::min<int64_t>(keys, 512)) * u + 2 * rounding;
    double total = 0, size = 0, e = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const auto at = static_cast<size_t>((first + j) * v_dim + c);
      const double p = weight[static_cast<size_t>(j)];
      total += p * v.f[at];
      size += p * std::fabs(v.f[at]);
      e += p * weight_error[static_cast<size_t>(j)] * std::fabs(v.f[at]) + p * error_at(v, at);
    }
    Num r;
    r.f = total / sum;
    r.e = std::isfinite(r.f) ? (e + size * (relative + 2 * static_cast<double>(keys) * u + 2 * rounding)) / sum : 0;
    if (std::isnan(r.e)) r.e = std::numeric_limits<double>::infinity();
    return r;
  }
};

}  // namespace

// softmax(q k^T * scale + mask) v.
Status Interpreter::run_template(const Loop& loop, const Attention& def) {
  const std::vector<int64_t> d = sizes({def.batch, def.heads, def.kv_heads, def.q_len, def.kv_len, def.dim, def.v_dim});
  const int64_t B = d[0], H = d[1], G = d[2], Q = d[3], K = d[4], D = d[5], V = d[6];
  TRY(const Values q, gathered(def.q, {B, H, Q, D}, {0, 1, 2, 3}));
  TRY(const Values k, gathered(def.k, {B, G, K, D}, {0, 1, 2, 3}));
  TRY(const Values v, gathered(def.v, {B, G, K, V}, {0, 1, 2, 3}));
  Values mask;
  if (def.mask) {
    TRY(mask, gathered(*def.mask, {B, H, Q, K}, {0, 1, 2, 3}));
  }
  const DType read = type_of(def.q.buffer);
  const bool half = byte_size(read) == 2;
  const double u = unit_roundoff(read == DType::f64 ? DType::f64 : DType::f32);
  const double rounding = half ? unit_roundoff(read) : arithmetic_.tf32.products ? kTf32Roundoff : 0;
  const double error_of_scores = (static_cast<double>(D) + 8) * 2 * u + (half ? 0 : 2 * rounding);
  const std::vector<double> none(static_cast<size_t>(K));
  AttentionRow of{def, q, k, v, mask, K, D, V, u, rounding, error_of_scores, def.mask && is_bool(type_of(def.mask->buffer)), none, none};
  std::vector<Num> out(static_cast<size_t>(B * H * Q * V));
  for (int64_t row = 0; row < B * H * Q; ++row) {
    const int64_t b = row / (H * Q), h = row / Q % H, first = (b * G + h / std::max<int64_t>(H / std::max<int64_t>(G, 1), 1)) * K;
    of.take_scores(row, row % Q, first);
    if (of.top == kHidden && (def.masked_rows_zero || K == 0)) continue;
    of.make_weights();
    for (int64_t c = 0; c < V; ++c) out[static_cast<size_t>(row * V + c)] = of.result(first, c);
  }
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

}  // namespace coil::reference
