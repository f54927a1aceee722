// Reads a line of a loop program's text piece by piece: the inverse of LoopText.
//
// The first thing that does not fit is kept as the problem; from then on nothing more is read, and all that is returned is empty. So a reader of a definition
// reads all of its pieces, and whoever called it asks once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "expr/parse.h"
#include "loop/loop.h"

namespace coil {

using BuffersByName = std::map<std::string, BufferId, std::less<>>;

class LoopReader {
 public:
  // All are borrowed.
  LoopReader(const LoopProgram& program, const BuffersByName& buffers, std::string_view line);
  LoopReader(const LoopReader&) = delete;
  LoopReader& operator=(const LoopReader&) = delete;

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
  void variables();          // "[i0, i1 | i2]", which says nothing that sizes do not say
  int variable();            // "i1": 1
  BufferId buffer();         // "-": none
  Operand operand();         // "x[i0, i2]"
  Condition condition();     // "2*batch <= n and n % 2 == 0"
  std::string rest();        // all that is left, without what quotes it if something does

  // What names mean in expressions: of plans, whose temps have types, and whose loads may be of what is no buffer.
  ParseNames& meaning() { return names_; }

  void fail(std::string why);
  bool failed() const { return problem_.has_value(); }
  // bad_program, with the column. Only when failed().
  const Error& problem() const { return *problem_; }

 private:
  void skip_space();
  bool integer_next(int64_t* value);
  Condition comparison();
  Expr parsed(Comparisons comparisons);

  const LoopProgram& program_;
  const BuffersByName& buffers_;
  std::string_view line_, rest_;
  ParseNames names_;
  std::optional<Error> problem_;
  int depth_ = 0;
};

}  // namespace coil
