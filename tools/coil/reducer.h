// Delta debugging of a program: ever smaller parts of it that still show what the whole does.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "frontend/program_document.h"

namespace coil::tool {

class Reducer {
 public:
  // shows: whether a part still shows it. known: values that may be given instead of computed. most: how often `shows` is asked.
  using Shows = std::function<Result<bool>(const ProgramDocument& part)>;
  Reducer(const ProgramDocument& whole, std::set<std::string> known, Shows shows, int most);

  // nullopt in `part`: no part that is cut out shows it (the whole does).
  Result<bool> run();
  const ProgramDocument& part() const { return part_; }
  int tests() const { return tests_; }

 private:
  Result<bool> accept(const std::vector<std::string>& outputs, const std::set<std::string>& given);
  Status fewer_outputs();
  Status earlier_output();
  Status later_inputs();
  std::vector<std::string> inner_values() const;

  const ProgramDocument& whole_;
  const std::set<std::string> known_;
  const Shows shows_;
  const int most_;
  ProgramDocument part_;
  std::vector<std::string> outputs_;
  std::set<std::string> given_;
  std::set<std::pair<std::vector<std::string>, std::set<std::string>>> tried_;
  int tests_ = 0;
};

}  // namespace coil::tool
