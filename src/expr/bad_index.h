// Index arithmetic that has no value: its numbers come from a file, not from coil.
#pragma once

#include "base/result.h"

namespace coil {

// Thrown for a division or remainder by a constant that is not positive, and for a constant that leaves int64. Whoever makes expressions of numbers from a file
// answers for it by catching this.
class BadIndex : public InternalError {
 public:
  BadIndex(const char* file, int line, const char* what) : InternalError(file, line, what), what_(what) {}
  const char* problem() const { return what_; }

 private:
  const char* what_;  // a literal
};

}  // namespace coil
