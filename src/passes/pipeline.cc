#include "passes/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "graph/rewrite.h"
#include "passes/passes.h"

namespace coil {
namespace {

constexpr Pass kPasses[] = {
    {"inline_wrappers", inline_wrappers},  // first: writes inside of wrappers are writes of the program
    {"spell_out_lists", spell_out_lists},  // before functionalize: it makes writes to single tensors of writes to lists
    {"spell_out_gradients", spell_out_gradients},
    {"functionalize", functionalize},
    {"simplify_ops", simplify_ops},  // leaves fewer patterns to match for what follows
    {"fold_batch_norm", fold_batch_norm},
    {"common_subexpr", common_subexpr},  // after rewrites, which make equal what was spelled differently
    {"dead_code", dead_code},            // last: earlier passes leave orphans
};

bool has_subgraphs(const Graph& graph) {
  for (const Node& n : graph.nodes) {
    for (const Argument& a : n.args) {
      if (std::holds_alternative<SubgraphRef>(a)) return true;
    }
  }
  return false;
}

}  // namespace

std::span<const Pass> graph_passes() { return kPasses; }

bool can_be_left_out(std::string_view pass) {
  constexpr std::string_view kNeeded[] = {"inline_wrappers", "spell_out_lists", "spell_out_gradients", "functionalize"};
  return std::find(std::begin(kNeeded), std::end(kNeeded), pass) == std::end(kNeeded);
}

Result<Graph> run_passes(Graph graph, const PassOptions& options) {
  for (const std::string& name : options.skip) {
    bool known = std::any_of(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return p.name == name; });
    if (known || std::find(options.later.begin(), options.later.end(), name) != options.later.end()) continue;
    std::vector<std::string_view> names;
    for (const Pass& p : kPasses) names.push_back(p.name);
    names.insert(names.end(), options.later.begin(), options.later.end());
    return Error{ErrorCode::bad_option, fmt::format("there is no pass '{}'", name), "", fmt::format("passes: {}", fmt::join(names, ", "))};
  }
  for (const Pass& pass : kPasses) {
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end()) continue;
    Result<Graph> next = [&]() -> Result<Graph> {
      if (!has_subgraphs(graph)) return pass.run(graph);
      TRY(Graph inner, map_subgraphs(graph, pass.run));
      return pass.run(inner);
    }();
    if (!next.ok()) return std::move(next).error();
    Status valid = verify(next.value());
    CHECK(valid.ok(), std::string(pass.name) + ": " + (valid.ok() ? "" : valid.error().to_string()));
    if (options.observer) options.observer(pass.name, graph, next.value());
    graph = std::move(next).value();
  }
  return graph;
}

}  // namespace coil
