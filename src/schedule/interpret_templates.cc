// Templates of plans, as the loop program's definitions: a program of one definition reads the kernel's operands as vectors, at their linear offsets.
#include <numeric>

#include <fmt/format.h>

#include "loop/accumulator.h"
#include "loop/interpret.h"
#include "loop/templates/template.h"
#include "schedule/interpret_plan.h"

namespace coil {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

class TemplateRun {
 public:
  TemplateRun(PlanMemory& memory, const TemplateKernel& kernel) : memory_(memory), plan_(memory.plan()), kernel_(kernel), def_(kernel.def) {
    program_.pool = plan_.pool;
  }

  // The result, dense. dtype: of its elements.
  Result<TensorData> run(DType dtype) {
    visit_template(def_, [this](auto& def) { take(def); });
    BufferInfo out;
    out.name = "result", out.dtype = dtype, out.sizes = kernel_.result_sizes;
    const BufferId result = add(std::move(out), {});
    Loop loop;
    loop.def = std::move(def_);
    loop.outputs = {result};
    loop.op = template_name(loop.def);
    Interpreter interpreter(program_, memory_.symbols());
    for (size_t b = 0; b < contents_.size(); ++b) {
      if (BufferId(b) != result) interpreter.set(BufferId(b), contents_[b]);
    }
    TRY_STATUS(interpreter.run(loop));
    return interpreter.get(result);
  }

 private:
  ExprPool& pool() const { return memory_.pool(); }

  BufferId add(BufferInfo info, TensorData data) {
    program_.buffers.push_back(std::move(info));
    contents_.push_back(std::move(data));
    return BufferId(program_.buffers.size() - 1);
  }

  // Bytes as a buffer of these sizes, dense; the bytes stay where they are.
  BufferId add_dense(DType dtype, const std::vector<int64_t>& sizes, std::span<const uint8_t> bytes, std::shared_ptr<const void> owner = {}) {
    BufferInfo info;
    info.name = fmt::format("operand{}", program_.buffers.size());
    info.dtype = dtype;
    for (int64_t s : sizes) info.sizes.push_back(pool().index(s));
    TensorData data;
    data.dtype = dtype, data.sizes = sizes, data.bytes = bytes, data.owner = std::move(owner);
    data.strides.resize(sizes.size());
    int64_t step = 1;
    for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) data.strides[d] = step;
    CHECK(static_cast<int64_t>(bytes.size()) >= step * byte_size(dtype), "an operand with fewer elements than it has by its sizes");
    return add(std::move(info), std::move(data));
  }

  BufferId add_vector(BufferId id) {
    const PlanMemory::Piece p = memory_.piece(id);
    const DType dtype = plan_.buffer(id).info.dtype;
    return add_dense(dtype, {p.bytes / byte_size(dtype)}, {p.data, static_cast<size_t>(p.bytes)});
  }

  Operand linear(const PlanOperand& o) { return {add_vector(o.buffer), {o.offset}}; }

  // The constant that an operand's numbers are packed from; null: they lie as the operand's offset says.
  const PlanConstant* packed(const PlanOperand& o) const {
    const Placement& p = plan_.buffer(o.buffer).placement;
    if (p.kind != Placement::Kind::constant) return nullptr;
    const PlanConstant& c = plan_.constants[static_cast<size_t>(p.index)];
    return c.packing == PlanConstant::Packing::plain || c.packing == PlanConstant::Packing::padded_lines ? nullptr : &c;
  }

  // Variables [first, first + sizes.size()) as one, in row-major order.
  Expr merged(size_t first, const std::vector<Expr>& sizes) const {
    Expr number = pool().index(0);
    for (size_t i = 0; i < sizes.size(); ++i) number = number * sizes[i] + pool().var(static_cast<int32_t>(first + i));
    return number;
  }

  // A weight in panels: they hold k rows of n columns, `first` elements behind the constant's first one.
  Operand unpacked(const PlanConstant& c, const Gemm& g) {
    const size_t n0 = g.batch.size() + g.m.size(), k0 = n0 + g.n.size();
    CHECK(product(memory_.values(g.n)) == c.n && product(memory_.values(g.k)) == c.k, "a weight that is packed for another product");
    Expr at = pool().index(c.first) + merged(k0, g.k) * c.row_stride + merged(n0, g.n) * c.col_stride;
    if (c.batch_stride != 0) at = at + merged(0, g.batch) * c.batch_stride;
    const std::vector<uint8_t>& bytes = memory_.plain(c.buffer);
    const DType dtype = plan_.buffer(c.buffer).info.dtype;
    return {add_dense(dtype, {static_cast<int64_t>(bytes.size()) / byte_size(dtype)}, bytes), {at}};
  }

  Operand right(const PlanOperand& o, const Gemm& g) {
    const PlanConstant* c = packed(o);
    return c ? unpacked(*c, g) : linear(o);
  }

  void take(Gemm& g) {
    const Gemm as_it_was = g;
    g.a = linear(kernel_.operands[0]);
    g.b = right(kernel_.operands[1], as_it_was);
    if (!g.quantised) return;
    size_t next = 2;
    const std::vector<int64_t> sizes = {product(memory_.values(g.k)) / g.quantised->group, product(memory_.values(g.n))};
    for (BufferId* id : {&g.quantised->scale, &g.quantised->zero}) {
      if (id->valid()) *id = table(kernel_.operands[next++], sizes);
    }
  }

  // Scales or zero points of a product's groups.
  BufferId table(const PlanOperand& o, const std::vector<int64_t>& sizes) {
    if (const PlanConstant* c = packed(o)) {
      CHECK(c->k == sizes[0] && c->n == sizes[1] && c->row_stride == c->n && c->col_stride == 1, "a table that is packed for another product");
      return add_dense(plan_.buffer(c->buffer).info.dtype, sizes, memory_.plain(c->buffer));
    }
    const PlanMemory::Piece p = memory_.piece(o.buffer);
    return add_dense(plan_.buffer(o.buffer).info.dtype, sizes, {p.data, static_cast<size_t>(p.bytes)});
  }

  void take(GroupedGemm& g) {
    const Gemm batches = in_batches(g);
    g.a = linear(kernel_.operands[0]);
    g.b = right(kernel_.operands[1], batches);
    g.ends = add_vector(kernel_.operands[2].buffer);
  }

  // The weight by its own coordinates. Each way in which it is packed is one of the program's weight.
  void take(Conv2d& conv) {
    const BufferInfo& w = plan_.buffer(conv.weight).info;
    const std::vector<int64_t> sizes = memory_.values(w.sizes);
    const PlanOperand& first = kernel_.operands[1];
    for (const PlanOperand& o : kernel_.weights) CHECK(packed(o) && packed(o)->buffer == conv.weight, "a weight that is packed from another one");
    conv.x = linear(kernel_.operands[0]);
    if (const PlanConstant* c = packed(first)) {
      CHECK(c->buffer == conv.weight, "a weight that is packed from another one");
      conv.weight = add_dense(w.dtype, sizes, memory_.plain(c->buffer));
    } else {
      conv.weight = gathered(pool().load(first.buffer, w.dtype, {first.offset}), w.dtype, sizes);
    }
  }

  void take(Attention& a) {
    a.q = linear(kernel_.operands[0]);
    if (kernel_.past) {
      a.k = joined(kernel_.past->k, kernel_.operands[1], {a.batch, a.kv_heads, a.kv_len, a.dim});
      a.v = joined(kernel_.past->v, kernel_.operands[2], {a.batch, a.kv_heads, a.kv_len, a.v_dim});
    } else {
      a.k = linear(kernel_.operands[1]);
      a.v = linear(kernel_.operands[2]);
    }
    if (a.mask) a.mask = linear(kernel_.operands[3]);
  }

  // An expression with linear loads of the plan's buffers, at all points of a domain.
  BufferId gathered(Expr body, DType dtype, const std::vector<int64_t>& domain) {
    const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(product(domain) * byte_size(dtype)));
    const auto sink = [&](const interpreter::BlockView& b) { interpreter::write_block(dtype, bytes->data(), b.first, b, 0, b.count); };
    const Status done = interpreter::evaluate_blocks(body, domain, [this](BufferId id) { return memory_.linear(id); }, memory_.symbol_of(), sink);
    CHECK(done.ok(), "an operand whose places data says");
    return add_dense(dtype, domain, *bytes, bytes);
  }

  // Rows of the past, then those of the operand, which counts from there.
  Operand joined(const PlanOperand& past, const PlanOperand& rest, const std::vector<Expr>& sizes) {
    const DType dtype = plan_.buffer(rest.buffer).info.dtype;
    const Expr row = pool().var(2), rows = kernel_.past->rows, before = pool().op(ScalarOp::lt, {row, rows});
    const Expr behind = substitute_vars(rest.offset, std::vector<Expr>{pool().var(0), pool().var(1), row - rows});
    const Expr zero = pool().constant(0, compute_type(dtype));
    const Expr new_rows = pool().op(ScalarOp::masked, {pool().op(ScalarOp::logical_not, {before}), pool().load(rest.buffer, dtype, {behind}), zero});
    const Expr body = pool().op(ScalarOp::masked, {before, pool().load(past.buffer, dtype, {past.offset}), new_rows});
    std::vector<Expr> whole;
    for (int32_t v = 0; v < 4; ++v) whole.push_back(pool().var(v));
    return {gathered(body, dtype, memory_.values(sizes)), whole};
  }

  PlanMemory& memory_;
  const KernelPlan& plan_;
  const TemplateKernel& kernel_;
  LoopDef def_;
  LoopProgram program_;
  std::vector<TensorData> contents_;
};

// Past rows that others read with the new ones are copied in front of these.
Status keep_past(PlanMemory& memory, const TemplateKernel& kernel) {
  if (!kernel.past) return ok_status();
  const auto& a = std::get<Attention>(kernel.def);
  ExprPool& pool = memory.pool();
  const auto keep = [&](const PlanOperand& past, const PlanOperand& rest, Expr columns) {
    Stmt copy;
    copy.dtype = memory.plan().buffer(rest.buffer).info.dtype;
    copy.value = pool.load(past.buffer, copy.dtype, {past.offset});
    copy.buffer = rest.buffer;
    copy.offset = substitute_vars(rest.offset, std::vector<Expr>{pool.var(0), pool.var(1), pool.var(2) - kernel.past->rows});
    return run_statements(memory, {a.batch, a.kv_heads, kernel.past->rows, columns}, {copy}, {});
  };
  if (kernel.past->keep_k) TRY_STATUS(keep(kernel.past->k, kernel.operands[1], a.dim));
  if (kernel.past->keep_v) TRY_STATUS(keep(kernel.past->v, kernel.operands[2], a.v_dim));
  return ok_status();
}

}  // namespace

Status run_template_kernel(PlanMemory& memory, const TemplateKernel& kernel) {
  const DType stored = memory.plan().buffer(kernel.result).info.dtype, dtype = kernel.epilogue.empty() ? stored : compute_type(stored);
  TRY(const TensorData result, TemplateRun(memory, kernel).run(dtype));
  TRY_STATUS(keep_past(memory, kernel));
  std::vector<Stmt> stmts = kernel.epilogue;
  if (stmts.empty()) {
    Stmt store;
    store.dtype = stored;
    store.value = memory.pool().temp(kernel.acc, compute_type(stored));
    store.buffer = kernel.result;
    store.offset = kernel.result_offset;
    stmts.push_back(std::move(store));
  }
  return run_statements(memory, kernel.result_sizes, stmts, {kernel.acc, dtype, {result.bytes.begin(), result.bytes.end()}});
}

}  // namespace coil
