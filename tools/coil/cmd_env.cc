// coil env: what coil is, the machine that it finds itself on, and the variables that it reads.
#include <fmt/format.h>

#include <memory>

#include "archive_kind.h"
#include "base/cpu_limits.h"
#include "base/env.h"
#include "base/host_machine.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "command.h"
#include "runtime/device.h"
#include "terminal.h"

namespace coil::tool {
namespace {

// The GPUs as the driver lists them, or why there are none.
Json cuda() {
  const Result<runtime::CudaInfo> info = runtime::cuda_info();
  if (!info.ok()) return {{"driver", nullptr}, {"problem", info.error().message}, {"devices", Json::array()}};
  const int version = info.value().driver_version;
  Json devices = Json::array();
  for (const runtime::CudaDeviceInfo& d : info.value().devices) {
    devices.push_back({{"name", d.name},
                       {"architecture", fmt::format("sm_{}", d.major * 10 + d.minor)},
                       {"multiprocessors", d.multiprocessors},
                       {"memory_bytes", d.memory_bytes}});
  }
  return {{"driver", fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10)}, {"devices", devices}};
}

// What is set, without what is secret: a key, a server's password.
std::string shown_setting(std::string_view name, std::string value) {
  if (name == "COIL_CACHE_KEY" && !value.starts_with("file:")) return "(set)";
  const size_t scheme = value.find("://"), at = value.rfind('@');
  if (name != "COIL_CACHE" || scheme == std::string::npos || at == std::string::npos || at < scheme) return value;
  return value.replace(scheme + 3, at - scheme - 3, "...");
}

Result<Json> collect() {
  TRY(const std::string compiler, clang_inside());
  Json variables = Json::array();
  for (const EnvVar& v : env_vars()) {
    const std::optional<std::string> value = env(v.name);
    variables.push_back(
        {{"name", v.name}, {"value", value ? Json(shown_setting(v.name, *value)) : Json(nullptr)}, {"default", v.default_text}, {"help", v.help}});
  }
  const int quota = cgroup_cpu_quota({});
  return Json{{"version", COIL_VERSION},
              {"clang", compiler.empty() ? Json(nullptr) : Json(compiler)},
              {"targets", compiled_targets()},
              {"machine",
               {{"cpu", cpu_name()},
                {"levels", levels_here()},
                {"cpus", usable_cpus()},
                {"cpu_quota", quota > 0 ? Json(quota) : Json(nullptr)},
                {"threads", allowed_cpus()}}},
              {"cuda", cuda()},
              {"environment", variables}};
}

std::string setting_text(const Json& info) {
  const Style style;
  const Json& machine = info["machine"];
  Table about;
  about.add({"coil", info["version"].get<std::string>()});
  about.add({"clang, built in", info["clang"].is_null() ? "none" : info["clang"].get<std::string>()});
  about.add({"targets", fmt::format("{}", fmt::join(info["targets"].get<std::vector<std::string>>(), ", "))});
  about.add({"processor", machine["cpu"].get<std::string>()});
  about.add({"levels", fmt::format("{}", fmt::join(machine["levels"].get<std::vector<std::string>>(), ", "))});
  const std::string quota = machine["cpu_quota"].is_null() ? "no cgroup quota" : fmt::format("cgroup quota {}", machine["cpu_quota"].get<int>());
  about.add({"threads", fmt::format("{} (affinity {}, {})", machine["threads"].get<int>(), machine["cpus"].get<int>(), quota)});
  const Json& gpus = info["cuda"];
  about.add({"CUDA driver", gpus["driver"].is_null() ? "none: " + gpus["problem"].get<std::string>() : gpus["driver"].get<std::string>()});
  for (size_t i = 0; i < gpus["devices"].size(); ++i) {
    const Json& d = gpus["devices"][i];
    about.add({fmt::format("cuda:{}", i), fmt::format("{}, {}, {} multiprocessors, {}", d["name"].get<std::string>(), d["architecture"].get<std::string>(),
                                                      d["multiprocessors"].get<int>(), bytes_text(d["memory_bytes"].get<uint64_t>()))});
  }
  Table variables;
  for (const Json& v : info["environment"]) {
    const std::string value = v["value"].is_null() ? style.dim(v["default"].get<std::string>()) : style.bold(v["value"].get<std::string>());
    variables.add({v["name"].get<std::string>(), value, v["help"].get<std::string>()});
  }
  return about.text() + "\n" + style.bold("Environment variables") + " (values that are set, else what holds without)\n" + variables.text();
}

}  // namespace

Action add_env(CommandLine& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print it as JSON");
  app.footer(
      "Examples:\n"
      "  coil env\n"
      "  coil env --json");
  return [json]() -> Result<int> {
    TRY(const Json info, collect());
    put(*json ? json_text(info) : setting_text(info));
    return 0;
  };
}

}  // namespace coil::tool
