#include "compile_log.h"

#include <fmt/format.h>

#include "base/env.h"

namespace coil::tool {

void log_compile(const Log& log, const CompileReport& report, const ZipReader& package) {
  if (!env("COIL_DEBUG")) return;
  for (const StageTime& s : report.stages) log.write(LogLevel::stages, s.stage, "{:.2f} ms", s.seconds * 1e3);
  const Result<Json> read = read_manifest(package);
  if (!read.ok()) return;
  const Json& manifest = read.value();
  for (const Json& k : manifest.value("kernels", Json::array())) {
    const std::string name = k.at("function").is_string() ? k["function"].get<std::string>() : k.at("name").get<std::string>();
    std::string where;
    if (!k.at("origins").empty()) where = k["origins"][0].value("source", "");
    log.write(LogLevel::kernels, name, "{} computes {}; {}", k.at("kind").get<std::string>(), fmt::join(k.at("ops").get<std::vector<std::string>>(), ", "),
              where);
  }
  for (const Json& f : manifest.value("not_fused", Json::array())) {
    log.write(LogLevel::decisions, f.at("producer").get<std::string>(), "not fused into {}: {}", f.at("consumer").get<std::string>(),
              f.at("reason").get<std::string>());
  }
}

}  // namespace coil::tool
