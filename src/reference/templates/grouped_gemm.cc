
#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {

Status Interpreter::run_template(const Loop& loop, const GroupedGemm& def) {
  const std::vector<int64_t> d = sizes({def.groups, def.m, def.n, def.k});
  const int64_t G = d[0], M = d[1], N = d[2], K = d[3];
  const bool rows = def.kind == GroupedGemm::Kind::rows;
  TRY(const Values ends, gathered({def.ends, {program_.pool->var(0)}}, {G}, {0}));
  TRY(const Values a, gathered(def.a, {M, K}, {1, 3}));
  TRY(Values b, gathered(def.b, {rows ? G : 1, K, N}, rows ? std::vector<int>{0, 3, 2} : std::vector<int>{4, 3, 2}));
  if (def.quantised) TRY_STATUS(dequantise(*def.quantised, static_cast<size_t>(N), b));
  Products sums(static_cast<size_t>((rows ? 1 : G) * M * N));
  int64_t begin = 0;
  for (int64_t g = 0; g < G; ++g) {
    const auto end = static_cast<int64_t>(ends.f[static_cast<size_t>(g)]);
    if (end < begin || end > (rows ? M : K))
      return Error{ErrorCode::input_value, "the ends of the groups of " + loop.op + " decrease, or leave what is grouped", "", ""};
    for (int64_t i = rows ? begin : 0; i < (rows ? end : M); ++i) {
      for (int64_t p = rows ? 0 : begin; p < (rows ? K : end); ++p) {
        const auto at = static_cast<size_t>(i * K + p), other = static_cast<size_t>(((rows ? g * K : 0) + p) * N);
        sums.add(static_cast<size_t>(((rows ? 0 : g * M) + i) * N), a.f[at], a.e.empty() ? 0 : a.e[at], b.f.data() + other, from(b.e, other),
                 static_cast<size_t>(N));
      }
    }
    begin = end;
  }
  store_product(loop.outputs[0], type_of(def.a.buffer), sums, static_cast<double>(K), arithmetic_.tf32.products);
  return ok_status();
}

}  // namespace coil::reference
