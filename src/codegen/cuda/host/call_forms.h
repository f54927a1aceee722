// Calls that are alike but for their kernels' numbers, functions and addresses, as rows of a table and one function for each form. As statements each call
// takes clang milliseconds and some 30 KB.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/interface/fixed_place.h"

namespace coil::cuda {

// What a form's text calls "f[0]" and "a[0]".
struct CallValues {
  std::vector<int> functions;
  std::vector<FixedPlace> places;
  std::map<std::string, int64_t>* computed = nullptr;  // addresses that sizes decide, as texts, and their numbers
  bool fixed = true;                                   // false: the call has an address that only data decides

  std::string function(int number);
  std::string address(const KernelPlan& plan, BufferId id, const std::string& otherwise);
};

class CallForms {
 public:
  // `call`: the text of a kernel's call with such values; nothing for one that has to be a statement.
  CallForms(size_t kernels, const std::function<std::optional<std::string>(size_t kernel, CallValues& values)>& call);

  // The kernels from `begin` on that are rows of one table; 0: too few.
  size_t run_length(size_t begin) const;
  // Definitions of a run's table, and the statement that goes through it.
  std::string table(size_t begin, size_t count);
  static std::string statement(size_t begin);
  // The functions of the forms, before the tables. Empty: no table was asked for.
  std::string functions() const;

 private:
  struct Row {
    int form = -1;
    CallValues values;
  };
  static constexpr int kNothing = -2;  // the kernel has no call of its own
  bool tabled(size_t kernel) const;
  std::string computed_function() const;

  std::vector<Row> rows_;
  std::map<std::string, int> numbers_;
  std::map<std::string, int64_t> computed_;
  std::vector<const std::string*> texts_;
  std::vector<size_t> uses_;
  bool asked_ = false;
};

}  // namespace coil::cuda
