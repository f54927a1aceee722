// Operands of a scalar operation that have types it does not take. A bug in coil where coil made them; but what types a program's values have its file
// says, and lowering turns this into an error of the file's that names the operator.
#pragma once

#include <string>

#include "base/result.h"

namespace coil {

class OperandError : public InternalError {
 public:
  OperandError(const char* file, int line, const std::string& operation, std::string problem)
      : InternalError(file, line, operation + ": " + problem), problem_(std::move(problem)) {}
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

}  // namespace coil
