// coil cache: what earlier compiles kept, for other machines, and why a compile did not find it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "load_model.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct Arguments {
  std::string file, model;
  CompileArguments compile;
  bool json = false;
};

Result<std::shared_ptr<cache::Cache>> open_cache() {
  TRY(std::shared_ptr<cache::Cache> cache, cache::Cache::from_env());
  if (!cache) return Error{ErrorCode::bad_option, "there is no cache: COIL_CACHE is off, or there is no home folder", "", "set COIL_CACHE to a folder or to redis://host:port"};
  return cache;
}

std::string entries_text(const cache::Totals& t) { return fmt::format("{} entr{}, {}", t.entries, t.entries == 1 ? "y" : "ies", bytes_text(t.bytes)); }

void print(const Arguments& a, const cache::Cache& cache, const cache::Totals& t, const std::string& text) {
  if (a.json) put(Json{{"cache", cache.place()}, {"entries", t.entries}, {"bytes", t.bytes}}.dump(2) + "\n");
  else put(text + "\n");
}

Result<int> pack(const Arguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->pack(a.file));
  print(a, *cache, t, fmt::format("{} -> {}: {}", cache->place(), a.file, entries_text(t)));
  return 0;
}

Result<int> unpack(const Arguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->unpack(a.file));
  print(a, *cache, t, fmt::format("{} -> {}: {}", a.file, cache->place(), entries_text(t)));
  return 0;
}

Result<int> clear(const Arguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->clear());
  print(a, *cache, t, fmt::format("{}: removed {}", cache->place(), entries_text(t)));
  return 0;
}

Result<int> show(const Arguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->totals());
  print(a, *cache, t, fmt::format("{}: {}", cache->place(), entries_text(t)));
  return 0;
}

// Compiles as `coil compile` would, keeping nothing, and says what of it was found.
Result<int> explain(Arguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.model));
  Progress progress(Progress::Mode::never);
  TRY(CompileOptions options, compile_options(a.compile, progress));
  TRY(options.cache, open_cache());
  options.cache->read_only();
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  options.name = program.name;
  TRY_STATUS(compile_to_memory(program.graph, options));
  const Style style;
  Json rows = Json::array();
  Table table(2);
  size_t hits = 0;
  for (const cache::Lookup& l : options.cache->lookups()) {
    hits += l.hit;
    const std::string why = l.hit ? "" : options.cache->explain(l.key);
    rows.push_back({{"kind", l.key.kind}, {"subject", l.key.subject}, {"hit", l.hit}, {"reason", why}});
    table.add({l.hit ? "hit" : style.bold("miss"), l.key.kind, l.key.subject, why});
  }
  if (a.json) {
    put(Json{{"cache", options.cache->place()}, {"hits", hits}, {"lookups", rows}, {"problem", options.cache->problem()}}.dump(2) + "\n");
    return 0;
  }
  put(fmt::format("{}: {} of {} found\n", options.cache->place(), hits, rows.size()) + table.text());
  if (!options.cache->problem().empty()) put(options.cache->problem() + "\n");
  return 0;
}

}  // namespace

Action add_cache(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  const auto sub = [&](const char* name, const char* help) {
    CLI::App* s = app.add_subcommand(name, help);
    s->add_flag("--json", a->json, "print JSON");
    return s;
  };
  CLI::App* packs = sub("pack", "write all entries to one file, for another machine");
  packs->add_option("file", a->file, "the file")->required()->type_name("FILE.zip");
  CLI::App* unpacks = sub("unpack", "add the entries of a file that `pack` wrote");
  unpacks->add_option("file", a->file, "the file")->required()->type_name("FILE.zip");
  CLI::App* explains = sub("explain", "which results a compile would find, and the field by which the others differ");
  explains->add_option("model", a->model, "exported program")->required()->type_name("MODEL.pt2");
  add_compile_options(*explains, a->compile);
  CLI::App* clears = sub("clear", "remove all entries");
  CLI::App* shows = sub("show", "where the cache is and how much it holds");
  app.require_subcommand(1, 1);
  app.footer(
      "The cache is $COIL_CACHE: a folder (default: ~/.cache/coil/results), redis://host:port[/database], or off.\n"
      "Examples:\n"
      "  coil cache show\n"
      "  coil cache explain model.pt2 --tune fast\n"
      "  coil cache pack results.zip\n"
      "  COIL_CACHE=redis://cache-server:6379 coil compile model.pt2 --tune max");
  return [=]() -> Result<int> {
    if (packs->parsed()) return pack(*a);
    if (unpacks->parsed()) return unpack(*a);
    if (explains->parsed()) return explain(*a);
    if (clears->parsed()) return clear(*a);
    CHECK(shows->parsed());
    return show(*a);
  };
}

}  // namespace coil::tool
