#include "schedule/interpret_template.h"

#include <numeric>

#include <fmt/format.h>

#include "loop/accumulator.h"
#include "loop/interpret.h"
#include "schedule/interpret_plan.h"
#include "schedule/templates/parts.h"

namespace coil {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

// Variables [first, first + sizes.size()) as one, in row-major order.
Expr merged(ExprPool& pool, size_t first, const std::vector<Expr>& sizes) {
  Expr number = pool.index(0);
  for (size_t i = 0; i < sizes.size(); ++i) number = number * sizes[i] + pool.var(static_cast<int32_t>(first + i));
  return number;
}

}  // namespace

TemplateRun::TemplateRun(PlanMemory& memory, const TemplateKernel& kernel) : memory_(memory), plan_(memory.plan()), kernel_(kernel), def_(kernel.def) {
  program_.pool = plan_.pool;
}

Result<TensorData> TemplateRun::run(DType dtype) {
  visit_template(def_, [this](auto& def) { read_from_plan(*this, def); });
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

BufferId TemplateRun::add(BufferInfo info, TensorData data) {
  program_.buffers.push_back(std::move(info));
  contents_.push_back(std::move(data));
  return BufferId(program_.buffers.size() - 1);
}

BufferId TemplateRun::add_dense(DType dtype, const std::vector<int64_t>& sizes, std::span<const uint8_t> bytes, std::shared_ptr<const void> owner) {
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

BufferId TemplateRun::add_as(BufferId id, const std::vector<int64_t>& sizes) {
  const PlanMemory::Piece p = memory_.piece(id);
  return add_dense(info(id).dtype, sizes, {p.data, static_cast<size_t>(p.bytes)});
}

BufferId TemplateRun::add_vector(BufferId id) { return add_as(id, {memory_.piece(id).bytes / byte_size(info(id).dtype)}); }

const PlanConstant* TemplateRun::packed(const PlanOperand& o) const {
  const Placement& p = plan_.buffer(o.buffer).placement;
  if (p.kind != Placement::Kind::constant) return nullptr;
  const PlanConstant& c = plan_.constants[static_cast<size_t>(p.index)];
  return c.packing == kPlain || c.packing == kPaddedLines ? nullptr : &c;
}

// A weight in panels: they hold k rows of n columns, `first` elements behind the constant's first one.
Operand TemplateRun::unpacked(const PlanConstant& c, const Gemm& g) {
  const size_t n0 = g.batch.size() + g.m.size(), k0 = n0 + g.n.size();
  CHECK(product(values(g.n)) == c.n && product(values(g.k)) == c.k, "a weight that is packed for another product");
  Expr at = pool().index(c.first) + merged(pool(), k0, g.k) * c.row_stride + merged(pool(), n0, g.n) * c.col_stride;
  if (c.batch_stride != 0) at = at + merged(pool(), 0, g.batch) * c.batch_stride;
  const std::vector<uint8_t>& bytes = memory_.plain(c.buffer);
  const DType dtype = plan_.buffer(c.buffer).info.dtype;
  return {add_dense(dtype, {static_cast<int64_t>(bytes.size()) / byte_size(dtype)}, bytes), {at}};
}

Operand TemplateRun::right(const PlanOperand& o, const Gemm& g) {
  const PlanConstant* c = packed(o);
  return c ? unpacked(*c, g) : linear(o);
}

BufferId TemplateRun::gathered(Expr body, DType dtype, const std::vector<int64_t>& domain) {
  const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(product(domain) * byte_size(dtype)));
  const auto sink = [&](const interpreter::BlockView& b) { interpreter::write_block(dtype, bytes->data(), b.first, b, 0, b.count); };
  const Status done = interpreter::evaluate_blocks(body, domain, [this](BufferId id) { return memory_.linear(id); }, memory_.symbol_of(), sink);
  CHECK(done.ok(), "an operand whose places data says");
  return add_dense(dtype, domain, *bytes, bytes);
}

Status run_template_kernel(PlanMemory& memory, const TemplateKernel& kernel) {
  const DType stored = memory.plan().buffer(kernel.result).info.dtype, dtype = kernel.epilogue.empty() ? stored : compute_type(stored);
  TRY(const TensorData result, TemplateRun(memory, kernel).run(dtype));
  if (kernel.past) TRY_STATUS(keep_past(memory, kernel));
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
