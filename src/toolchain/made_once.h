// What compiles that run at the same time have in common: made by the first that asks for it, the others wait. Graphs of torch.compile are cut into programs
// that are compiled beside one another, and the layers of a network give many of them the same kernels.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/cache.h"

namespace coil::toolchain {

using Bytes = std::vector<uint8_t>;

// Thread-safe. It holds what was made as long as it lives.
class MadeOnce {
 public:
  // What `make` gives to the first that asks for the key: bytes, an error, or the exception that it ends with.
  Result<Bytes> get(const std::string& key, const std::function<Result<Bytes>()>& make);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Result<Bytes>>> made_;
};

// Where compiles look before they make something, and keep what they made.
struct Known {
  cache::Cache* cache = nullptr;  // null: none
  MadeOnce* once = nullptr;       // null: the compile is alone

  Result<Bytes> get(const cache::Key& key, const std::function<Result<Bytes>()>& make) const;
};

// A text that a compiler is given, without the lines that are comments alone: they say where in a model a kernel comes from, and do not change its code.
std::string without_comments(std::string_view text);

}  // namespace coil::toolchain
