// Epilogues of templates (a tile of finished rows and columns becomes the fused loops' result), and sorts.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/emit_expr.h"
#include "loop/templates/template.h"

namespace coil::cpu {
// Of a tile's sums, by the template's result.
static const char* tile_type(DType dtype) { return is_int(dtype) ? "int" : dtype == DType::f64 ? "double" : "float"; }

KernelText epilogue_text(const KernelPlan& plan, const TemplateKernel& k, const std::vector<int>& symbols) {
  ExprPool& pool = *plan.pool;
  KernelNames names(plan, symbols);
  EmitContext context;
  context.vars = {"batch", "row", "col"};
  const TemplateTiles tiles = template_tiles(pool, k.def, k.result_sizes);
  context.sizes = tiles.sizes;
  context.lane_var = 2;
  int next_name = 0;
  std::string body;
  std::vector<BufferId> written;
  const auto pass = [&](bool tail) {
    context.tail = tail ? "lanes" : "";
    const std::string indent = "      ";
    context.temps[k.acc.index] = {tail ? "cd::load_tail(tile + col, lanes)" : "cd::load(tile + col)", true};
    ExprEmitter emitter(names, context, body, indent, next_name);
    for (const Stmt& s : k.epilogue) {
      const std::string pointer = names.pointer(s.buffer);
      const Expr offset = reindex(s.offset, tiles.coordinates, context.sizes);
      emitter.store(pointer, offset, reindex(s.value, tiles.coordinates, context.sizes));
      written.push_back(s.buffer);
      // The next tile's lines come while its sums are computed: loads and stores that wait for them would hold up the multiply-adds.
      const auto fetch = [&](const char* function, const std::string& from, Expr at) {
        const auto by_row = as_affine(at, 1), by_col = as_affine(at, 2);
        if (!by_row || !by_col || by_row->coefficient == pool.index(0) || by_col->coefficient != pool.index(1)) return;
        const std::string first = emitter.index(at), step = emitter.index(by_row->coefficient);
        body += fmt::format("{}cd::{}({} + {} + rows * {});\n", indent, function, from, first, step);
      };
      fetch("fetch_for_store", pointer, offset);
      visit(reindex(s.value, tiles.coordinates, context.sizes), [&](Expr e) {
        if (e->kind != ExprKind::load || (BufferId(e->id) == s.buffer && e->args[0] == offset)) return;
        fetch("fetch", names.pointer(BufferId(e->id)), e->args[0]);
      });
    }
  };
  body +=
      "  for (long row = row0; row < row0 + rows; ++row) {\n    const @TILE@* tile = (const @TILE@*)acc + (row - row0) * ld - col0;\n    long col = col0;\n";
  body += "    for (; col + COIL_LANES <= col0 + cols; col += COIL_LANES) {\n";
  pass(false);
  body += "    }\n    if (col < col0 + cols) {\n      const int lanes = (int)(col0 + cols - col);\n";
  pass(true);
  body += "    }\n  }\n";
  replace_all(body, "@TILE@", tile_type(plan.buffer(k.result).info.dtype));
  KernelText t;
  t.body =
      "extern \"C\" COIL_KERNEL void @NAME@(const void* context, [[maybe_unused]] long batch, long row0, long col0, long rows, long cols, float* acc,\n"
      "    long ld) {\n  const coil_args& a = *(const coil_args*)context;\n  [[maybe_unused]] const long* s = a.s;\n" +
      pointer_declarations(plan, names.buffers(), written, false) + body + "}\n";
  t.headers.assign(names.headers().begin(), names.headers().end());
  t.buffers = names.buffers();
  t.symbols = names.symbols();
  t.items = t.work = pool.index(1);
  return t;
}

KernelText sort_kernel_text(const KernelPlan& plan, const SortKernel& k, const std::vector<int>& symbols) {
  ExprPool& pool = *plan.pool;
  KernelNames names(plan, symbols);
  EmitContext context;
  const auto dim = static_cast<size_t>(k.def.dim);
  Expr items = pool.index(1);
  for (size_t d = 0; d < std::max<size_t>(k.sizes.size(), 1); ++d) {
    context.vars.push_back(d == dim ? "j" : "i" + std::to_string(d));
    if (k.sizes.empty()) break;
    context.sizes.push_back(k.sizes[d]);
    if (d != dim) items = items * k.sizes[d];
  }
  const std::string type = memory_type(k.dtype);
  int next_name = 0;
  std::string body, fill, drain;
  const auto index = [&](Expr e) {
    std::string ignored;
    return ExprEmitter(names, context, ignored, "", next_name).index(e);
  };
  const std::string scratch = names.pointer(k.scratch), values = names.pointer(k.values), indices = names.pointer(k.indices);
  const std::string length = index(k.def.length), kept = k.sizes.empty() ? "1" : index(k.sizes[dim]);
  body += "  for (long item = begin; item < end; ++item) {\n    [[maybe_unused]] long rest = item;\n";
  for (size_t d = k.sizes.size(); d-- > 0;) {
    if (d == dim) continue;
    const std::string n = index(k.sizes[d]);
    body += fmt::format("    const long i{} = rest % {};\n    rest /= {};\n", d, n, n);
  }
  {
    ExprEmitter emitter(names, context, fill, "      ", next_name);
    const auto v = emitter.value(k.body);
    fill += fmt::format("      cd::store1(v + j, {});\n      o[j] = j;\n", v.text);
  }
  const std::string value_at = index(k.values_offset), place_at = index(k.indices_offset);
  drain += fmt::format("      {}[{}] = v[j];\n      {}[{}] = o[j];\n", values, value_at, indices, place_at);
  body += fmt::format("    for (long j = 0; j < {}; ++j) {{\n{}    }}\n", length, fill);
  const char* order = k.def.descending ? "true" : "false";
  body += kept == length ? fmt::format("    cd::stable_sort(v, o, v2, o2, {}, {});\n", length, order)
                         : fmt::format("    cd::sort_first(v, o, v2, o2, {}, {}, {});\n", length, kept, order);
  body += fmt::format("    for (long j = 0; j < {}; ++j) {{\n{}    }}\n  }}\n", kept, drain);
  const std::string setup = fmt::format(
      "  const long n = {0};\n  cd::i64* o = (cd::i64*)((char*){1} + worker * n * {2});\n  cd::i64* o2 = o + n;\n  {3}* v = ({3}*)(o2 + n);\n  {3}* v2 = v + n;\n",
      length, scratch, 2 * byte_size(k.dtype) + 16, type);
  names.need_header("sort.h");
  KernelText t;
  t.body =
      "extern \"C\" COIL_KERNEL void @NAME@(void* context, long begin, long end, int worker) {\n"
      "  const coil_args& a = *(const coil_args*)context;\n  [[maybe_unused]] const long* s = a.s;\n" +
      pointer_declarations(plan, names.buffers(), {k.values, k.indices, k.scratch}, true) + setup + body + "}\n";
  t.headers.assign(names.headers().begin(), names.headers().end());
  t.buffers = names.buffers();
  t.symbols = names.symbols();
  t.items = items;
  t.work = k.def.length * 40;
  return t;
}

}  // namespace coil::cpu
