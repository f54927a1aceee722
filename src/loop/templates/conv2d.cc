#include "loop/templates/conv2d.h"

#include <fmt/format.h>

#include "loop/demand.h"
#include "loop/interpret_operands.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"

namespace coil {

TemplateParts parts(Conv2d& def) {
  TemplateParts p;
  p.operands = {{&def.x, def.x_sizes}};
  p.whole = {&def.weight};
  for (Expr size : def.x_sizes) p.sides.push_back({size});
  p.ranges = def.x_sizes;
  return p;
}

std::string problem(const LoopProgram& program, const Loop& loop, const Conv2d& def) {
  if (program.buffer(loop.outputs[0]).sizes.size() != 4 || def.x_sizes.size() != 4) return "is a convolution of a wrong rank";
  if (program.buffer(def.weight).sizes.size() != 4) return "has a weight of a wrong rank";
  const DType x = program.buffer(def.x.buffer).dtype, w = program.buffer(def.weight).dtype, out = program.buffer(loop.outputs[0]).dtype;
  const bool integers = (x == DType::i8 || x == DType::u8) && w == DType::i8 && out == DType::i32;
  if (integers && (def.x_zero < (x == DType::i8 ? -128 : 0) || def.x_zero > (x == DType::i8 ? 127 : 255))) return "has a zero point out of its range";
  if (!integers && (x != w || !is_float(x) || def.x_zero != 0)) return "multiplies different types";
  return "";
}

std::string text(const LoopText& words, const Conv2d& def) {
  const std::string zero = def.x_zero ? fmt::format(" of numbers less {}", def.x_zero) : "";
  return fmt::format("kernel {}x{} stride {}x{} padding {}x{} dilation {}x{} groups {} images {}: {}{} * {}", def.kernel[0], def.kernel[1], def.stride[0],
                     def.stride[1], def.padding[0], def.padding[1], def.dilation[0], def.dilation[1], def.groups, words.list(def.x_sizes), words.operand(def.x),
                     zero, words.name(def.weight));
}

void read(LoopReader& words, Conv2d& def) {
  for (const auto& [word, pair] :
       {std::pair("kernel", &def.kernel), std::pair("stride", &def.stride), std::pair("padding", &def.padding), std::pair("dilation", &def.dilation)}) {
    words.expect(word);
    (*pair)[0] = words.integer();
    words.expect("x");
    (*pair)[1] = words.integer();
  }
  words.expect("groups");
  def.groups = words.integer();
  words.expect("images");
  def.x_sizes = words.list();
  words.expect(":");
  def.x = words.operand();
  if (words.accept("of numbers less")) def.x_zero = words.integer();
  words.expect("*");
  def.weight = words.buffer();
}

// Images, and no part of one.
DimRange narrowable(const Conv2d&, size_t dim, const DimRange& wanted, Expr size) { return dim == 0 ? wanted : whole_range(size); }

void narrow(Conv2d& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at) {
  narrow_operand(def.x, {at[0]});
  def.x_sizes[0] = ranges[0].count;
}

// Rows are pixels.
TemplateTiles tiles(ExprPool& pool, const Conv2d&, const std::vector<Expr>& r) {
  TemplateTiles t{{pool.index(1), r[0] * r[2] * r[3], r[1]}, {}};
  append_unpacked(pool.var(1), {r[0], r[2], r[3]}, t.coordinates);
  t.coordinates.insert(t.coordinates.begin() + 1, pool.var(2));
  return t;
}

// Dense, with the channels last.
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const Conv2d&, const std::vector<Expr>& r) {
  return std::vector<Expr>{r[2] * r[3] * r[1], pool.index(1), r[3] * r[1], r[1]};
}

Expr operations(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& results) {
  return product(pool, results) * floor_div(def.x_sizes[1], pool.index(def.groups)) * (2 * def.kernel[0] * def.kernel[1]);
}
std::vector<Expr> work_sizes(const Conv2d& def, const std::vector<Expr>& results) {
  std::vector<Expr> sizes = results;
  sizes.push_back(def.x_sizes[1]);
  return sizes;
}

TemplateLimits limits(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& r) {
  TemplateLimits l;
  l.amounts = {product(pool, def.x_sizes)};
  l.counts = {{"the pixels of ", r[0] * r[2] * r[3]}, {"the terms of ", def.x_sizes[1] * (def.kernel[0] * def.kernel[1])}};
  for (size_t i : {1u, 2u, 3u}) {
    l.counts.emplace_back("an image of ", def.x_sizes[i]);
    l.counts.emplace_back("a result of ", r[i]);
  }
  return l;
}

// --- evaluation

namespace {

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

}  // namespace

// The padding's zeros are multiplied like pixels: beside a weight that is NaN or infinite they give NaN.
template <class T>
Status Interpreter::run_convolution(const Loop& loop, const Conv2d& def) {
  const std::vector<int64_t> xs = sizes(def.x_sizes), out = sizes(program_.buffer(loop.outputs[0]).sizes);
  const std::vector<int64_t> ws = sizes(program_.buffer(def.weight).sizes);
  TRY(std::vector<T> x, gathered<T>(def.x, xs, {0, 1, 2, 3}));
  for (T& v : x) v -= static_cast<T>(def.x_zero);
  std::vector<Expr> whole;
  for (int32_t i = 0; i < 4; ++i) whole.push_back(program_.pool->var(i));
  TRY(std::vector<T> w, gathered<T>({def.weight, whole}, ws, {0, 1, 2, 3}));
  std::vector<T> y(static_cast<size_t>(interpreter::product(out)));
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

Status Interpreter::run_template(const Loop& loop, const Conv2d& def) {
  const DType x = program_.buffer(def.x.buffer).dtype;
  return is_int(x) || x == DType::f64 ? run_convolution<double>(loop, def) : run_convolution<float>(loop, def);
}

}  // namespace coil
