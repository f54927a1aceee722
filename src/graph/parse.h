// Reads the text that to_string writes of a graph: a stage of a dump is a program that can be edited and run.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace coil {

// What a graph's text leaves to the operators' schemas.
struct OperatorSchemas {
  // The names of an operator's arguments in order, for those that stand by position; empty: none are known.
  std::function<std::vector<std::string>(std::string_view target)> arguments;
  // Completes a node, or says why its operator does not take these arguments. Its outputs are not there yet. null: every node is right.
  std::function<Status(ExprPool& pool, Node& node)> check;
};

// Whether the text says that it is a graph's: its first line does.
bool is_graph_text(std::string_view text);

// What the text does not hold, and what it becomes:
// - Of source lines only the places behind '#' are there; modules' names are not.
// - Weights of more than kShownElements elements get numbers that follow from their names (expr/constant_text.h). Those that are the same elements of the same
//   memory stay so; others that overlap do not.
// - The version of the export's schema. Values that nothing defines. Values that have the same name get different ones.
// The graph is verified. Errors: bad_program, with the line and column and what was expected there; a user's kernel is one, for its code is not in the text.
Result<Graph> parse_graph(std::string_view text, const OperatorSchemas& schemas);

}  // namespace coil
