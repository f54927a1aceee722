// Loops over steps, as operators that hold graphs and recurrent layers have them.
#pragma once

#include "lower/regions.h"

namespace coil::lowering {

// What a step computes of its operands (carried values, rows, extra operands, in this order), recorded in the session that it is given.
using StepBody = std::function<Views(Session&, const Views&)>;

struct Step {
  StepBody body;
  int64_t nodes = 1;  // about how many operators it is: few steps of few are written out
};

// A loop over the rows of tensors: each step gets the carried values, its rows and the extra operands, and gives the next carried
// values and rows of the results.
struct Steps {
  Step step;
  Views carry, rows, extra;
  Expr count;
  bool previous = false;  // associative_scan: the rows' part of the results is what is carried
};

// The carried values after the last step, then the results' rows together. Without a step these are the node's results after the carried ones.
Views steps(Op& op, const Steps& s);
// The same for as long as `goes_on` gives true of the carried values and the extra operands; s.count is not read.
Views steps_while(Op& op, const Steps& s, const StepBody& goes_on);

// Row t of each tensor.
Views rows_at(Recorder& rec, const Views& tensors, Expr t);
// v, which a subgraph gave; fails if it is no tensor.
View needed(Op& op, const View& v);
// Sizes that a part reads from its own data are not known outside of it.
void refuse_inner_sizes(Op& op, Part& part, const View& v);

}  // namespace coil::lowering
