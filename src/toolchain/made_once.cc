#include "toolchain/made_once.h"

#include <algorithm>
#include <exception>
#include <optional>

namespace coil::toolchain {

Result<Bytes> MadeOnce::get(const std::string& key, const std::function<Result<Bytes>()>& make) {
  std::promise<Result<Bytes>> promise;
  std::shared_future<Result<Bytes>> future;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    auto [place, fresh] = made_.try_emplace(key);
    if (fresh) place->second = promise.get_future().share();
    first = fresh;
    future = place->second;
  }
  if (first) {
    try {
      promise.set_value(make());
    } catch (...) {  // Ctrl-C, or no memory: it ends all that wait for this
      promise.set_exception(std::current_exception());
    }
  }
  return future.get();
}

Result<Bytes> Known::get(const cache::Key& key, const std::function<Result<Bytes>()>& make) const {
  const auto cached = [&]() -> Result<Bytes> {
    if (!cache) return make();
    if (std::optional<Bytes> kept = cache->get(key)) return std::move(*kept);
    TRY(Bytes made, make());
    cache->put(key, made);
    return made;
  };
  return once ? once->get(key.name(), cached) : cached();
}

std::string without_comments(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || !line.substr(first).starts_with("//")) out.append(line).push_back('\n');
    at = end + 1;
  }
  return out;
}

}  // namespace coil::toolchain
