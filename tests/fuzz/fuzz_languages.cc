// The small languages that files hold, each alone and so more often than inside of a whole program: JSON, sympy's srepr, names of dimensions' expressions. The
// first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json_read.h"
#include "frontend/srepr.h"

namespace {

using namespace coil;

void check(bool ok) {
  if (!ok) std::abort();
}

// Every value of a document, and what an error about it says.
size_t walk(const JsonValue& v) {
  size_t values = 1;
  if (v.is_array()) {
    const Result<JsonArray> array = v.as_array();
    check(array.ok());
    for (const JsonValue& item : array.value()) values += walk(item);
  } else if (v.is_object()) {
    const Result<JsonObject> object = v.as_object();
    check(object.ok());
    for (const auto [name, value] : object.value()) {
      values += walk(value);
      (void)v.find(name);
    }
  } else {
    (void)v.as_int().ok();
    (void)v.as_double().ok();
    (void)v.as_string().ok();
  }
  return values;
}

void read_json(std::string_view text) {
  const Result<JsonDoc> doc = JsonDoc::parse(text, "input");
  if (!doc.ok()) {
    check(!doc.error().message.empty());
    return;
  }
  check(walk(doc.value().root()) <= text.size() + 1);
  check(!doc.value().root().error("wrong").message.empty());
}

void read_srepr(std::string_view text, bool condition) {
  ExprPool pool;
  SreprBudget budget;
  const SreprContext context{pool,
                             [&](std::string_view name) -> Result<Expr> {
                               if (const auto known = pool.find_symbol(name)) return pool.symbol(*known);
                               if (name.empty() || name.size() > 64 || pool.num_symbols() > 100) return Error{ErrorCode::bad_program, "no such symbol", "", ""};
                               Symbol s;
                               s.name = s.label = std::string(name);
                               s.max = 1000;
                               return pool.symbol(pool.add_symbol(std::move(s)));
                             },
                             &budget};
  if (condition) (void)parse_condition_srepr(context, text).ok();
  else (void)parse_srepr(context, text).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'e': read_srepr(text, false); break;
    case 'c': read_srepr(text, true); break;
    default: read_json(text);
  }
  return 0;
}
