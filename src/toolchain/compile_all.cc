// Many compilations at once: equal ones once, the rest on several threads.
#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/parallel.h"
#include "toolchain/compile.h"
#include "toolchain/embedded.h"

namespace coil::toolchain {

// Line tables name lines: then comments count.
static std::string code_of(const CompileRequest& request) { return request.flags.empty() ? without_comments(request.source) : request.source; }

std::string compile_key(const CompileRequest& request) {
  std::string text;
  // Each part is preceded by its length, so that parts cannot run into each other.
  const auto add = [&](std::string_view part) {
    text += std::to_string(part.size());
    text += ':';
    text += part;
  };
  const auto add_all = [&](const std::vector<std::string>& parts) {
    add(std::to_string(parts.size()));
    for (const std::string& part : parts) add(part);
  };
  add(code_of(request));
  add(request.cpu);
  add(std::to_string(request.opt_level));
  add_all(request.defines);
  add_all(request.flags);
  for (const VirtualFile& file : request.headers) {
    add(file.path);
    add(file.text);
  }
  return hex(hash128(text));
}

namespace {

// Its size first, so that parts cannot run into each other.
void add(StreamHash64& hash, std::string_view text) {
  const std::string size = std::to_string(text.size()) + ":";
  for (const std::string_view part : {std::string_view(size), text}) hash.update({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
}

cache::Key cache_key(const CompileRequest& request, const std::string& device_headers) {
  StreamHash64 headers;
  for (const VirtualFile& file : request.headers) add(headers, file.path), add(headers, file.text);
  std::string defines, flags;
  for (const std::string& d : request.defines) defines += d + " ";
  for (const std::string& f : request.flags) flags += f + " ";
  return {"object",
          fmt::format("text {}", hex(hash128(code_of(request)))),  // not by the name: programs have equal units at different places
          {{"compiler", compiler_version()},
           {"cpu", request.cpu},
           {"optimisation", std::to_string(request.opt_level)},
           {"defines", defines},
           {"flags", flags},
           {"headers", hex(headers.digest())},
           {"device headers", device_headers},
           {"coil", COIL_VERSION}}};
}

}  // namespace

std::string device_headers_hash() {
  StreamHash64 hash;
  for (const EmbeddedFile& file : embedded_files()) add(hash, file.path), add(hash, file.text());
  return hex(hash.digest());
}

Result<std::vector<Bytes>> compile_all(std::span<const CompileRequest> requests, int threads, const CompileProgress& progress, const Known& known) {
  const std::string device_headers = device_headers_hash();
  std::map<std::string, size_t> seen;  // key -> index of the unique request
  std::vector<size_t> unique;          // first request of each key
  std::vector<size_t> uses;            // how many requests have the key
  std::vector<size_t> place(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [it, fresh] = seen.try_emplace(compile_key(requests[i]), unique.size());
    if (fresh) {
      unique.push_back(i);
      uses.push_back(0);
    }
    place[i] = it->second;
    ++uses[it->second];
  }
  // Long texts first: the last thread to finish should not start with the largest kernel.
  std::vector<size_t> order(unique.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return requests[unique[a]].source.size() > requests[unique[b]].source.size(); });

  std::vector<std::optional<Result<Bytes>>> results(unique.size());
  std::mutex progress_mutex;
  size_t done = 0;
  parallel_each(order.size(), threads, [&](size_t k) {
    const size_t u = order[k];
    const CompileRequest& request = requests[unique[u]];
    results[u].emplace(known.get(cache_key(request, device_headers), [&] { return compile_cpp(request); }));
    if (!progress) return;
    const std::lock_guard lock(progress_mutex);
    done += uses[u];
    progress(done, requests.size(), request.name);
  });

  std::vector<Bytes> objects;
  objects.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Result<Bytes>& result = *results[place[i]];
    if (!result.ok()) return result.error();
    const bool last = --uses[place[i]] == 0;
    objects.push_back(last ? std::move(result).value() : result.value());
  }
  return objects;
}

}  // namespace coil::toolchain
