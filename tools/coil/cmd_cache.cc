// coil cache: what earlier compiles kept, for other machines, and why a compile did not find it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "command.h"
#include "interrupt.h"
#include "load_model.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct CacheArguments {
  std::string file, model;
  CompileArguments compile;
  bool json = false, trust = false;
};

Result<std::shared_ptr<cache::Cache>> open_cache() {
  TRY(std::shared_ptr<cache::Cache> cache, cache::Cache::from_env());
  if (!cache)
    return Error{ErrorCode::bad_option, "there is no cache: COIL_CACHE is off, or there is no home folder", "",
                 "set COIL_CACHE to a folder or to redis://host:port"};
  return cache;
}

std::string entries_text(const cache::Totals& t) { return fmt::format("{} entr{}, {}", t.entries, t.entries == 1 ? "y" : "ies", bytes_text(t.bytes)); }

void print(const CacheArguments& a, const cache::Cache& cache, const cache::Totals& t, const std::string& text) {
  if (a.json) put(json_text({{"cache", cache.place()}, {"entries", t.entries}, {"bytes", t.bytes}}));
  else put(shown(text) + "\n");
}

Result<int> pack(const CacheArguments& a) {
  TRY(const auto cache, open_cache());
  clean_up_on_signals(a.file);
  TRY(const cache::Totals t, cache->pack(a.file));
  if (!cache->has_key()) note("packed without a key (COIL_CACHE_KEY): who unpacks it has to say --trust");
  print(a, *cache, t, fmt::format("{} -> {}: {}", cache->place(), a.file, entries_text(t)));
  return 0;
}

Result<int> unpack(const CacheArguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const ZipReader zip, ZipReader::open(a.file));
  TRY(const cache::Totals t, cache->unpack(zip, a.trust));
  print(a, *cache, t, fmt::format("{} -> {}: {}", a.file, cache->place(), entries_text(t)));
  return 0;
}

Result<int> clear(const CacheArguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->clear());
  print(a, *cache, t, fmt::format("{}: removed {}", cache->place(), entries_text(t)));
  return 0;
}

Result<int> show(const CacheArguments& a) {
  TRY(const auto cache, open_cache());
  TRY(const cache::Totals t, cache->totals());
  print(a, *cache, t, fmt::format("{}: {}", cache->place(), entries_text(t)));
  return 0;
}

// Where several lookups are of one subject (a text that is compiled for several processors): what tells this one from the others.
std::string told_apart(const std::vector<cache::Lookup>& lookups, const cache::Key& key) {
  std::string text;
  for (size_t f = 0; f < key.fields.size(); ++f) {
    const bool differs = std::any_of(lookups.begin(), lookups.end(), [&](const cache::Lookup& l) {
      return l.key.kind == key.kind && l.key.subject == key.subject && l.key.fields.size() == key.fields.size() && !(l.key.fields[f] == key.fields[f]);
    });
    if (differs) text += fmt::format(", {} {}", key.fields[f].name, key.fields[f].value);
  }
  return text;
}

// Compiles as `coil compile` would, timing and keeping nothing, and says what of it was found.
Result<int> explain(CacheArguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.model));
  Progress progress(Progress::Mode::never);
  TRY(CompileOptions options, compile_options(a.compile, progress));
  TRY(options.cache, open_cache());
  options.cache->read_only();
  options.tune.time = false;
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  options.name = program.name;
  TRY_STATUS(compile_to_memory(program.graph, options));
  const Style style;
  const std::vector<cache::Lookup> lookups = options.cache->lookups();
  const auto to_time = std::count_if(lookups.begin(), lookups.end(), [](const cache::Lookup& l) { return l.key.kind == "tuning" && !l.hit; });
  Json rows = Json::array();
  std::string text;
  size_t hits = 0;
  for (const cache::Lookup& l : lookups) {
    if (to_time > 0 && l.key.kind != "tuning") continue;  // another program, once the tuner has chosen
    hits += l.hit;
    const std::string why = l.hit ? "" : options.cache->explain(l.key);
    rows.push_back({{"kind", l.key.kind}, {"subject", l.key.subject}, {"hit", l.hit}, {"reason", why}});
    text += fmt::format("  {}  {:<6}  {}{}\n", l.hit ? "hit " : style.bold("miss"), shown(l.key.kind), shown(l.key.subject), shown(told_apart(lookups, l.key)));
    if (!why.empty()) text += "                " + style.dim(why) + "\n";
  }
  if (a.json) {
    put(json_text({{"cache", options.cache->place()},
                   {"hits", hits},
                   {"to_time", to_time},
                   {"lookups", rows},
                   {"problem", options.cache->problem()},
                   {"distrust", options.cache->distrust()}}));
    return 0;
  }
  put(fmt::format("{}: {} of {} found\n", shown(options.cache->place()), hits, rows.size()) + text);
  if (to_time > 0)
    put(fmt::format("The tuner would time {}; which kernels are built then depends on what it finds.\n", count_text(static_cast<size_t>(to_time), "problem")));
  for (const std::string& text : {options.cache->problem(), options.cache->distrust()}) {
    if (!text.empty()) put(shown(text) + "\n");
  }
  return 0;
}

}  // namespace

Action add_cache(CommandLine& app) {
  auto a = std::make_shared<CacheArguments>();
  const auto sub = [&](const char* name, const char* help) {
    CommandLine s = app.add_command(name, help);
    s.add_flag("--json", a->json, "print JSON");
    return s;
  };
  CommandLine packs = sub("pack", "write all entries to one file, for another machine");
  packs.add_option("file", a->file, "the file").required().type_name("FILE.zip");
  CommandLine unpacks = sub("unpack", "add the entries of a file that `pack` wrote");
  unpacks.add_option("file", a->file, "the file").required().type_name("FILE.zip");
  unpacks.add_flag("--trust", a->trust, "without a key: the file comes from someone who may run code on this machine");
  CommandLine explains = sub("explain", "which results a compile would find, and the field by which the others differ");
  explains.add_option("model", a->model, "exported program").required().type_name("MODEL.pt2");
  add_compile_options(explains, a->compile);
  CommandLine clears = sub("clear", "remove all entries");
  CommandLine shows = sub("show", "where the cache is and how much it holds");
  app.require_command();
  app.footer(
      "The cache is $COIL_CACHE: a folder (default: ~/.cache/coil/results), redis://[user:password@]host:port[/database], rediss:// for TLS, or off.\n"
      "Its entries run as code in later compiles and packages. A folder that others own or can write to is therefore refused, and so is a server\n"
      "without a key. With COIL_CACHE_KEY (a key, or file:PATH of one) only entries that were made with it are used, also by pack and unpack.\n"
      "shared:FOLDER and shared:redis://... mean that everyone who can write there is trusted.\n"
      "Examples:\n"
      "  coil cache show\n"
      "  coil cache explain model.pt2 --tune fast\n"
      "  coil cache pack results.zip\n"
      "  COIL_CACHE=rediss://coil:password@cache-server:6379 COIL_CACHE_KEY=file:key coil compile model.pt2 --tune max");
  return [=]() -> Result<int> {
    if (packs.given()) return pack(*a);
    if (unpacks.given()) return unpack(*a);
    if (explains.given()) return explain(*a);
    if (clears.given()) return clear(*a);
    CHECK(shows.given());
    return show(*a);
  };
}

}  // namespace coil::tool
