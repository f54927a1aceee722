#include "loop/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "loop/memory.h"

namespace coil {
namespace {

using interpreter::BlockView;
using interpreter::with_type;

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

// Writes a block at element `at` of dense memory.
void write_block(DType dtype, uint8_t* memory, int64_t at, const BlockView& block, int64_t from, int64_t n) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < n; ++i) {
      const T v = block.floats ? interpreter::to_memory<T>(block.floats[from + i]) : interpreter::to_memory<T>(block.integers[from + i]);
      std::memcpy(memory + (at + i) * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
    }
  });
}

// A reduction in progress.
struct Accumulator {
  ReduceOp op;
  bool floating;
  DType type;
  double f = 0;
  int64_t i = 0, position = 0, seen = 0;

  void start() {
    position = seen = 0;
    const double inf = std::numeric_limits<double>::infinity();
    f = op == ReduceOp::prod ? 1 : op == ReduceOp::max ? -inf : op == ReduceOp::min ? inf : 0;
    i = op == ReduceOp::prod || op == ReduceOp::all ? 1 : 0;
    if (op == ReduceOp::max) i = type == DType::u8 ? 0 : INT64_MIN >> (64 - 8 * byte_size(type));
    if (op == ReduceOp::min) i = type == DType::u8 ? 255 : INT64_MAX >> (64 - 8 * byte_size(type));
    if (is_bool(type)) i = op == ReduceOp::min || op == ReduceOp::all || op == ReduceOp::prod;
  }

  void add(double x) {
    switch (op) {
      case ReduceOp::sum: f += x; break;
      case ReduceOp::prod: f *= x; break;
      case ReduceOp::max: f = std::isnan(f) || f > x ? f : x; break;
      case ReduceOp::min: f = std::isnan(f) || f < x ? f : x; break;
      case ReduceOp::any: i = i || x != 0; break;
      case ReduceOp::all: i = i && x != 0; break;
      case ReduceOp::argmax:
      case ReduceOp::argmin: {
        const bool better = op == ReduceOp::argmax ? x > f : x < f;
        if (seen == 0 || (!std::isnan(f) && (better || std::isnan(x)))) {
          f = x;
          position = seen;
        }
        break;
      }
    }
    ++seen;
  }

  void add(int64_t x) {
    switch (op) {
      case ReduceOp::sum: i = static_cast<int64_t>(static_cast<uint64_t>(i) + static_cast<uint64_t>(x)); break;
      case ReduceOp::prod: i = static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(x)); break;
      case ReduceOp::max: i = std::max(i, x); break;
      case ReduceOp::min: i = std::min(i, x); break;
      case ReduceOp::any: i = i || x; break;
      case ReduceOp::all: i = i && x; break;
      case ReduceOp::argmax:
      case ReduceOp::argmin:
        if (seen == 0 || (op == ReduceOp::argmax ? x > i : x < i)) {
          i = x;
          position = seen;
        }
        break;
    }
    ++seen;
  }

  void write(DType dtype, uint8_t* memory, int64_t at) const {
    const bool place = op == ReduceOp::argmax || op == ReduceOp::argmin;
    const bool logic = op == ReduceOp::any || op == ReduceOp::all;
    const double fv = f;
    const int64_t iv = place ? position : i;
    BlockView one;
    if (floating && !place && !logic) one.floats = &fv;
    else one.integers = &iv;
    write_block(dtype, memory, at, one, 0, 1);
  }
};

}  // namespace

Interpreter::Interpreter(const LoopProgram& program, std::vector<int64_t> symbols)
    : program_(program), symbols_(std::move(symbols)), values_(program.buffers.size()) {
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const BufferInfo::Kind kind = program.buffers[b].kind;
    if (kind == BufferInfo::Kind::constant || kind == BufferInfo::Kind::state) values_[b] = program.buffers[b].data;
  }
  tensor_of_ = [this](BufferId id) {
    const TensorData& d = get(id);
    interpreter::Tensor t{d.dtype, d.bytes.data() + d.offset * byte_size(d.dtype), d.sizes, d.strides};
    static const uint8_t nothing = 0;
    if (d.bytes.empty()) t.data = &nothing;  // an empty tensor has no storage, and no element is read
    return t;
  };
  symbol_of_ = [this](SymbolId id) {
    CHECK(id.valid() && static_cast<size_t>(id.index) < symbols_.size(), "a symbol without a value");
    return symbols_[static_cast<size_t>(id.index)];
  };
}

void Interpreter::set(BufferId buffer, TensorData data) { values_.at(static_cast<size_t>(buffer.index)) = std::move(data); }

const TensorData& Interpreter::get(BufferId buffer) const {
  const std::optional<TensorData>& v = values_.at(static_cast<size_t>(buffer.index));
  CHECK(v.has_value(), "buffer '" + program_.buffer(buffer).name + "' has no contents");
  return *v;
}

std::vector<int64_t> Interpreter::sizes(const std::vector<Expr>& exprs) const {
  std::vector<int64_t> result;
  for (Expr e : exprs) result.push_back(evaluate_index(e, symbol_of_));
  return result;
}

uint8_t* Interpreter::allocate(BufferId buffer) {
  const BufferInfo& info = program_.buffer(buffer);
  TensorData d;
  d.dtype = info.dtype;
  d.sizes = sizes(info.sizes);
  d.strides = dense_strides(d.sizes);
  auto storage = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(product(d.sizes) * byte_size(d.dtype)));
  uint8_t* memory = storage->data();
  d.bytes = {storage->data(), storage->size()};
  d.owner = std::move(storage);
  set(buffer, std::move(d));
  return memory;
}

Status Interpreter::evaluate(Expr body, const std::vector<int64_t>& domain, const std::function<void(const BlockView&)>& sink) {
  return interpreter::evaluate_blocks(body, domain, tensor_of_, symbol_of_, sink);
}

Status Interpreter::run(const Loop& loop) {
  if (const Pointwise* def = std::get_if<Pointwise>(&loop.def)) {
    const DType dtype = program_.buffer(loop.outputs[0]).dtype;
    uint8_t* memory = allocate(loop.outputs[0]);
    return evaluate(def->body, get(loop.outputs[0]).sizes,
                    [&](const BlockView& b) { write_block(dtype, memory, b.first, b, 0, b.count); });
  }
  if (const Reduction* def = std::get_if<Reduction>(&loop.def)) return run_reduction(loop, *def);
  if (const Scan* def = std::get_if<Scan>(&loop.def)) return run_scan(loop, *def);
  if (const Concat* def = std::get_if<Concat>(&loop.def)) return run_concat(loop, *def);
  if (const Sort* def = std::get_if<Sort>(&loop.def)) return run_sort(loop, *def);
  if (const Library* def = std::get_if<Library>(&loop.def)) {
    return Error{ErrorCode::unsupported_feature, "the interpreter does not call the library routine " + def->routine, {}, {}};
  }
  if (const UserCall* def = std::get_if<UserCall>(&loop.def)) {
    return Error{ErrorCode::unsupported_feature, "the interpreter does not run the user kernel " + def->kernel->name, {}, {}};
  }
  if (const Compact* def = std::get_if<Compact>(&loop.def)) return run_compact(loop, *def);
  if (const ReadSize* def = std::get_if<ReadSize>(&loop.def)) return run_read(loop, *def);
  if (const Region* def = std::get_if<Region>(&loop.def)) return run_region(loop, *def);
  return run_template(loop);
}

Status Interpreter::run_reduction(const Loop& loop, const Reduction& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  std::vector<int64_t> domain = get(loop.outputs[0]).sizes;
  const int64_t results = product(domain);
  const std::vector<int64_t> inner = sizes(def.domain);
  const int64_t length = product(inner);
  domain.insert(domain.end(), inner.begin(), inner.end());
  Accumulator acc{def.op, is_float(def.body->dtype), def.body->dtype};
  acc.start();
  if (length == 0) {
    for (int64_t r = 0; r < results; ++r) acc.write(dtype, memory, r);
    return ok_status();
  }
  return evaluate(def.body, domain, [&](const BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      b.floats ? acc.add(b.floats[i]) : acc.add(b.integers[i]);
      if (acc.seen == length) {
        acc.write(dtype, memory, (b.first + i) / length);
        acc.start();
      }
    }
  });
}

Status Interpreter::run_concat(const Loop& loop, const Concat& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  const int64_t row = out.strides[dim] * out.sizes[dim];  // one step of the dimensions before
  for (const Concat::Piece& piece : def.pieces) {
    std::vector<int64_t> domain = out.sizes;
    domain[dim] = evaluate_index(piece.size, symbol_of_);
    const int64_t begin = evaluate_index(piece.begin, symbol_of_) * out.strides[dim], run = domain[dim] * out.strides[dim];
    TRY_STATUS(evaluate(piece.body, domain, [&](const BlockView& b) {
      for (int64_t i = 0; i < b.count;) {
        const int64_t at = b.first + i, n = std::min(b.count - i, run - at % run);
        write_block(dtype, memory, at / run * row + begin + at % run, b, i, n);
        i += n;
      }
    }));
  }
  return ok_status();
}

Status Interpreter::run_scan(const Loop& loop, const Scan& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  const int64_t stride = out.strides[dim], length = out.sizes[dim];
  const ReduceOp op = def.op == ScanOp::sum ? ReduceOp::sum : def.op == ScanOp::prod ? ReduceOp::prod : def.op == ScanOp::max ? ReduceOp::max : ReduceOp::min;
  std::vector<Accumulator> acc(static_cast<size_t>(stride), Accumulator{op, is_float(def.body->dtype), def.body->dtype});
  return evaluate(def.body, out.sizes, [&](const BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      const int64_t at = b.first + i;
      Accumulator& a = acc[static_cast<size_t>(at % stride)];
      if (at / stride % length == 0) a.start();
      b.floats ? a.add(b.floats[i]) : a.add(b.integers[i]);
      a.write(dtype, memory, at);
    }
  });
}

Status Interpreter::run_sort(const Loop& loop, const Sort& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* values = allocate(loop.outputs[0]);
  uint8_t* numbers = allocate(loop.outputs[1]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  std::vector<int64_t> domain = out.sizes;
  domain[dim] = evaluate_index(def.length, symbol_of_);
  const bool floating = is_float(def.body->dtype);
  std::vector<double> f;
  std::vector<int64_t> n;
  TRY_STATUS(evaluate(def.body, domain, [&](const BlockView& b) {
    if (floating) f.insert(f.end(), b.floats, b.floats + b.count);
    else n.insert(n.end(), b.integers, b.integers + b.count);
  }));
  const int64_t length = domain[dim], kept = out.sizes[dim], stride = dense_strides(domain)[dim];
  const int64_t rows = length == 0 ? 0 : product(domain) / length;
  std::vector<int64_t> order(static_cast<size_t>(length));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t base = row / stride * stride * length + row % stride, base_out = row / stride * stride * kept + row % stride;
    std::iota(order.begin(), order.end(), int64_t{0});
    auto less = [&](int64_t a, int64_t b) {  // NaN is the largest
      if (!floating) return n[static_cast<size_t>(base + a * stride)] < n[static_cast<size_t>(base + b * stride)];
      const double x = f[static_cast<size_t>(base + a * stride)], y = f[static_cast<size_t>(base + b * stride)];
      return std::isnan(y) ? !std::isnan(x) : x < y;
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return def.descending ? less(b, a) : less(a, b); });
    for (int64_t k = 0; k < kept; ++k) {
      const size_t from = static_cast<size_t>(base + order[static_cast<size_t>(k)] * stride);
      BlockView one;
      if (floating) one.floats = &f[from];
      else one.integers = &n[from];
      write_block(dtype, values, base_out + k * stride, one, 0, 1);
      one = {0, 1, nullptr, &order[static_cast<size_t>(k)]};
      write_block(DType::i64, numbers, base_out + k * stride, one, 0, 1);
    }
  }
  return ok_status();
}

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
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    BlockView one{0, 1, &v, nullptr};
    write_block(dtype, memory, static_cast<int64_t>(i), one, 0, 1);
  }
}

Status Interpreter::run_template(const Loop& loop) {
  if (const Gemm* def = std::get_if<Gemm>(&loop.def)) {
    const bool wide = program_.buffer(def->a.buffer).dtype == DType::f64 || is_int(program_.buffer(def->a.buffer).dtype);
    return wide ? run_gemm<double>(loop, *def) : run_gemm<float>(loop, *def);
  }
  if (const Conv2d* def = std::get_if<Conv2d>(&loop.def)) {
    return is_int(program_.buffer(def->x.buffer).dtype) ? run_conv<double>(loop, *def) : run_conv<float>(loop, *def);
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
  const int64_t oc_per_group = out[1] / def.groups, ic = ws[1], kh = ws[2], kw = ws[3];
  const int64_t sw = def.stride[1];
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t o = 0; o < out[1]; ++o) {
      for (int64_t c = 0; c < ic; ++c) {
        const int64_t channel = o / oc_per_group * ic + c;
        for (int64_t p = 0; p < kh * kw; ++p) {
          const T weight = w[static_cast<size_t>((o * ic + c) * kh * kw + p)];
          const int64_t h0 = p / kw * def.dilation[0] - def.padding[0], w0 = p % kw * def.dilation[1] - def.padding[1];
          for (int64_t h = 0; h < out[2]; ++h) {
            const int64_t ih = h * def.stride[0] + h0;
            if (ih < 0 || ih >= xs[2]) continue;
            const T* row = x.data() + ((n * xs[1] + channel) * xs[2] + ih) * xs[3];
            T* to = y.data() + ((n * out[1] + o) * out[2] + h) * out[3];
            const int64_t first = w0 < 0 ? (-w0 + sw - 1) / sw : 0;
            for (int64_t v = first; v < out[3] && v * sw + w0 < xs[3]; ++v) to[v] += weight * row[v * sw + w0];
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
    if (top == none) continue;  // nothing to attend to: zeros
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
