// Loops over steps: regions, or the steps written out one after the other: those of short loops, or all that can be (LowerOptions::straight_line).
#include "lower/steps.h"

#include <fmt/format.h>

namespace coil::lowering {

View needed(Op& op, const View& v) {
  if (!v.body) fail(ErrorCode::unsupported_feature, op.node.target + ": a subgraph returns a value that is not a tensor");
  return v;
}

// Sizes that a branch reads from its own data are not known outside of it.
void refuse_inner_sizes(Op& op, Part& part, const View& v) {
  for (const auto& [symbol, buffer] : part.session().recorder.program().data_sizes) {
    const Expr unknown = op.pool.symbol(symbol);
    const bool found = std::any_of(v.sizes.begin(), v.sizes.end(), [&](Expr size) { return any_of(size, [&](Expr e) { return e == unknown; }); });
    if (found)
      fail(ErrorCode::unsupported_feature, op.node.target + ": the size of a result depends on data inside of a subgraph",
           "compute what decides the size before it");
  }
}

Views rows_at(Recorder& rec, const Views& tensors, Expr t) {
  Views all;
  for (const View& v : tensors) {
    all.push_back(rec.view(v, Sizes(v.sizes.begin() + 1, v.sizes.end()), [&](Coordinates c) {
      std::vector<Expr> at = {t};
      at.insert(at.end(), c.begin(), c.end());
      return at;
    }));
  }
  return all;
}

namespace {

// Loops whose steps are written out: where the target wants straight lines, and elsewhere.
constexpr int64_t kMostSteps = 512;
constexpr int64_t kMostNodes = 1 << 14;  // in all steps
constexpr int64_t kShortNodes = 48;      // in all steps

Views operands_of_step(const Views& carry, const Views& rows, const Views& extra) {
  Views all = carry;
  all.insert(all.end(), rows.begin(), rows.end());
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

void check_step(Op& op, const Steps& s, const Views& results) {
  if (results.size() < s.carry.size()) fail(ErrorCode::bad_program, op.node.target + ": its subgraph returns less than it carries");
  for (size_t i = 0; i < s.carry.size(); ++i) {
    const View &from = s.carry[i], to = needed(op, results[i]);
    bool same = from.dtype == to.dtype && from.rank() == to.rank();
    for (size_t d = 0; same && d < from.rank(); ++d) same = provably_equal(from.sizes[d], to.sizes[d]);
    if (!same)
      fail(ErrorCode::unsupported_feature, op.node.target + ": a value that is carried from step to step changes its dtype or its sizes",
           "give it the same sizes in all steps");
  }
}

// Steps are numbered as they are made, so the youngest symbol of a step has the largest number.
Expr new_step(Op& op) {
  constexpr std::string_view kPrefix = "coil.step";
  int number = 0;
  for (size_t i = op.pool.num_symbols(); i-- > 0 && number == 0;) {
    const std::string& name = op.pool.symbol_info(SymbolId(i)).name;
    if (name.starts_with(kPrefix)) number = std::stoi(name.substr(kPrefix.size())) + 1;
  }
  Symbol symbol;
  symbol.name = fmt::format("{}{}", kPrefix, number);
  symbol.label = symbol.name.substr(5);
  symbol.min = 0;
  return op.pool.symbol(op.pool.add_symbol(symbol));
}

// The region of a loop. `goes_on`, if there, is the condition.
Views looped(Op& op, const Steps& s, const StepBody* goes_on) {
  Region region;
  region.kind = Region::Kind::loop;
  const Expr step = new_step(op);
  region.step = SymbolId(step->id);
  region.steps = s.count;
  std::vector<Part::Done> done;
  std::vector<Recorder::Result> results;
  for (const View& v : s.carry) {
    results.push_back({v.dtype, v.sizes});
    region.initial.push_back(op.rec.stored(v, "initial"));
  }
  for (const StepBody* body : {&s.step.body, goes_on}) {
    if (!body) continue;
    Part part(op.session);
    part.session().in_loop = true;
    Recorder& rec = part.session().recorder;
    rec.set_origins(op.node.origins);
    Views carry;
    for (size_t i = 0; i < s.carry.size(); ++i) carry.push_back(part.carried(i, s.carry[i].dtype, s.carry[i].sizes));
    const Views rows = rows_at(rec, part.capture(s.rows), step);
    const Views found = (*body)(part.session(), operands_of_step(carry, rows, part.capture(s.extra)));
    rec.set_origins(op.node.origins);
    if (body == goes_on) {
      if (found.size() != 1) fail(ErrorCode::bad_program, op.node.target + ": its condition gives several values");
      const View holds = needed(op, found[0]);
      if (holds.rank() != 0) fail(ErrorCode::unsupported_feature, op.node.target + ": its condition is no single value");
      rec.result({DType::boolean, {}, as(holds.body, DType::boolean)}, DType::boolean, {});
      done.push_back(part.finish());
      continue;
    }
    check_step(op, s, found);
    for (size_t i = 0; i < found.size(); ++i) {
      const View v = needed(op, found[i]);
      refuse_inner_sizes(op, part, v);
      rec.result(v, v.dtype, i < s.carry.size() ? s.carry[i].sizes : v.sizes);
      if (i < s.carry.size()) continue;
      Sizes all = {s.count};
      all.insert(all.end(), v.sizes.begin(), v.sizes.end());
      results.push_back({v.dtype, std::move(all)});
    }
    if (s.previous) {
      for (size_t i = 0; i < s.carry.size(); ++i) {
        rec.result(found[i], found[i].dtype, s.carry[i].sizes);
        Sizes all = {s.count};
        all.insert(all.end(), s.carry[i].sizes.begin(), s.carry[i].sizes.end());
        results.push_back({found[i].dtype, std::move(all)});
      }
    }
    done.push_back(part.finish());
  }
  op.rec.set_origins(op.node.origins);
  return add_region(op.session, op.name, std::move(region), std::move(done), results);
}

// The steps one after the other: their results are as those of looped().
Views written_out(Op& op, const Steps& s, int64_t count) {
  Views carry = s.carry;
  std::vector<Views> parts;
  for (int64_t t = 0; t < count; ++t) {
    const Views results = s.step.body(op.session, operands_of_step(carry, rows_at(op.rec, s.rows, op.pool.index(t)), s.extra));
    check_step(op, s, results);
    const auto end = results.begin() + static_cast<std::ptrdiff_t>(carry.size());
    carry.assign(results.begin(), end);
    Views given = s.previous ? carry : Views(end, results.end());
    parts.resize(given.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(needed(op, given[i]));
  }
  op.rec.set_origins(op.node.origins);
  for (const Views& rows : parts) {
    Views pieces;
    for (const View& v : rows) pieces.push_back(unsqueezed(op, v, 0));
    Sizes sizes = pieces[0].sizes;
    sizes[0] = op.pool.index(count);
    carry.push_back(op.rec.concat(op.name, pieces[0].dtype, sizes, 0, pieces));
  }
  return carry;
}

}  // namespace

Views steps(Op& op, const Steps& s) {
  for (const View& v : s.rows) {
    if (v.rank() == 0) fail(ErrorCode::bad_program, op.node.target + " goes over a tensor without dimensions");
  }
  const std::optional<int64_t> count = const_int(s.count);
  const int64_t nodes = s.step.nodes;
  if (count == 0) {
    Views all = s.carry;
    for (size_t i = all.size(); i < op.node.outputs.size(); ++i)
      all.push_back({op.out(i).dtype, op.out(i).sizes, as(op.pool.constant_int(0, DType::i64), op.out(i).dtype)});
    return all;
  }
  const int64_t most = op.session.options.straight_line ? std::min(kMostSteps, kMostNodes / nodes) : kShortNodes / nodes;
  return count && *count <= most ? written_out(op, s, *count) : looped(op, s, nullptr);
}

Views steps_while(Op& op, const Steps& s, const StepBody& goes_on) { return looped(op, s, &goes_on); }

}  // namespace coil::lowering
