// Reads a line of a program's text piece by piece: what the texts of loop programs and graphs have in common.
//
// The first thing that does not fit is kept as the problem; from then on nothing more is read, and all that is returned is empty. So whoever reads a definition
// reads all of its pieces, and asks once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "expr/condition.h"
#include "expr/expr.h"
#include "expr/parse.h"

namespace coil {

// The lines of a text, without their ends.
std::vector<std::string_view> lines_of(std::string_view text);

// Whether an expression would read a size's name as something else: such a size cannot be named so.
bool reads_otherwise(std::string_view label);

class TextReader {
 public:
  // Both are borrowed. names: what expressions may load; nothing unless said.
  TextReader(ExprPool& pool, std::string_view line, ParseNames names = nothing_to_load());
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  // Whether the token is next: then it is read. A word of several letters has to end where the token does.
  bool accept(std::string_view token);
  bool next(std::string_view token);  // the same, and it stays
  void expect(std::string_view token);
  bool at_end();

  std::string name();    // plain or in quotes
  std::string quoted();  // in quotes
  int64_t integer();
  double real();
  DType dtype();
  Expr expr();
  Expr index();              // an index expression; one side of a comparison
  std::vector<Expr> list();  // "[4, s0]", of index expressions
  Condition condition();     // "2*batch <= n and n % 2 == 0"
  SymbolId symbol();         // a size by its label, or its name

  void fail(std::string why);
  bool failed() const { return problem_.has_value(); }
  // bad_program, with the column. Only when failed().
  const Error& problem() const { return *problem_; }
  Error problem_in(size_t line) const;  // with the line's number too

 protected:
  static ParseNames nothing_to_load();
  ParseNames& names() { return names_; }
  void skip_space();
  bool integer_next(int64_t* value);
  std::string_view rest() const { return rest_; }
  void go_to(std::string_view rest) { rest_ = rest; }  // a later part of the line, or one that was kept

 private:
  Condition comparison();
  Expr parsed(Comparisons comparisons);

  ExprPool& pool_;
  std::string_view line_, rest_;
  ParseNames names_;
  std::optional<Error> problem_;
  int depth_ = 0;
};

}  // namespace coil
