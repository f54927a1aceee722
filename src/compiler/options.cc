#include "compiler/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"

namespace coil {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Status parse_target(const std::string& text, CompileOptions& options) {
  constexpr int kKnown[] = {80, 86, 87, 89, 90, 100, 103, 110, 120, 121};
  constexpr int kPtx[] = {80, 86, 87, 89};  // later ones have kernels that run on one chip only
  options.isas.clear();
  for (const std::string& part : split(text, ',')) {
    if (part == "cpu") {
      options.isas.insert(options.isas.end(), {"v3", "v4"});
    } else if (part == "cpu:x86-64-v3" || part == "cpu:x86-64-v4") {
      options.isas.push_back(part.substr(part.size() - 2));
    } else if (const auto sm = std::find_if(std::begin(kKnown), std::end(kKnown), [&](int v) { return part == fmt::format("cuda:sm_{}", v); });
               sm != std::end(kKnown)) {
      if (options.isas.empty()) options.cuda_first = true;
      options.cuda.push_back(*sm);
    } else if (const auto least = std::find_if(std::begin(kPtx), std::end(kPtx), [&](int v) { return part == fmt::format("cuda:compute_{}", v); });
               least != std::end(kPtx)) {
      if (options.isas.empty()) options.cuda_first = true;
      options.ptx.push_back(*least);
    } else {
      return Error{ErrorCode::bad_option, fmt::format("there is no target '{}'", part), "",
                   "targets: cpu (all of its levels), cpu:x86-64-v3, cpu:x86-64-v4, cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90, cuda:sm_100, and "
                   "cuda:compute_80, cuda:compute_86, cuda:compute_89 (PTX, for these chips and all later ones); several with commas"};
    }
  }
  if (options.isas.empty() && options.cuda.empty() && options.ptx.empty()) return Error{ErrorCode::bad_option, "--target is empty", "", "leave it out, or name cpu"};
  std::sort(options.isas.begin(), options.isas.end());
  options.isas.erase(std::unique(options.isas.begin(), options.isas.end()), options.isas.end());
  for (std::vector<int>* list : {&options.cuda, &options.ptx}) {
    std::sort(list->begin(), list->end(), std::greater<>());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return ok_status();
}

Result<CompileOptions> compile_options(const CompileSettings& settings) {
  CompileOptions options;
  TRY_STATUS(parse_target(settings.target, options));
  if (settings.opt_level < 0 || settings.opt_level > 3)
    return Error{ErrorCode::bad_option, fmt::format("the optimisation level is {}, expected 0 to 3", settings.opt_level), "", ""};
  if (settings.threads < 0 || settings.threads > kMostThreads)
    return Error{ErrorCode::bad_option, fmt::format("the number of threads is {}, expected 1 to {}", settings.threads, kMostThreads), "", ""};
  TRY(options.log, Log::from_env());
  TRY(const int64_t threads, env_int("COIL_THREADS", 1, kMostThreads, 0));
  options.threads = settings.threads > 0 ? settings.threads : static_cast<int>(threads);
  options.opt_level = settings.opt_level;
  options.libraries = settings.libraries;
  options.graphs = settings.graphs;
  options.winograd = settings.winograd;
  options.dump_folder = env("COIL_DUMP").value_or("");
  options.skip_passes = settings.skip;
  for (std::string& pass : split(env("COIL_SKIP").value_or(""), ',')) options.skip_passes.push_back(std::move(pass));
  return options;
}

}  // namespace coil
