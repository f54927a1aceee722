#include "loop/recorder.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/bad_index.h"
#include "loop/guard_positions.h"
#include "loop/simplify_body.h"

namespace coil {
namespace {

// As it is kept: simplified, and without loads where there is nothing.
Expr safe_body(const LoopProgram& program, Expr body, std::span<const Expr> domain) { return guard_positions(program, simplify_body(body, domain)); }

bool is_constant(Expr e, int64_t value) { return e->is_constant() && e->as_int() == value; }

}  // namespace

Recorder::Recorder(std::shared_ptr<ExprPool> pool) { program_.pool = std::move(pool); }

Expr part(ExprPool& pool) { return pool.var(kPartVariable); }

Expr at_part(Expr body, Expr number) {
  return rewrite(body, [&](Expr e) { return e->kind == ExprKind::var && e->id == kPartVariable ? number : Expr(); });
}

Complex parts_of(Expr body) {
  ExprPool& pool = *body->pool;
  return {at_part(body, pool.index(0)), at_part(body, pool.index(1))};
}

Expr joined(const Complex& z) {
  ExprPool& pool = *z.re->pool;
  return z.re == z.im ? z.re : pool.select(pool.op(ScalarOp::eq, {part(pool), pool.index(0)}), z.re, z.im);
}

BufferId Recorder::add_buffer(BufferInfo info) {
  std::string base = info.name.empty() ? "value" : info.name;
  std::string name = base;
  while (names_.contains(name)) name = fmt::format("{}_{}", base, ++names_[base]);
  names_[name] = 0;
  info.name = std::move(name);
  program_.buffers.push_back(std::move(info));
  return BufferId(program_.buffers.size() - 1);
}

View Recorder::load_of(BufferId buffer) {
  const BufferInfo& info = program_.buffer(buffer);
  std::vector<Expr> vars = variables(pool(), info.sizes.size());
  if (!info.pairs) return {info.meant.value_or(info.dtype), info.sizes, pool().load(buffer, info.dtype, vars)};
  vars.back() = part(pool());
  return {complex_type(info.dtype), {info.sizes.begin(), info.sizes.end() - 1}, pool().load(buffer, info.dtype, vars)};
}

// The type and the sizes that a program sees, as the buffer has them.
void Recorder::describe(BufferInfo& info, DType dtype, std::vector<Expr> sizes) {
  info.dtype = part_type(dtype);
  info.pairs = is_complex(dtype);
  if (is_float8(dtype) || is_wide_unsigned(dtype)) info.meant = dtype;
  info.sizes = stored_sizes(dtype, std::move(sizes));
}

std::vector<Expr> Recorder::stored_sizes(DType dtype, std::vector<Expr> sizes) {
  if (is_complex(dtype)) sizes.push_back(pool().index(2));
  return sizes;
}

Expr Recorder::recorded(Expr body, DType dtype, size_t rank, std::span<const Expr> domain) {
  if (is_complex(dtype)) body = at_part(body, pool().var(static_cast<int32_t>(rank)));
  return safe_body(program_, body, domain);
}

View Recorder::input(std::string name, DType dtype, std::vector<Expr> sizes, std::vector<Expr> strides) {
  const auto before = std::find_if(program_.inputs.rbegin(), program_.inputs.rend(), [](const LoopInput& in) { return in.buffer.valid(); });
  const int position = before == program_.inputs.rend() ? 0 : program_.buffer(before->buffer).input + 1;
  BufferInfo info;
  info.kind = BufferInfo::Kind::input;
  info.name = name;
  describe(info, dtype, std::move(sizes));
  info.strides = std::move(strides);
  if (info.pairs) {
    for (Expr& s : info.strides) s = s * 2;
    info.strides.push_back(pool().index(1));
  }
  info.input = position;
  BufferId id = add_buffer(std::move(info));
  program_.inputs.push_back({id, Expr(), std::move(name)});
  return load_of(id);
}

View Recorder::constant(std::string name, TensorData data) {
  BufferInfo info;
  info.kind = BufferInfo::Kind::constant;
  info.name = std::move(name);
  if (is_float8(data.dtype) || is_wide_unsigned(data.dtype)) {
    info.meant = data.dtype;
    data.dtype = part_type(data.dtype);
  }
  if (is_complex(data.dtype)) {
    info.pairs = true;
    data.dtype = part_type(data.dtype);
    data.offset *= 2;
    for (int64_t& s : data.strides) s *= 2;
    data.strides.push_back(1);
    data.sizes.push_back(2);
  }
  info.dtype = data.dtype;
  for (int64_t s : data.sizes) info.sizes.push_back(pool().index(s));
  for (int64_t s : data.strides) info.strides.push_back(pool().index(s));
  info.data = std::move(data);
  return load_of(add_buffer(std::move(info)));
}

View Recorder::state(std::string name, TensorData data) {
  View v = constant(std::move(name), std::move(data));
  program_.buffers.back().kind = BufferInfo::Kind::state;
  return v;
}

// Lowerings take the ranks of results from the file, which may give a result another one than its operator does.
static void check_rank(const View& read, size_t coordinates) {
  if (coordinates != read.rank()) throw BadIndex(__FILE__, __LINE__, "a tensor that is read with another number of dimensions than it has");
}

View Recorder::view(const View& source, std::vector<Expr> sizes, FunctionRef<std::vector<Expr>(Coordinates)> map) {
  std::vector<Expr> vars = variables(pool(), sizes.size());
  std::vector<Expr> coordinates = map(vars);
  check_rank(source, coordinates.size());
  Expr body = simplify_body(substitute_vars(source.body, coordinates), sizes);
  return {source.dtype, std::move(sizes), body};
}

Expr Recorder::at(const View& v, Coordinates coordinates) {
  check_rank(v, coordinates.size());
  return substitute_vars(v.body, coordinates);
}

View Recorder::define(std::string op, DType dtype, std::vector<Expr> sizes, LoopDef def) {
  BufferInfo info;
  info.name = op;
  describe(info, dtype, std::move(sizes));
  BufferId id = add_buffer(std::move(info));
  program_.loops.push_back({std::move(def), {id}, std::move(op), origins_});
  return load_of(id);
}

View Recorder::pointwise(std::string op, DType dtype, std::vector<Expr> sizes, FunctionRef<Expr(Coordinates)> body) {
  std::vector<Expr> vars = variables(pool(), sizes.size());
  const Expr value = recorded(pool().cast(body(vars), compute_type(dtype)), dtype, sizes.size(), stored_sizes(dtype, sizes));
  return define(std::move(op), dtype, std::move(sizes), Pointwise{value});
}

void Recorder::check(std::string op, std::string message, Expr condition) {
  const View v = pointwise(op, DType::i64, {}, [&](Coordinates) {
    const Expr position = pool().select(condition, pool().constant_int(1, DType::i64), pool().constant_int(-1, DType::i64));
    return pool().cast(pool().checked_index(position, pool().index(2)), DType::i64);
  });
  program_.loops.back().assertion = std::move(message);
  LoopOutput out;
  out.kind = LoopOutput::Kind::check;
  out.source = program_.loops.back().outputs[0];
  out.name = std::move(op);
  program_.outputs.push_back(std::move(out));
}

View Recorder::compact(std::string op, Expr size, Expr blocks, Expr length, FunctionRef<Expr(Coordinates)> keep, FunctionRef<Expr(Expr)> start,
                       FunctionRef<Expr(Coordinates)> value) {
  const std::vector<Expr> domain = {blocks, length}, vars = variables(pool(), 2);
  Compact def;
  def.blocks = blocks;
  def.length = length;
  def.keep = safe_body(program_, pool().cast(keep(vars), DType::boolean), domain);
  def.start = safe_body(program_, pool().cast(start(vars[0]), DType::i64), std::vector<Expr>{blocks});
  def.value = safe_body(program_, pool().cast(value(vars), DType::i64), domain);
  return define(std::move(op), DType::i64, {size}, def);
}

void Recorder::read_size(SymbolId symbol, Expr value, Expr limit) {
  const std::string& name = pool().symbol_info(symbol).name;
  const View source = pointwise(name + "_value", DType::i64, {}, [&](Coordinates) { return value; });
  const View size = define(name, DType::i64, {}, ReadSize{symbol, BufferId(source.body->id), limit});
  program_.data_sizes.emplace_back(symbol, BufferId(size.body->id));
}

View Recorder::reduce(std::string op, ReduceOp reduce, DType dtype, std::vector<Expr> sizes, std::vector<Expr> domain,
                      FunctionRef<Expr(Coordinates, Coordinates)> body) {
  std::vector<Expr> vars = variables(pool(), sizes.size());
  std::vector<Expr> all = stored_sizes(dtype, sizes);
  std::vector<Expr> reduced = variables(pool(), domain.size(), all.size());
  Expr value = body(vars, reduced);
  // argmax and argmin compare in the body's own type and give numbers.
  const bool gives_position = reduce == ReduceOp::argmax || reduce == ReduceOp::argmin;
  if (!gives_position) value = pool().cast(value, compute_type(dtype));
  all.insert(all.end(), domain.begin(), domain.end());
  value = recorded(value, dtype, sizes.size(), all);
  return define(std::move(op), dtype, std::move(sizes), Reduction{reduce, std::move(domain), value});
}

View Recorder::scan(std::string op, ScanOp scan, DType dtype, std::vector<Expr> sizes, int dim, FunctionRef<Expr(Coordinates)> body) {
  std::vector<Expr> vars = variables(pool(), sizes.size());
  const Expr value = recorded(pool().cast(body(vars), compute_type(dtype)), dtype, sizes.size(), stored_sizes(dtype, sizes));
  return define(std::move(op), dtype, std::move(sizes), Scan{scan, dim, value});
}

View Recorder::concat(std::string op, DType dtype, std::vector<Expr> sizes, int dim, const std::vector<View>& pieces) {
  Concat concat;
  concat.dim = dim;
  Expr begin = pool().index(0);
  for (const View& piece : pieces) {
    Expr size = piece.sizes[static_cast<size_t>(dim)];
    CHECK(is_complex(piece.dtype) == is_complex(dtype), "pieces of complex numbers are complex");
    Expr body = recorded(pool().cast(piece.body, compute_type(dtype)), dtype, piece.rank(), stored_sizes(dtype, piece.sizes));
    concat.pieces.push_back({begin, size, body});
    begin = begin + size;
  }
  return define(std::move(op), dtype, std::move(sizes), std::move(concat));
}

std::pair<View, View> Recorder::sort(std::string op, const View& source, int dim, Expr kept, bool descending, int64_t below) {
  CHECK(!is_complex(source.dtype), "complex numbers have no order");
  std::vector<Expr> sizes = source.sizes;
  Expr length = sizes[static_cast<size_t>(dim)];
  sizes[static_cast<size_t>(dim)] = kept;
  View values = define(op, source.dtype, sizes, Sort{dim, length, descending, safe_body(program_, source.body, source.sizes), below});
  BufferInfo info;
  info.name = op + ".indices";
  info.dtype = DType::i64;
  info.sizes = std::move(sizes);
  BufferId indices = add_buffer(std::move(info));
  program_.loops.back().outputs.push_back(indices);
  return {values, load_of(indices)};
}

std::vector<View> Recorder::several(const std::string& op, LoopDef def, const std::vector<Result>& results) {
  std::vector<View> views;
  for (const Result& r : results) {
    const bool first = views.empty();
    if (first) {
      views.push_back(define(op, r.dtype, r.sizes, std::move(def)));
      continue;
    }
    BufferInfo info;
    info.name = op + ".result";
    describe(info, r.dtype, r.sizes);
    const BufferId id = add_buffer(std::move(info));
    program_.loops.back().outputs.push_back(id);
    views.push_back(load_of(id));
  }
  return views;
}

std::vector<View> Recorder::library(std::string op, Library call, const std::vector<View>& inputs, const std::vector<Result>& results) {
  for (const View& v : inputs) call.inputs.push_back(stored(v, "copy"));
  return several(op, std::move(call), results);
}

std::vector<View> Recorder::user_call(std::string op, UserCall call, const std::vector<Result>& results) { return several(op, std::move(call), results); }

std::vector<View> Recorder::region(std::string op, Region def, const std::vector<Result>& results) {
  const bool checks = std::any_of(def.parts.begin(), def.parts.end(), [](const RegionPart& part) {
    return std::any_of(part.program->outputs.begin(), part.program->outputs.end(), [](const LoopOutput& o) { return o.kind == LoopOutput::Kind::check; });
  });
  std::vector<View> views = several(op, std::move(def), results);
  if (checks) {  // it counts even where nothing reads its results
    LoopOutput out;
    out.kind = LoopOutput::Kind::check;
    out.source = program_.loops.back().outputs[0];
    out.name = op;
    program_.outputs.push_back(std::move(out));
  }
  return views;
}

BufferId Recorder::capture(const BufferInfo& outer) {
  BufferInfo info = outer;
  const BufferId id(program_.buffers.size());
  if (info.kind != BufferInfo::Kind::constant) {
    info.kind = BufferInfo::Kind::input;
    info.data = {};
    info.why.clear();
    info.strides = contiguous_strides(pool(), info.sizes);
    info.input = static_cast<int>(program_.inputs.size());
    program_.inputs.push_back({id, Expr(), info.name});
  }
  return add_buffer(std::move(info));
}

void Recorder::result(const View& v, DType dtype, const std::vector<Expr>& sizes) {
  const View copy = pointwise("result", dtype, sizes, [&](Coordinates c) { return at(v, c); });
  LoopOutput out;
  out.source = BufferId(copy.body->id);
  BufferInfo& buffer = program_.buffer(out.source);
  buffer.strides = contiguous_strides(pool(), buffer.sizes);
  out.name = buffer.name;
  program_.outputs.push_back(std::move(out));
}

Operand Recorder::operand(const View& v) {
  CHECK(!is_complex(v.dtype), "templates read real numbers");
  const bool by_data = any_of(v.body, [](Expr e) { return e->is_op(ScalarOp::checked_index); });
  if (v.body->kind == ExprKind::load && !by_data && program_.buffer(BufferId(v.body->id)).dtype == v.dtype) {
    // Whether the template can read it in place depends on strides, which the scheduler knows: it copies where it must.
    return {BufferId(v.body->id), v.body->args};
  }
  BufferId copy = stored(v, "copy");
  return {copy, variables(pool(), v.rank())};
}

BufferId Recorder::stored(const View& v, std::string_view name) {
  if (v.body->kind == ExprKind::load) {
    const BufferInfo& info = program_.buffer(BufferId(v.body->id));
    const TensorFace seen = face(info);
    bool identity = seen.dtype == v.dtype && seen.sizes == v.sizes;
    if (info.pairs) identity = identity && v.body->args.back() == part(pool());
    for (size_t i = 0; identity && i < v.rank(); ++i) {
      Expr c = v.body->args[i];
      identity = c == pool().var(static_cast<int32_t>(i)) || (is_constant(v.sizes[i], 1) && is_constant(c, 0));
    }
    if (identity) return BufferId(v.body->id);
  }
  View copy = pointwise(std::string(name), v.dtype, v.sizes, [&](Coordinates c) { return at(v, c); });
  program_.buffer(BufferId(copy.body->id)).why = "it is a copy: what reads it takes tensors whole, and this is a part, a view or a conversion of one";
  return BufferId(copy.body->id);
}

}  // namespace coil
