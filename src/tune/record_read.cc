// Reads tuning records, which come from files that anyone may have changed.
#include <fmt/format.h>

#include "base/json_read.h"
#include "base/machines.h"
#include "tune/record.h"
#include "tune/record_format.h"

namespace coil::tune {
namespace {

// Fields that a record may lack.
Result<std::string> text_in(const JsonValue& j, std::string_view key) {
  const auto value = j.find(key);
  if (!value) return std::string();
  TRY(const std::string_view text, value->as_string());
  return std::string(text);
}

Result<int64_t> number_in(const JsonValue& j, std::string_view key, int64_t otherwise) {
  const auto value = j.find(key);
  if (!value) return otherwise;
  return value->as_int();
}

Result<bool> flag_in(const JsonValue& j, std::string_view key) {
  const auto value = j.find(key);
  if (!value) return false;
  return value->as_bool();
}

Result<double> time_in(const JsonValue& j, std::string_view key) {
  TRY(const JsonValue value, j.get(key));
  return value.as_double();
}

Result<int> small(const JsonValue& value) {
  TRY(const int64_t number, value.as_int());
  if (number != static_cast<int32_t>(number)) return value.error("is no number of 32 bits");
  return static_cast<int>(number);
}

// What `one` makes of each element of a list; it may be missing.
template <class T>
Status each_in(const JsonValue& j, std::string_view key, std::vector<T>& out, Result<T> (*one)(const JsonValue&)) {
  const auto list = j.find(key);
  if (!list) return ok_status();
  TRY(const JsonArray array, list->as_array());
  for (const JsonValue element : array) {
    TRY(T made, one(element));
    out.push_back(std::move(made));
  }
  return ok_status();
}

Result<std::map<std::string, int64_t>> sizes_of(const JsonValue& j) {
  std::map<std::string, int64_t> sizes;
  TRY(const JsonObject members, j.get_object("sizes"));
  for (const auto& [name, value] : members) {
    TRY(const int64_t size, value.as_int());
    sizes[std::string(name)] = size;
  }
  return sizes;
}

Result<NamedChoice> choice_of(const JsonValue& j) {
  NamedChoice choice;
  TRY(const JsonObject members, j.as_object());
  for (const auto& [name, value] : members) {
    TRY(const int number, small(value));
    choice[std::string(name)] = number;
  }
  return choice;
}

Result<Row> row_of(const JsonValue& j) {
  Row row;
  TRY(const JsonValue up_to, j.get("up_to"));
  if (!up_to.is_null()) {
    TRY(row.up_to, up_to.as_int());
  }
  TRY(const JsonValue choice, j.get("choice"));
  TRY(row.choice, choice_of(choice));
  TRY(row.text, text_in(j, "text"));
  return row;
}

Result<Timing> timing_of(const JsonValue& j) {
  Timing t;
  TRY(t.choice, text_in(j, "choice"));
  TRY(t.median, time_in(j, "median_us"));
  TRY(const JsonArray quartiles, j.get_array("quartiles_us"));
  if (quartiles.size() != 2) return j.error("has not two quartiles");
  TRY(t.low, quartiles[0].as_double());
  TRY(t.high, quartiles[1].as_double());
  TRY(const int64_t samples, number_in(j, "samples", 0));
  t.samples = static_cast<int>(samples);
  TRY(t.fault, text_in(j, "fault"));
  return t;
}

Result<MeasuredPoint> point_of(const JsonValue& j) {
  MeasuredPoint p;
  TRY(p.sizes, sizes_of(j));
  TRY(p.key, number_in(j, "key", 0));
  TRY(p.chosen, text_in(j, "chosen"));
  TRY(p.reason, text_in(j, "reason"));
  TRY_STATUS(each_in(j, "timings", p.timings, timing_of));
  return p;
}

Result<Entry> entry_of(const JsonValue& j) {
  Entry e;
  TRY(e.problem, j.get_string("problem"));
  TRY(e.kernel, text_in(j, "kernel"));
  TRY(const int64_t kernels, number_in(j, "kernels", 1));
  e.kernels = static_cast<int>(kernels);
  TRY(e.key, text_in(j, "key"));
  TRY([[maybe_unused]] const JsonArray rows, j.get_array("rows"));
  TRY_STATUS(each_in(j, "rows", e.rows, row_of));
  TRY_STATUS(each_in(j, "to_time", e.to_time, choice_of));
  TRY_STATUS(each_in(j, "measured", e.measured, point_of));
  return e;
}

Result<WholeProgram> whole_of(const JsonValue& j) {
  WholeProgram whole;
  TRY(whole.sizes, sizes_of(j));
  TRY(whole.untuned, time_in(j, "untuned_us"));
  TRY(whole.tuned, time_in(j, "tuned_us"));
  TRY(whole.kept, flag_in(j, "kept"));
  return whole;
}

Result<Hardware> hardware_of(const JsonValue& j) {
  const bool gpu = j.find("gpu").has_value();
  Hardware h;
  TRY(h.processor, j.get_string(gpu ? "gpu" : "cpu"));
  TRY(h.isa, j.get_string(gpu ? "architecture" : "isa"));
  TRY(const JsonValue units, j.get(gpu ? "multiprocessors" : "threads"));
  TRY(h.units, small(units));
  return h;
}

// Rows must rise and end without a bound: the generated program relies on it.
bool rises(const Entry& e) {
  for (size_t i = 0; i + 1 < e.rows.size(); ++i) {
    if (e.rows[i].up_to >= e.rows[i + 1].up_to) return false;
  }
  return !e.rows.empty() && e.rows.back().up_to == INT64_MAX;
}

Result<Record> record_of(const JsonValue& j) {
  const auto format = j.is_object() ? j.find("coil_tuning") : std::nullopt;
  if (!format) return j.error("lacks the field 'coil_tuning'");
  TRY(const int64_t number, format->as_int());
  if (number != kFormat) return format->error(fmt::format("its format is {}, this version of coil reads {}", number, kFormat));
  Record r;
  TRY(const JsonValue hardware, j.get("hardware"));
  TRY(r.hardware, hardware_of(hardware));
  if (const auto machine = j.find("machine")) {
    TRY(r.machine, read_cuda_machine(*machine));
    if (r.hardware.isa != fmt::format("sm_{}", r.machine->sm)) return machine->error("is of another architecture than the hardware");
  }
  if (j.find("seconds")) {
    TRY(r.seconds, time_in(j, "seconds"));
  }
  TRY(const int64_t runs, number_in(j, "runs", 0));
  r.runs = static_cast<int>(runs);
  TRY(r.untimed, flag_in(j, "untimed"));
  TRY(const JsonArray problems, j.get_array("problems"));
  TRY_STATUS(each_in(j, "problems", r.entries, entry_of));
  TRY_STATUS(each_in(j, "whole_program", r.whole, whole_of));
  for (size_t i = 0; i < r.entries.size(); ++i) {
    if (!r.untimed && !rises(r.entries[i])) return problems[i].error("its rows do not rise to a last one without a bound");
  }
  return r;
}

}  // namespace

Result<Record> parse_record(std::string_view text, const std::string& name) {
  const auto read = [&]() -> Result<Record> {
    TRY(const JsonDoc doc, JsonDoc::parse(text, name));
    return record_of(doc.root());
  };
  Result<Record> record = read();
  if (record.ok()) {
    record.value().name = name;
    return record;
  }
  return Error{ErrorCode::tuning_record, "this is no tuning record of coil: " + record.error().message, "",
               "records are written by `coil compile --tune ... --record FILE`"};
}

}  // namespace coil::tune
