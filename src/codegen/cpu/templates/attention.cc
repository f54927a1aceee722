#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/cpu/templates/call_fields.h"
#include "codegen/cpu/templates/parts.h"
#include "codegen/index_text.h"
#include "device/kernels.h"

namespace coil::cpu {
namespace {

// Blocks of rows and keys: scores that stay in the first cache, tasks enough for all threads, or queries that share what is
// read of keys and values. units: heads of all images.
std::vector<std::pair<int32_t, int32_t>> attention_blocks(double units, double queries, double keys, const Machine& machine) {
  const int32_t tile_rows = COIL_VECTOR_TILE_ROWS(machine.lanes), most = COIL_ATTENTION_ROWS / tile_rows,
                tiles = static_cast<int32_t>(std::min<double>(most, std::ceil(queries / tile_rows)));
  const bool own = tiles <= 2 || units * std::ceil(queries / (most * tile_rows)) >= COIL_ATTENTION_TASKS;  // all tiles are the own rule
  std::vector<std::pair<int32_t, int32_t>> out;
  for (const int32_t panels : {4, 2}) {
    if (keys > panels * COIL_PANEL) out.emplace_back(0, panels);
  }
  for (const int32_t part : {1, 2, 4}) {
    if (tiles / part < 1) break;
    if (part > 1 || !own) out.emplace_back(tiles / part, 0);
    if ((part > 1 || !own) && keys > 4 * COIL_PANEL) out.emplace_back(tiles / part, 4);
  }
  return out;
}

}  // namespace

std::string problem(const TemplateUse& use, const Attention& a) {
  const auto& past = use.kernel.past;
  return fmt::format("attention {} {}{}{}", name(use.info(0).dtype), size_texts({a.batch, a.heads, a.kv_heads, a.q_len, a.kv_len, a.dim, a.v_dim}),
                     a.causal ? " causal" : "", past ? fmt::format(" past {}", size_text(past->rows)) : "");
}

Expr key(const TemplateUse&, const Attention& a) { return a.q_len * a.batch; }

const ChoiceNames& choice_names(const Attention&) { return AttentionChoice::kNames; }
std::string method_text(const Attention&, int32_t) { return ""; }
bool has_method(const TemplateUse&, const Attention&, int32_t) { return true; }
OneDnnWeight onednn_weight(const TemplateUse&, const Attention&) { return {}; }

std::vector<Choice> candidates(const TemplateUse&, const Attention& a, const Sought& sought) {
  const auto value = [&](Expr e) { return sought.value(e); };
  std::vector<Choice> first;
  for (const auto& [tiles, panels] : attention_blocks(value(a.batch) * value(a.heads), value(a.q_len), value(a.kv_len), sought.machine)) {
    first.push_back(choice_of(AttentionChoice{.block_tiles = tiles, .block_panels = panels}));
  }
  const double products = value(a.batch) * value(a.heads) * value(a.q_len) * value(a.kv_len) * value(a.dim);
  if (sought.machine.threads > 1 && products < kSmallProduct) first.push_back(one_thread());
  return ordered(first, {}, sought.most);
}

KernelHint hint(const TemplateUse&, const Attention&) { return {}; }
std::string device_object(const TemplateUse&, const Attention&) { return "attention"; }

Expr scratch(const TemplateUse& use, const Attention&) { return use.pool().symbol(use.plan.workers) * COIL_ATTENTION_WORKER_BYTES; }

namespace {

// Where an operand begins, and its strides.
void add_rows(CallWriter& to, const std::string& name, const PlanOperand& x) {
  to.element(name, x, 4);
  const char* dims[] = {"_batch", "_head", "_row"};
  for (int v = 0; v < 3; ++v) to.add(name + dims[v], as_affine(x.offset, v)->coefficient);
}

}  // namespace

void add_fields(CallWriter& to, const Attention& a) {
  const TemplateKernel& t = to.kernel;
  to.set_type("CoilAttention");
  to.add("batch", a.batch);
  to.add("heads", a.heads);
  to.add("kv_heads", a.kv_heads);
  to.add("q_len", a.q_len);
  to.add("kv_len", a.kv_len);
  to.add("dim", a.dim);
  to.add("v_dim", a.v_dim);
  const char* names[] = {"q", "k", "v", "mask"};
  for (size_t i = 0; i < t.operands.size(); ++i) {
    add_rows(to, names[i], t.operands[i]);
    if (i != 3) continue;
    to.add("mask_col", as_affine(t.operands[i].offset, 3)->coefficient);
    to.add("mask_dtype", to.dtype(t.operands[i].buffer));
  }
  if (t.past) {
    to.add("past", t.past->rows);
    add_rows(to, "k_past", t.past->k);
    add_rows(to, "v_past", t.past->v);
    to.add("keep_k_past", t.past->keep_k);
    to.add("keep_v_past", t.past->keep_v);
  }
  to.add("causal", a.causal);
  to.add("masked_rows_zero", a.masked_rows_zero);
  to.add("dtype", to.dtype(t.operands[0].buffer));
  to.number("scale", fmt::format("(float){:.17g}", a.scale));
  if (a.mask) to.number("highest_fill", highest_fill_text(a));
  to.pointer("o", t.result);
  const char* strides[] = {"o_batch", "o_head", "o_row"};
  for (int v = 0; v < 3; ++v) to.add(strides[v], as_affine(t.result_offset, v)->coefficient);
}

std::string method_fields(const TemplateUse&, const Attention&) { return ""; }

}  // namespace coil::cpu
