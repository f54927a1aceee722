#include "schedule/interpret_plan.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "loop/interpret.h"
#include "schedule/kernel_buffers.h"

namespace coil {
namespace {

// What bind_symbols() asks of a loop program: the inputs and their sizes.
LoopProgram inputs_alone(const KernelPlan& plan) {
  LoopProgram program;
  program.pool = plan.pool;
  program.inputs = plan.inputs;
  for (const PlanBuffer& b : plan.buffers) {
    BufferInfo& info = program.buffers.emplace_back();
    info.name = b.info.name, info.dtype = b.info.dtype, info.sizes = b.info.sizes;
  }
  return program;
}

}  // namespace

PlanInterpreter::PlanInterpreter(const KernelPlan& plan, PlanSettings settings, std::function<void(size_t kernel)> after,
                                 std::function<bool(size_t kernel)> instead)
    : plan_(plan), settings_(std::move(settings)), after_(std::move(after)), instead_(std::move(instead)), ends_(matching_ends(plan)) {}

Result<std::vector<TensorData>> PlanInterpreter::run(std::span<const TensorData> inputs) {
  TRY(std::vector<int64_t> symbols, bind_symbols(inputs_alone(plan_), inputs));
  if (plan_.workers.valid()) symbols[static_cast<size_t>(plan_.workers.index)] = settings_.workers;
  memory_ = std::make_unique<PlanMemory>(plan_, settings_, std::move(symbols), std::move(states_));
  for (size_t i = 0; i < inputs.size(); ++i) memory_->set_input(i, inputs[i]);
  due_.assign(plan_.checks.size(), 1);
  read_.clear();
  TRY_STATUS(check_sizes());
  TRY_STATUS(run_range(0, plan_.kernels.size()));
  TRY(std::vector<TensorData> found, results());
  states_ = memory_->take_states();
  return found;
}

TensorData PlanInterpreter::contents(BufferId id) {
  const BufferInfo& b = plan_.buffer(id).info;
  const PlanMemory::Piece p = memory_->piece(id);
  const auto bytes = std::make_shared<std::vector<uint8_t>>(p.data, p.data + p.bytes);
  TensorData out;
  out.dtype = b.dtype;
  out.sizes = memory_->values(b.sizes);
  out.strides = memory_->values(b.strides);
  out.bytes = *bytes;
  out.owner = bytes;
  return out;
}

void PlanInterpreter::put(BufferId id, const TensorData& data) {
  const PlanMemory::Piece to = memory_->piece(id);
  CHECK(static_cast<int64_t>(data.bytes.size()) == to.bytes, "other elements than the buffer's");
  std::copy(data.bytes.begin(), data.bytes.end(), to.data);
}

Result<std::vector<TensorData>> PlanInterpreter::results() {
  std::vector<TensorData> found;
  for (const LoopOutput& o : plan_.outputs) {
    if (o.kind == LoopOutput::Kind::check) continue;
    TensorData& made = found.emplace_back(contents(o.kind == LoopOutput::Kind::user ? o.source : o.target));
    const BufferInfo& b = plan_.buffer(o.source).info;
    if (o.kind != LoopOutput::Kind::user || b.shown.empty()) continue;
    made.sizes = memory_->values(b.shown);
    made.strides = memory_->values(face(b).strides);
  }
  return found;
}

Status PlanInterpreter::run_range(size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    if (const auto* mark = std::get_if<ControlMark>(&plan_.kernels[n].def)) {
      if (mark->opens()) {
        TRY_STATUS(run_region(n, static_cast<size_t>(ends_[n])));
        n = static_cast<size_t>(ends_[n]);
      } else if (mark->kind == ControlMark::Kind::stop_unless && !is_true(mark->predicate)) {
        stopped_ = true;
        return ok_status();
      }
    } else {
      TRY_STATUS(run_kernel(n));
    }
    if (after_) after_(n);
  }
  return ok_status();
}

Status PlanInterpreter::run_region(size_t begin, size_t end) {
  const auto& mark = std::get<ControlMark>(plan_.kernels[begin].def);
  memory_->spoil(mark.scratch);
  if (mark.kind == ControlMark::Kind::branch) return run_branch(begin, end, mark);
  return mark.kind == ControlMark::Kind::loop ? run_loop(begin, end, mark) : run_images(begin + 1, end, mark);
}

Status PlanInterpreter::run_branch(size_t begin, size_t end, const ControlMark& mark) {
  size_t other = end;
  for (size_t n = begin + 1; n < end; ++n) {
    const auto* inner = std::get_if<ControlMark>(&plan_.kernels[n].def);
    if (inner && inner->opens()) n = static_cast<size_t>(ends_[n]);
    else if (inner && inner->kind == ControlMark::Kind::otherwise) other = n;
  }
  if (is_true(mark.predicate)) return run_range(begin + 1, other);
  return other < end ? run_range(other + 1, end) : ok_status();
}

Status PlanInterpreter::run_loop(size_t begin, size_t end, const ControlMark& mark) {
  const int64_t steps = mark.steps ? memory_->value(mark.steps) : INT64_MAX;
  for (int64_t step = 0; step < steps; ++step) {
    memory_->set_symbol(mark.step, step);
    memory_->spoil(mark.scratch);
    stopped_ = false;
    TRY_STATUS(run_range(begin + 1, end));
    if (std::exchange(stopped_, false)) break;
  }
  return ok_status();
}

// As many images as make full rounds are spread, one worker each; the others come one after the other, each on all workers.
Status PlanInterpreter::run_images(size_t first, size_t end, const ControlMark& mark) {
  const int64_t images = memory_->value(mark.steps), workers = settings_.workers, even = images - images % workers;
  const PlanMemory::Piece all = memory_->piece(mark.scratch);
  const int64_t one = memory_->value(mark.part_bytes);
  for (int64_t image = 0; image < images; ++image) {
    const bool alone = image < even;
    const int64_t begin = alone ? image % workers * one : 0;
    CHECK(begin + (alone ? one : 0) <= all.bytes, "more workers than have a part of the memory of images");
    memory_->set_image(PlanMemory::Image{image, {all.data + begin, alone ? one : all.bytes}, alone ? 1 : workers});
    TRY_STATUS(run_range(first, end));
  }
  memory_->set_image(std::nullopt);
  return ok_status();
}

// Whole results, of which the old contents count nothing: an operand that lies there is gone before it is read, as it may be when a kernel of several
// threads reads it. Loops may write a part of a buffer, or over what they read.
void PlanInterpreter::spoil_results(const KernelBuffers& used) {
  for (BufferId id : used.writes) {
    const bool computed = plan_.buffer(id).info.kind == BufferInfo::Kind::computed;
    if (computed && std::find(used.reads.begin(), used.reads.end(), id) == used.reads.end()) memory_->spoil(id);
  }
}

bool PlanInterpreter::is_true(BufferId predicate) { return *memory_->piece(predicate).data != 0; }

Status PlanInterpreter::run_kernel(size_t n) {
  const Kernel& k = plan_.kernels[n];
  Status done = ok_status();
  try {
    const KernelBuffers used = buffers_of(k);
    for (BufferId id : used.own) memory_->spoil(id);
    if (!std::holds_alternative<LoopKernel>(k.def) && !std::holds_alternative<CopyKernel>(k.def)) spoil_results(used);
    if (const auto* loop = std::get_if<LoopKernel>(&k.def)) done = run_loop_kernel(*memory_, *loop);
    else if (const auto* t = std::get_if<TemplateKernel>(&k.def)) done = run_template_kernel(*memory_, *t);
    else if (const auto* sort = std::get_if<SortKernel>(&k.def)) done = run_sort_kernel(*memory_, *sort);
    else if (const auto* copy = std::get_if<CopyKernel>(&k.def)) done = run_copy(*copy);
    else if (const auto* read = std::get_if<ReadKernel>(&k.def)) done = run_read(*read);
    else if (const auto* library = std::get_if<LibraryKernel>(&k.def)) done = run_library_kernel(*memory_, *library);
    else done = Error{ErrorCode::unsupported_feature, "the user's kernel " + std::get<UserCallKernel>(k.def).def.kernel->name + " has no reference", "", ""};
    for (BufferId id : used.own) memory_->spoil(id);
  } catch (const InternalError& error) {
    return Error{ErrorCode::internal, fmt::format("kernel {} '{}': {}", n, k.name, error.what()), "", ""};
  }
  if (done.ok()) return done;
  if (done.error().code == ErrorCode::unsupported_feature && instead_ && instead_(n)) return ok_status();
  if (!k.assertion.empty() && done.error().code == ErrorCode::input_value) return Error{ErrorCode::runtime_assert, k.assertion, "", ""};
  return std::move(done).error().with_context(fmt::format("kernel {} '{}'", n, k.name));
}

void PlanInterpreter::copy_elements(const CopyKernel& k, const PlanMemory::Piece& from, const PlanMemory::Piece& to) {
  const BufferInfo &source = plan_.buffer(k.from).info, &target = plan_.buffer(k.to).info;
  const auto bytes = static_cast<size_t>(byte_size(target.dtype));
  const size_t rank = target.sizes.size();
  int64_t count = 1;
  for (Expr size : target.sizes) count *= memory_->value(size);
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number, read = 0, write = 0;
    for (size_t d = rank; d-- > 0;) {
      const int64_t size = memory_->value(target.sizes[d]), at = rest % size;
      rest /= size;
      read += at * memory_->value(source.strides[d]), write += at * memory_->value(target.strides[d]);
    }
    const auto begin = static_cast<int64_t>(bytes);
    CHECK((read + 1) * begin <= from.bytes && (write + 1) * begin <= to.bytes, "an element outside of its buffer");
    std::memcpy(to.data + write * begin, from.data + read * begin, bytes);
  }
}

Status PlanInterpreter::run_copy(const CopyKernel& k) {
  const PlanMemory::Piece from = memory_->piece(k.from), to = memory_->piece(k.to);
  if (copies_elements(plan_, k)) {
    copy_elements(k, from, to);
    return ok_status();
  }
  const int64_t begin = k.to_element ? memory_->value(k.to_element) * byte_size(plan_.buffer(k.to).info.dtype) : 0;
  CHECK(begin >= 0 && begin + from.bytes <= to.bytes, "a copy of more than there is room for");
  if (from.bytes > 0) std::memmove(to.data + begin, from.data, static_cast<size_t>(from.bytes));
  return ok_status();
}

Status PlanInterpreter::run_read(const ReadKernel& k) {
  const Symbol& symbol = plan_.pool->symbol_info(k.symbol);
  int64_t value = 0;
  std::memcpy(&value, memory_->piece(k.source).data, sizeof value);
  const int64_t most = k.limit ? std::min(symbol.max, memory_->value(k.limit)) : symbol.max;
  const bool fits = value >= symbol.min && value <= most;
  memory_->set_symbol(k.symbol, value);
  read_.push_back(k.symbol);
  TRY_STATUS(check_sizes());  // the program's own words first
  if (fits) {
    memory_->read_symbol(k.symbol, value);
    return ok_status();
  }
  return Error{ErrorCode::runtime_assert,
               fmt::format("the size '{}' that the program reads from data is {}, not in {}..{}", symbol.label, value, symbol.min, most), "", ""};
}

// Those of which all sizes are known, once.
Status PlanInterpreter::check_sizes() {
  for (size_t i = 0; i < plan_.checks.size(); ++i) {
    const SizeCheck& c = plan_.checks[i];
    const Expr holds = coil::holds(*plan_.pool, c.condition);
    const bool known = !any_of(holds, [&](Expr n) {
      return n->kind == ExprKind::symbol && depends_on_data(n) && std::find(read_.begin(), read_.end(), SymbolId(n->id)) == read_.end();
    });
    if (!due_[i] || !known) continue;
    due_[i] = 0;
    if (memory_->value(holds) != 0) continue;
    if (c.message.empty()) return Error{ErrorCode::input_size, "the sizes must satisfy " + to_string(c.condition), "", ""};
    return Error{ErrorCode::runtime_assert, "assertion failed: " + c.message, c.where, ""};
  }
  return ok_status();
}

}  // namespace coil
