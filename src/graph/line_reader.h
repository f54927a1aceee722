// Reads a line of a graph's text piece by piece: types, values, arguments.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "expr/text_reader.h"
#include "graph/graph.h"

namespace coil {

using ValueType = std::variant<TensorType, Expr, std::monostate>;

// What the lines of one graph refer to.
struct TextScope {
  Graph graph;
  std::map<std::string, ValueId, std::less<>> values;
  std::vector<SubgraphRef> subgraphs;
};

class LineReader : public TextReader {
 public:
  // Both are borrowed.
  LineReader(const TextScope& scope, std::string_view line);

  bool at_end();          // of the line, or a comment begins
  std::string comment();  // what stands behind "#"; empty: nothing

  std::string new_name();     // "%x", which is defined here
  ValueId value();            // "%x", which is defined already
  ValueType type();           // "f32[batch, 4] strides [1, 8] on cuda", "None" or a size
  Expr size();                // an expression of sizes alone
  std::vector<Expr> sizes();  // "[4, batch]"
  Argument argument();
  std::string argument_name();  // "dim" where "dim=" is next, which is read; else empty, and nothing is read
  // A constant that a program gets or gives: None, a number, a truth value or text.
  std::variant<std::monostate, int64_t, double, bool, std::string> constant();
  std::string to_end();  // the rest of the line, in quotes or not

 private:
  bool number_next(double* number, bool* whole);
  TensorType tensor_type();
  Argument list_argument();
  Argument word_argument(std::string_view word);
  std::vector<ValueId> values();
  bool truth();

  const TextScope& scope_;
};

}  // namespace coil
