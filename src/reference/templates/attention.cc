#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {
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
