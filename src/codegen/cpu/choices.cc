#include "codegen/cpu/choices.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/index_text.h"
#include "codegen/user_text.h"
#include "device/kernels.h"
#include "schedule/depthwise.h"
#include "schedule/schedule.h"

namespace coil::cpu {
namespace {

using Packing = PlanConstant::Packing;
using Sizes = std::function<int64_t(SymbolId)>;

// The blocked product of device/kernels/block.h.
constexpr int64_t kBlockRows = 84, kMostPanels = 16;
constexpr int32_t kAttentionRows = 56, kAttentionTasks = 16;  // of device/kernels/attention.cc

// Nanoseconds of one thread: multiply-adds by 512-bit vectors, one element of A copied, one byte of B read again, one task begun, other
// threads woken. They order candidates; what is chosen is timed.
constexpr double kMultiplyAdds = 40, kCopiedElement = 0.12, kByteOfB = 0.03, kTask = 150, kWake = 4000;
constexpr double kLibraryGain = 0.05;
constexpr double kSmallWork = 1 << 18;      // vector operations of a loop that one thread may do as fast
constexpr double kLeastLoop = 1 << 11;      // vector operations of a loop whose form can matter: others take a microsecond
constexpr size_t kMostForms = 3;            // of a loop: each is a function to compile
constexpr double kSmallProduct = 1 << 23;   // multiply-adds, likewise

std::string texts(const std::vector<Expr>& sizes) {
  std::vector<std::string> parts;
  for (Expr e : sizes) parts.push_back(size_text(e));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

const TemplateKernel* as_template(const Kernel& k) { return std::get_if<TemplateKernel>(&k.def); }
const Conv2d* as_conv(const Kernel& k) {
  const TemplateKernel* t = as_template(k);
  return t ? std::get_if<Conv2d>(&t->def) : nullptr;
}
const Attention* as_attention(const Kernel& k) {
  const TemplateKernel* t = as_template(k);
  return t ? std::get_if<Attention>(&t->def) : nullptr;
}
const UserCallKernel* as_user(const Kernel& k) { return std::get_if<UserCallKernel>(&k.def); }
const Gemm* as_gemm(const Kernel& k) {
  const TemplateKernel* t = as_template(k);
  return t ? std::get_if<Gemm>(&t->def) : nullptr;
}

Packing packing_of(const KernelPlan& plan, BufferId id) {
  const Placement& p = plan.buffer(id).placement;
  return p.kind == Placement::Kind::constant ? plan.constants[static_cast<size_t>(p.index)].packing : Packing::plain;
}

std::string gemm_text(const KernelPlan& plan, const TemplateKernel& t, const Gemm& g) {
  ExprPool& pool = *plan.pool;
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
    const auto s = merged_stride(offset, first, sizes);
    return s ? size_text(*s) : std::string("?");
  };
  const Expr a = t.operands[0].offset, b = t.operands[1].offset;
  const std::string b_text = packing_of(plan, t.operands[1].buffer) == Packing::gemm_b ? "packed"
                                                                                       : fmt::format("strides {}, {}, {}", stride(b, 0, g.batch), stride(b, k0, g.k), stride(b, n0, g.n));
  const std::string quantised = g.quantised ? fmt::format(" quantised by {}", g.quantised->group) : "";
  return fmt::format("gemm {}, a {} strides {}, {}, {}, b {}{}",
                     texts({product(pool, g.batch), product(pool, g.m), product(pool, g.n), product(pool, g.k)}), name(plan.buffer(t.operands[0].buffer).info.dtype),
                     stride(a, 0, g.batch), stride(a, m0, g.m), stride(a, k0, g.k), b_text, quantised);
}

// A product as the blocked kernel sees it.
struct Blocked {
  double batch, rows, columns, depth;
  int64_t bytes = 4;  // of an element, as it is computed with
  double panel() const { return COIL_PANEL_COLUMNS(bytes); }
};

int64_t element_bytes(const KernelPlan& plan, const TemplateKernel& t) { return plan.buffer(t.operands[0].buffer).info.dtype == DType::f64 ? 8 : 4; }

double predicted(const Blocked& p, int64_t block_tiles, int64_t block_panels, int64_t tile_rows, const Machine& machine) {
  const double tiles = std::ceil(p.rows / static_cast<double>(tile_rows)), panels = std::ceil(p.columns / p.panel());
  const double row_blocks = std::ceil(tiles / static_cast<double>(block_tiles)), panel_blocks = std::ceil(panels / static_cast<double>(block_panels));
  const double tasks = p.batch * row_blocks * panel_blocks, threads = machine.threads;
  const double waves = std::ceil(tasks / threads) * threads / std::max(tasks, 1.0);
  const double compute = p.batch * p.rows * panels * COIL_PANEL * p.depth / (kMultiplyAdds * machine.lanes / 16);  // (a panel of doubles takes as long as one of floats)
  const double copies = p.batch * p.rows * p.depth * panel_blocks * kCopiedElement;
  const double reads = p.batch * panels * COIL_PANEL * 4 * p.depth * row_blocks * kByteOfB;
  return (compute + copies + reads + tasks * kTask) / threads * waves + (threads > 1 ? kWake : 0);
}

void add_blocks(const Blocked& p, int32_t method, const Machine& machine, std::vector<std::pair<double, Choice>>& out) {
  const int64_t tile_rows = machine.lanes == 16 ? 14 : 6;
  const auto tiles = static_cast<int64_t>(std::ceil(p.rows / static_cast<double>(tile_rows))), panels = static_cast<int64_t>(std::ceil(p.columns / p.panel()));
  for (int64_t block_tiles = 1; block_tiles <= std::min(tiles, kBlockRows / tile_rows); block_tiles += block_tiles < 4 ? 1 : 2) {
    for (int64_t block_panels = 1; block_panels <= std::min(panels, kMostPanels); block_panels *= 2) {
      const ProductChoice c = {method, static_cast<int32_t>(block_tiles), static_cast<int32_t>(block_panels)};
      out.emplace_back(predicted(p, block_tiles, block_panels, tile_rows, machine), choice_of(c));
    }
  }
}

Choice by(Method method) { return choice_of(ProductChoice{.method = method}); }
Choice one_thread() { return choice_of(OtherChoice{.threads = 1}); }  // of any kernel

// The own rule, `first` in their order, then the cheapest of `rest`.
std::vector<Choice> ordered(const std::vector<Choice>& first, std::vector<std::pair<double, Choice>> rest, size_t most) {
  std::vector<Choice> out = {Choice{}};
  out.insert(out.end(), first.begin(), first.end());
  std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [cost, choice] : rest) out.push_back(choice);
  if (out.size() > most) out.resize(most);
  return out;
}

// The types that oneDNN multiplies as we do, and layouts of which it can make its own.
bool suits_onednn(const KernelPlan& plan, const TemplateKernel& t) {
  const DType dtype = plan.buffer(t.operands[0].buffer).info.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16) return false;
  if (std::holds_alternative<Conv2d>(t.def)) {
    const PlanOperand* w = weight_of(plan, t, kOneDnn);
    return w && packing_of(plan, w->buffer) != Packing::plain;
  }
  const auto* g = std::get_if<Gemm>(&t.def);
  const Packing b = g ? packing_of(plan, t.operands[1].buffer) : Packing::plain;
  return g && !g->quantised && (b == Packing::gemm_b || b == Packing::plain);
}

std::vector<Choice> conv_candidates(const KernelPlan& plan, const TemplateKernel& t, const Conv2d& c, const Sizes& sizes, const Machine& machine, size_t most) {
  const bool onednn = machine.onednn && suits_onednn(plan, t);
  if (const Packing own = packing_of(plan, t.operands[1].buffer); own == Packing::depthwise_weight || own == Packing::narrow_groups_weight || own == Packing::few_outputs_weight ||
                                                                                own == Packing::conv_weight_integer) {
    return ordered(onednn ? std::vector<Choice>{by(kOneDnn)} : std::vector<Choice>{}, {}, most);
  }
  const std::vector<Expr>& w = plan.buffer(t.operands[1].buffer).info.sizes;
  const auto value = [&](Expr e) { return static_cast<double>(evaluate_index(e, sizes)); };
  const auto groups = static_cast<double>(c.groups);
  const Blocked p = {groups, value(t.result_sizes[0]) * value(t.result_sizes[2]) * value(t.result_sizes[3]), value(w[0]) / groups, value(w[1]) * value(w[2]) * value(w[3]), element_bytes(plan, t)};
  std::vector<Choice> first;
  const bool own_winograd = winograd_tile(packing_of(plan, t.operands[1].buffer)) != 0;
  if (!own_winograd && weight_of(plan, t, kWinograd)) first.push_back(by(kWinograd));
  if (own_winograd && weight_of(plan, t, kDirect)) first.push_back(by(kDirect));
  if (onednn) first.push_back(by(kOneDnn));
  std::vector<std::pair<double, Choice>> rest;
  if (weight_of(plan, t, kImplicit)) add_blocks(p, kImplicit, machine, rest);
  if (machine.threads > 1 && p.batch * p.rows * p.columns * p.depth < kSmallProduct) first.push_back(one_thread());
  return ordered(first, std::move(rest), most);
}

// Blocks of rows and keys: scores that stay in the first cache, tasks enough for all threads, or queries that share what is read of keys and values.
// units: heads of all images.
std::vector<std::pair<int32_t, int32_t>> attention_blocks(double units, double queries, double keys, const Machine& machine) {
  const int32_t tile_rows = machine.lanes == 16 ? 14 : 6, most = kAttentionRows / tile_rows, tiles = static_cast<int32_t>(std::min<double>(most, std::ceil(queries / tile_rows)));
  const bool own = tiles <= 2 || units * std::ceil(queries / (most * tile_rows)) >= kAttentionTasks;  // all tiles are the own rule
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

// work: of the whole loop, in vector operations.
std::vector<Choice> loop_candidates(const KernelPlan& plan, const LoopKernel& loop, double work, const Sizes& sizes, const Machine& machine, size_t most) {
  std::vector<Choice> first;
  if (work >= kLeastLoop) first = form_choices(plan, loop, sizes);
  if (first.size() > kMostForms) first.resize(kMostForms);
  if (machine.threads > 1) {
    if (work < kSmallWork) first.push_back(one_thread());
    for (const int32_t chunk : {2048, 32768}) {
      if (work > 2 * chunk) first.push_back(choice_of(LoopChoice{.chunk_work = chunk}));
    }
  }
  return ordered(first, {}, most);
}

}  // namespace

const PlanOperand* weight_of(const KernelPlan& plan, const TemplateKernel& k, int32_t method) {
  const PlanOperand& own = k.operands[1];
  if (method == kOwnMethod) return &own;
  const auto fits = [&](const PlanOperand& w) {
    const Packing packing = packing_of(plan, w.buffer);
    if (method == kWinograd) return winograd_tile(packing) != 0;
    return packing == Packing::conv_weight || packing == Packing::plain || ((packing == Packing::depthwise_weight || packing == Packing::narrow_groups_weight) && method == kOneDnn);
  };
  if (fits(own)) return &own;
  const auto it = std::find_if(k.weights.begin(), k.weights.end(), fits);
  return it == k.weights.end() ? nullptr : &*it;
}

bool can_run(const KernelPlan& plan, const Kernel& kernel, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) return static_cast<size_t>(as<UserChoice>(choice).config) < user->def.launches.size();
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) return chosen_form(plan, *loop, choice).has_value();
  const TemplateKernel* t = as_template(kernel);
  if (t && as<ProductChoice>(choice).method == kOneDnn) return suits_onednn(plan, *t);
  if (as_gemm(kernel)) return as<ProductChoice>(choice).method == kOwnMethod;
  return !as_conv(kernel) || weight_of(plan, *t, as<ProductChoice>(choice).method);
}

double needed_gain(const Kernel& kernel, const Choice& choice) { return as_template(kernel) && as<ProductChoice>(choice).method == kOneDnn ? kLibraryGain : 0; }

WeightCopy onednn_copy(const KernelPlan& plan, const Kernel& kernel) {
  const TemplateKernel* t = as_template(kernel);
  if (!t || !suits_onednn(plan, *t)) return {};
  const BufferId weight = as_conv(kernel) ? weight_of(plan, *t, kOneDnn)->buffer : t->operands[1].buffer;
  const Placement& p = plan.buffer(weight).placement;
  if (p.kind != Placement::Kind::constant) return {};
  const PlanConstant& c = plan.constants[static_cast<size_t>(p.index)];
  const BufferInfo& info = plan.buffer(weight).info;
  int64_t elements = c.batch * c.k * c.n;
  if (as_conv(kernel)) elements = product(*plan.pool, info.sizes)->as_int();
  else if (c.packing == Packing::plain) return {};
  return {weight, static_cast<uint64_t>(elements * byte_size(info.dtype))};
}

bool asks_onednn(const KernelPlan& plan, const Kernel& kernel, bool timed) {
  const TemplateKernel* t = as_template(kernel);
  const auto names_it = [](const ChoiceTable::Row& r) { return as<ProductChoice>(r.choice).method == kOneDnn; };
  return t && suits_onednn(plan, *t) && (timed || std::any_of(kernel.choices.rows.begin(), kernel.choices.rows.end(), names_it));
}

const ChoiceNames& value_names(const Kernel& kernel) {
  if (std::holds_alternative<LoopKernel>(kernel.def)) return LoopChoice::kNames;
  if (as_user(kernel)) return UserChoice::kNames;
  return as_conv(kernel) || as_gemm(kernel) ? ProductChoice::kNames : as_attention(kernel) ? AttentionChoice::kNames : OtherChoice::kNames;
}

static std::string method_text(const Kernel& kernel, int32_t method) {
  if (as_gemm(kernel)) return method == kOneDnn ? "onednn" : "";
  static constexpr const char* kMethods[] = {"", "direct", "implicit product", "winograd", "onednn"};
  return static_cast<size_t>(method) < std::size(kMethods) ? kMethods[method] : "unknown";
}

static std::string block_text(int32_t tiles, int32_t panels) {
  if (!tiles && !panels) return "";
  return "blocks of " + (tiles ? fmt::format("{} tiles", tiles) : "") + (tiles && panels ? " x " : "") + (panels ? fmt::format("{} panels", panels) : "");
}

std::string choice_text(const Kernel& kernel, const Choice& choice) {
  std::vector<std::string> parts;
  const auto chunks = [&](int32_t work) {
    if (work) parts.push_back(fmt::format("chunks of {} operations", work));
  };
  if (const UserCallKernel* user = as_user(kernel)) {
    const auto v = as<UserChoice>(choice);
    const auto config = static_cast<size_t>(v.config);
    if (config > 0 && config < user->def.kernel->configs.size()) parts.push_back(config_text(user->def.kernel->configs[config]));
    chunks(v.chunk_work);
  } else if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
    const auto v = as<LoopChoice>(choice);
    if (v.form) parts.push_back(form_text(*loop, choice));
    chunks(v.chunk_work);
  } else {
    const auto v = as<ProductChoice>(choice);
    if (as_gemm(kernel) || as_conv(kernel)) parts.push_back(method_text(kernel, v.method));
    parts.push_back(block_text(v.block_tiles, v.block_panels));
  }
  if (const int32_t threads = as<OtherChoice>(choice).threads) parts.push_back(threads == 1 ? "one thread" : fmt::format("{} threads", threads));
  std::erase(parts, "");
  return parts.empty() ? "default" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string conv_problem_text(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  std::vector<Expr> strides;
  for (int v = 0; v < 4; ++v) strides.push_back(as_affine(x_offset, v)->coefficient);
  return fmt::format("conv2d x {} strides {}, weight {} {}, result {}, stride {}x{} padding {}x{} dilation {}x{} groups {}", texts(c.x_sizes), texts(strides),
                     name(weight.dtype), texts(weight.sizes), texts(result_sizes), c.stride[0], c.stride[1], c.padding[0], c.padding[1], c.dilation[0], c.dilation[1],
                     c.groups);
}

std::string problem_text(const KernelPlan& plan, const Kernel& kernel, const std::string& function) {
  if (std::holds_alternative<LoopKernel>(kernel.def)) return "loop " + function;
  if (const UserCallKernel* user = as_user(kernel)) return user_problem_text(plan, *user, function);
  const TemplateKernel* t = as_template(kernel);
  if (!t) return "";
  if (const Conv2d* c = as_conv(kernel)) return conv_problem_text(*c, t->operands[0].offset, t->result_sizes, plan.buffer(t->operands[1].buffer).info);
  if (const Gemm* g = as_gemm(kernel)) return gemm_text(plan, *t, *g);
  if (!as_attention(kernel)) return "";
  const Attention& a = *as_attention(kernel);
  return fmt::format("attention {} {}{}{}", name(plan.buffer(t->operands[0].buffer).info.dtype), texts({a.batch, a.heads, a.kv_heads, a.q_len, a.kv_len, a.dim, a.v_dim}),
                     a.causal ? " causal" : "", t->past ? fmt::format(" past {}", size_text(t->past->rows)) : "");
}

// "batch" of "64*batch": as good to decide by, and what a reader knows.
static Expr without_factor(ExprPool& pool, Expr e) {
  for (size_t i = 0; i < pool.num_symbols(); ++i) {
    const Expr symbol = pool.symbol(SymbolId(i));
    if (symbol == e) return e;
    const int64_t factor = evaluate_index(e, [&](SymbolId id) { return id == SymbolId(i) ? 1 : 0; });
    if (factor > 0 && e == symbol * factor) return symbol;
  }
  return e;
}

static Expr plain_key(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch) {
  if (const Gemm* g = as_gemm(kernel)) return product(*plan.pool, g->batch) * product(*plan.pool, g->m);
  if (as_conv(kernel)) return as_template(kernel)->result_sizes[0] * as_template(kernel)->result_sizes[2] * as_template(kernel)->result_sizes[3];
  if (const Attention* a = as_attention(kernel)) return a->q_len * a->batch;
  if (as_template(kernel)) return product(*plan.pool, as_template(kernel)->result_sizes);
  return as_user(kernel) ? user_key(*as_user(kernel)) : launch.items;
}

Expr choice_key(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch) { return without_factor(*plan.pool, plain_key(plan, kernel, launch)); }

std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch, const Sizes& sizes, const Machine& machine, size_t most) {
  const auto value = [&](Expr e) { return static_cast<double>(evaluate_index(e, sizes)); };
  const bool several = machine.threads > 1;
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) return loop_candidates(plan, *loop, value(launch.items) * (value(launch.work) + 1), sizes, machine, most);
  if (const UserCallKernel* user = as_user(kernel)) {  // every configuration that the user gives is tried
    std::vector<Choice> out;
    for (size_t c = 0; c < user->def.launches.size(); ++c) out.push_back(choice_of(UserChoice{.config = static_cast<int32_t>(c)}));
    if (several && value(launch.items) > 1 && value(launch.items) * (value(launch.work) + 1) < kSmallWork) out.push_back(one_thread());
    return out;
  }
  const TemplateKernel* t = as_template(kernel);
  if (!t) return {Choice{}};
  if (const Conv2d* c = as_conv(kernel)) return conv_candidates(plan, *t, *c, sizes, machine, most);
  std::vector<Choice> first;
  if (const Gemm* g = as_gemm(kernel)) {
    const auto total = [&](const std::vector<Expr>& dims) { return value(product(*plan.pool, dims)); };
    const Blocked p = {total(g->batch), total(g->m), total(g->n), total(g->k), element_bytes(plan, *t)};
    if (machine.onednn && suits_onednn(plan, *t)) first.push_back(by(kOneDnn));
    if (several && p.batch * p.rows * p.columns * p.depth < kSmallProduct) first.push_back(one_thread());
    std::vector<std::pair<double, Choice>> rest;
    add_blocks(p, kOwnMethod, machine, rest);
    return ordered(first, std::move(rest), most);
  }
  if (!as_attention(kernel)) return {Choice{}};
  const Attention& a = *as_attention(kernel);
  for (const auto& [tiles, panels] : attention_blocks(value(a.batch) * value(a.heads), value(a.q_len), value(a.kv_len), machine)) {
    first.push_back(choice_of(AttentionChoice{.block_tiles = tiles, .block_panels = panels}));
  }
  if (several && value(a.batch) * value(a.heads) * value(a.q_len) * value(a.kv_len) * value(a.dim) < kSmallProduct) first.push_back(one_thread());
  return ordered(first, {}, most);
}

}  // namespace coil::cpu
