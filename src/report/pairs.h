// What fusing two operators would spare, of those that the compilation kept apart: the value that goes from one kernel to another one through memory.
#pragma once

#include <functional>
#include <map>
#include "base/json.h"
#include <optional>
#include <string>
#include <vector>

namespace coil::report {

// A tensor that is stored between kernels; a result of the program is written in any case.
struct StoredTensor {
  std::string name;
  double bytes = 0;
  bool result = false;
};

class Pairs {
 public:
  // kernels: the manifest's; stored: by the buffers' numbers.
  Pairs(const Json& kernels, std::map<int, StoredTensor> stored);

  // Bytes that would not be moved any more; 0 where one kernel computes both already; nothing where the package does not say.
  std::optional<double> spared(const std::string& producer, const std::string& consumer) const;

 private:
  struct Side {
    std::vector<std::string> ops;  // without the numbers that tell equal ones apart
    std::vector<int> reads, writes;
  };
  static bool has(const Side& kernel, const std::string& op);
  double bytes_of(const StoredTensor& tensor) const { return (tensor.result ? 1 : 2) * tensor.bytes; }

  std::vector<Side> kernels_;
  std::map<int, StoredTensor> stored_;
};

// "3 14 15" of a manifest: numbers of buffers.
std::vector<int> buffer_numbers(const Json& text);

}  // namespace coil::report
