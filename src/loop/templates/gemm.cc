#include "loop/templates/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "loop/demand.h"
#include "loop/interpret_operands.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"
#include "loop/narrow.h"
#include "loop/visit.h"

namespace coil {

namespace {

bool all_have_4_bits(std::span<const uint8_t> numbers) {
  // Of such a number the upper four bits are as the one below them: told of a line of memory at a time, for a large model has billions.
  constexpr size_t kLine = 64;
  const auto others = [](uint64_t word) { return (word ^ word << 1) & 0xf0f0f0f0f0f0f0f0u; };
  size_t at = 0;
  for (; at + kLine <= numbers.size(); at += kLine) {
    uint64_t words[kLine / sizeof(uint64_t)], found = 0;
    std::memcpy(words, numbers.data() + at, kLine);
    for (const uint64_t word : words) found |= others(word);
    if (found) return false;
  }
  return std::none_of(numbers.begin() + static_cast<std::ptrdiff_t>(at), numbers.end(), [&](uint8_t v) { return others(v) != 0; });
}

// Adds to the numbers that were found those of some bytes; false: there are too many for a list.
bool add_numbers(std::span<const uint8_t> numbers, std::array<bool, 256>& has, std::vector<int8_t>& found) {
  constexpr size_t kMost = 16, kAtOnce = 1 << 12;  // most weights have more in their first bytes
  for (size_t at = 0; at < numbers.size(); at += kAtOnce) {
    for (const uint8_t v : numbers.subspan(at, std::min(kAtOnce, numbers.size() - at))) has[v] = true;
    found.clear();
    for (int v = -128; v < 128; ++v) {
      if (has[static_cast<uint8_t>(v)]) found.push_back(static_cast<int8_t>(v));
    }
    if (found.size() > kMost) return false;
  }
  return true;
}

}  // namespace

bool has_4_bits(const StoredBytes& numbers) {
  if (numbers.source() && numbers.source()->has_4_bits()) return true;
  return numbers.told("4 bits", [&] { return numbers.each_piece(all_have_4_bits); });
}

std::vector<int8_t> coded_numbers(const StoredBytes& numbers) {
  std::array<bool, 256> has{};
  std::vector<int8_t> found;
  if (!numbers.each_piece([&](std::span<const uint8_t> piece) { return add_numbers(piece, has, found); })) return {};
  const bool small = found.empty() || (found.front() >= -8 && found.back() <= 7);
  return small ? std::vector<int8_t>{} : found;
}

TemplateParts parts(Gemm& def) {
  const std::vector<Expr> domain = joined_sizes({&def.batch, &def.m, &def.n, &def.k});
  TemplateParts p;
  p.operands = {{&def.a, domain}, {&def.b, domain}};
  if (def.quantised) p.whole = {&def.quantised->scale, &def.quantised->zero};
  p.sides = {def.batch, def.m, def.n, def.k};
  p.ranges = domain;
  return p;
}

namespace {

// Scales and zero points: tables of float32 for each column.
std::string quantised_problem(const LoopProgram& program, const Gemm& def) {
  for (BufferId id : {def.quantised->scale, def.quantised->zero}) {
    if (!id.valid()) continue;
    const BufferInfo& b = program.buffer(id);
    if (b.dtype != DType::f32 || b.sizes.size() != 2 || b.sizes[1] != def.n[0]) return "has scales or zero points of a wrong type or shape";
  }
  return def.quantised->group > 0 ? "" : "has groups without rows";
}

}  // namespace

std::string problem(const LoopProgram& program, const Loop& loop, const Gemm& def) {
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  const size_t results = def.batch.size() + def.m.size() + def.n.size();
  if (results != out.sizes.size()) return fmt::format("has rank {} for {} variables of its gemm", out.sizes.size(), results);
  const DType a = program.buffer(def.a.buffer).dtype, b = program.buffer(def.b.buffer).dtype;
  const bool integers = (a == DType::i8 || a == DType::u8) && b == DType::i8 && out.dtype == DType::i32 && !def.quantised;
  const bool known = is_float(a) || (a == DType::i8 && out.dtype == DType::f32);
  if (!integers && !(def.quantised ? known && b == DType::i8 : a == b)) return "multiplies different types";
  return def.quantised ? quantised_problem(program, def) : "";
}

std::string quantised_text(const LoopText& words, const std::optional<Gemm::Quantised>& quantised) {
  if (!quantised) return "";
  return fmt::format(" in groups of {} with scale {} zero {}", quantised->group, words.name(quantised->scale), words.name(quantised->zero));
}

void read_quantised(LoopReader& words, std::optional<Gemm::Quantised>& quantised) {
  if (!words.accept("in groups of")) return;
  quantised.emplace();
  quantised->group = words.integer();
  words.expect("with scale");
  quantised->scale = words.buffer();
  words.expect("zero");
  quantised->zero = words.buffer();
}

std::string text(const LoopText& words, const Gemm& def) {
  return fmt::format("batch {} m {} n {} k {}: {} * {}{}", words.list(def.batch), words.list(def.m), words.list(def.n), words.list(def.k), words.operand(def.a),
                     words.operand(def.b), quantised_text(words, def.quantised));
}

void read(LoopReader& words, Gemm& def) {
  for (const auto& [word, part] : {std::pair("batch", &def.batch), std::pair("m", &def.m), std::pair("n", &def.n), std::pair("k", &def.k)}) {
    words.expect(word);
    *part = words.list();
  }
  words.expect(":");
  def.a = words.operand();
  words.expect("*");
  def.b = words.operand();
  read_quantised(words, def.quantised);
}

DimRange narrowable(const Gemm& def, size_t dim, const DimRange& wanted, Expr size) {
  return def.quantised && dim >= def.batch.size() + def.m.size() ? whole_range(size) : wanted;
}

void narrow(Gemm& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at) {
  size_t i = 0;
  for (auto* part : {&def.batch, &def.m, &def.n}) {
    for (Expr& size : *part) size = ranges[i++].count;
  }
  narrow_operand(def.a, at);
  narrow_operand(def.b, at);
}

TemplateTiles tiles(ExprPool& pool, const Gemm& def, const std::vector<Expr>&) {
  TemplateTiles t{{product(pool, def.batch), product(pool, def.m), product(pool, def.n)}, {}};
  append_unpacked(pool.var(0), def.batch, t.coordinates);
  append_unpacked(pool.var(1), def.m, t.coordinates);
  append_unpacked(pool.var(2), def.n, t.coordinates);
  return t;
}

// Rows of columns.
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const Gemm&, const std::vector<Expr>& results) { return contiguous_strides(pool, results); }

Expr operations(ExprPool& pool, const Gemm& def, const std::vector<Expr>&) {
  const auto size = [&](const std::vector<Expr>& sizes) { return product(pool, sizes); };
  return size(def.batch) * size(def.m) * size(def.n) * size(def.k) * 2;
}
std::vector<Expr> work_sizes(const Gemm& def, const std::vector<Expr>& results) { return joined_sizes({&results, &def.k}); }

TemplateLimits limits(ExprPool& pool, const Gemm& def, const std::vector<Expr>&) {
  const Expr batch = product(pool, def.batch), m = product(pool, def.m), n = product(pool, def.n), k = product(pool, def.k);
  return {{batch, m, n, k}, {{"the batch of ", batch}, {"the rows of ", m}, {"the columns of ", n}, {"the terms of ", k}}};
}

// --- evaluation

// b is [k][columns], of several matrices one after the other, as the tables are.
template <class T>
Status Interpreter::dequantise(const Gemm::Quantised& q, size_t columns, std::vector<T>& b) {
  const auto values = [&](BufferId id, T otherwise) -> Result<std::vector<T>> {
    const size_t groups = columns ? b.size() / columns / static_cast<size_t>(q.group) : 0;
    if (!id.valid()) return std::vector<T>(groups * columns, otherwise);
    std::vector<Expr> whole;
    std::vector<int> dims;
    for (size_t d = 0; d < program_.buffer(id).sizes.size(); ++d) {
      dims.push_back(static_cast<int>(d));
      whole.push_back(program_.pool->var(dims.back()));
    }
    return gathered<T>(Operand{id, whole}, sizes(program_.buffer(id).sizes), dims);
  };
  TRY(const std::vector<T> scale, values(q.scale, 1));
  TRY(const std::vector<T> zero, values(q.zero, 0));
  for (size_t i = 0; i < b.size(); ++i) {
    const size_t at = i / columns / static_cast<size_t>(q.group) * columns + i % columns;
    b[i] = (b[i] - zero[at]) * scale[at];
  }
  return ok_status();
}

template Status Interpreter::dequantise(const Gemm::Quantised&, size_t, std::vector<float>&);

template <class T>
Status Interpreter::run_product(const Loop& loop, const Gemm& def) {
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
  const size_t rows = static_cast<size_t>(interpreter::product(m)), columns = static_cast<size_t>(interpreter::product(n)),
               depth = static_cast<size_t>(interpreter::product(k));
  const size_t batches = static_cast<size_t>(interpreter::product(batch));
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

Status Interpreter::run_template(const Loop& loop, const Gemm& def) {
  const DType a = program_.buffer(def.a.buffer).dtype;
  return a == DType::f64 || is_int(a) ? run_product<double>(loop, def) : run_product<float>(loop, def);
}

}  // namespace coil
