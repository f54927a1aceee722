// COIL_DUMP: the text of every stage as numbered files in a folder, and COIL_DEBUG on stderr.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace coil {

class Dump {
 public:
  Dump(std::string folder, const Log& log) : folder_(std::move(folder)), log_(log) {}

  // The folder is there, or there is none to be: file_unwritable. Who asks for texts is told before the compile that nobody could write them.
  Status ready() const;

  // `make` is called only when someone wants the text. File errors are reported through the log, never to the compile.
  void text(const std::string& stage, const std::function<std::string()>& make, LogLevel level = LogLevel::ir) const;

 private:
  std::string folder_;
  const Log& log_;
  mutable int next_ = 0;
};

}  // namespace coil
