// Rows of a table that data names (an embedding's): looked up once an item, and those of items to come are asked for.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cpu/cpu_machine.h"
#include "codegen/cpu/loop_writer.h"
#include "ops/dtype.h"

namespace coil::cpu {
namespace {

// Rows lie anywhere in memory, which takes some 100 ns to answer: the time in which a core copies a few KB. Longer rows are read ahead by the machine.
constexpr int kItemsAhead = 8;
constexpr int64_t kBytesAhead = 512;

// Whether an item has one value of it, which needs none of the item's own.
bool of_item(Expr e, int lanes, int num_outer) {
  return !any_of(e, [&](Expr n) {
    return n->kind == ExprKind::temp || (n->kind == ExprKind::load && n->id >= kScratchBase) || n->is_op(ScalarOp::masked) ||
           (n->kind == ExprKind::var && (n->id == lanes || n->id >= num_outer));
  });
}

}  // namespace

std::vector<Expr> LoopWriter::rows_of(Expr offset) const {
  std::vector<Expr> rows;
  any_of(offset, [&](Expr n) {
    if (n->is_op(ScalarOp::checked_index) && of_item(n, form_.lanes, k_.num_outer)) rows.push_back(n);
    return false;
  });
  return rows;
}

void LoopWriter::rows_of_item(const ItemParts& parts, int64_t block) {
  if (form_.across >= 0 || !(lane_outer() || any_inner())) return;
  std::vector<Stmt> always;
  for (const Stmt& s : k_.stmts) {
    if (!s.condition) always.push_back(s);
  }
  const std::vector<Expr> loads = unconditional_loads(always);
  ask_for_rows(loads, parts, block);
  for (Expr load : loads) look_up_rows(load->args[0]);
  for (const Stmt& s : always) {
    if (s.kind == Stmt::Kind::store) look_up_rows(s.offset);
  }
}

void LoopWriter::look_up_rows(Expr offset) {
  ExprEmitter emitter(names_, context_, out(), "    ", next_name_);
  for (Expr row : rows_of(offset)) {
    if (context_.rows.contains(row.node())) continue;
    const std::string text = emitter.index(row), name = "row" + std::to_string(next_name_++);
    out() += fmt::format("    const long {} = {};\n", name, text);
    context_.rows[row.node()] = name;
  }
}

// Whatever the data is, asking for memory reads none: these positions are not checked.
void LoopWriter::ask_for_rows(const std::vector<Expr>& loads, const ItemParts& parts, int64_t block) {
  EmitContext ahead = context_;
  ahead.rows.clear();
  for (size_t a = 0; a < k_.axes.size(); ++a) {
    if (static_cast<int>(a) >= k_.num_outer) ahead.vars[a] = "0";
  }
  if (lane_outer()) ahead.vars[static_cast<size_t>(form_.lanes)] = fmt::format("(block * {})", block);
  std::string body;
  ExprEmitter emitter(names_, ahead, body, "      ", next_name_);
  for (Expr load : loads) {
    const std::vector<Expr> rows = rows_of(load->args[0]);
    if (rows.empty() || form_.lanes < 0 || !unit_stride(load->args[0], form_.lanes)) continue;
    const BufferInfo& table = plan_.buffer(BufferId(load->id)).info;
    const int64_t element = byte_size(table.dtype);
    const auto bytes = upper_bound(product(pool(), table.sizes) * pool().index(element));
    if (bytes && *bytes <= near_bytes(machine_of(plan_))) continue;
    for (Expr row : rows) ahead.rows[row.node()] = emitter.value(row->args[0]).text;
    const int64_t most = std::min(kBytesAhead / element, lane_outer() ? block : kBytesAhead);
    body += fmt::format("      cd::fetch_row({} + {}, cd::minimum((cd::i64){}, (cd::i64)({})));\n", names_.pointer(BufferId(load->id)),
                        emitter.index(load->args[0]), most, size(form_.lanes));
  }
  if (body.empty()) return;
  out() += fmt::format("    if (item + {} < end) {{\n{}{}    }}\n", kItemsAhead, unpack(parts, fmt::format("item + {}", kItemsAhead), "      "), body);
}

}  // namespace coil::cpu
