#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <memory>

#include "base/env.h"

namespace coil::tool {
namespace {

constexpr int kMostThreads = 4096;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

void add_threads_option(CLI::App& app, int& threads, const char* help) {
  app.add_option("--threads", threads, help)->check(CLI::Range(1, kMostThreads))->type_name("N");
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda or cuda:N; default: the package's first target that this machine can run")->type_name("DEVICE");
}

void add_compile_options(CLI::App& app, CompileArguments& a) {
  app.add_option("--target", a.target, "what the package holds code for, with commas: cpu, cpu:x86-64-v3, cpu:x86-64-v4, cuda:sm_80, cuda:sm_90, ..., cuda:compute_80 (PTX for later chips)")
      ->type_name("LIST");
  app.add_option("--dim", a.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)")
      ->allow_extra_args(false)
      ->type_name("NAME=WHICH");
  app.add_option("-O", a.opt_level, "optimisation of the generated code")->check(CLI::Range(0, 3))->type_name("0..3");
  app.add_flag_callback("--no-libraries", [&a] { a.libraries = false; },
                        "CUDA code does without cuBLASLt and cuDNN, even where the machine has them and they are faster");
  app.add_flag_callback("--no-graphs", [&a] { a.graphs = false; },
                        "CUDA code launches its kernels one by one, also where a repeated call is faster as a CUDA graph");
  app.add_option("--skip", a.skip, "leave out a graph pass, to bisect a wrong result (also COIL_SKIP)")
      ->allow_extra_args(false)
      ->type_name("PASS");
}

Result<std::pair<std::string, std::string>> split_assignment(const std::string& text, const char* option) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return Error{ErrorCode::bad_option, fmt::format("{} '{}' is not of the form NAME=VALUE", option, text), "", ""};
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

// "cpu,cuda:sm_90" into options; what is named first comes first in the package.
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

Result<std::map<std::string, std::string>> dim_names(const CompileArguments& arguments) {
  std::map<std::string, std::string> names;
  for (const std::string& text : arguments.dims) {
    TRY(const auto pair, split_assignment(text, "--dim"));
    names[pair.second] = pair.first;
  }
  return names;
}

Result<CompileOptions> compile_options(const CompileArguments& arguments, Progress& progress) {
  CompileOptions options;
  TRY_STATUS(parse_target(arguments.target, options));
  TRY(options.log, Log::from_env());
  TRY(const int64_t threads, env_int("COIL_THREADS", 1, kMostThreads, 0));
  options.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(threads);
  options.opt_level = arguments.opt_level;
  options.libraries = arguments.libraries;
  options.graphs = arguments.graphs;
  options.dump_folder = env("COIL_DUMP").value_or("");
  for (const std::string& item : arguments.skip) {
    for (std::string& pass : split(item, ',')) options.skip_passes.push_back(std::move(pass));
  }
  for (std::string& pass : split(env("COIL_SKIP").value_or(""), ',')) options.skip_passes.push_back(std::move(pass));
  auto begun = std::make_shared<std::atomic<bool>>(false);
  options.progress = [&progress, begun](std::string_view name, size_t, size_t total) {
    if (!begun->exchange(true)) progress.begin("compiling kernels", total);
    progress.step(name);
  };
  return options;
}

}  // namespace coil::tool
