// A profile's sums: for each model and kernel the calls, the time of a call that is its own, what it moved and computed. JSON:
//   {"dropped_calls": 0, "counters": "why there are none",
//    "models": [{"model", "package", "device", "isa", "threads", "clock", "calls", "failed_calls",     clock: CallRecord's; clock_note: why not CUPTI's
//                "left_out_calls",                                                               not recorded, to cost less
//                "call_us", "least_us", "median_us", "most_us",                                  of a whole call: mean, least, ...
//                "check_us", "place_us", "kernels_us", "host_us",                                means; host: what no kernel ran in
//                "sizes": {"batch": 8},                                                          of the last call
//                "kernels": [{"kernel", "name", "function", "kind", "ops", "module", "source", "line",
//                             "launches", "us", "least_us", "median_us", "share", "bytes", "flops", "gb_s", "gflop_s", "threads_us",
//                             "cycles", "instructions", "cache_misses"}, ...]}]}                  for a call; busiest first
// Where kernels run at the same time (image by image on several threads), each has its part of the time that passes, so that the
// kernels of a call add up to the time in which any ran.
#include <algorithm>
#include <map>
#include <string_view>

#include "runtime/cupti.h"
#include "runtime/json_text.h"
#include "runtime/model.h"
#include "runtime/profile.h"

namespace coil::runtime {
namespace {

struct KernelSums {
  int64_t launches = 0;
  double ns = 0, bytes = 0, flops = 0, threads_ns = 0;
  bool knows_bytes = true, knows_flops = true;
  double counters[3] = {};
  std::vector<double> call_ns;  // its time in each call that ran it
};

struct ModelSums {
  std::shared_ptr<const KernelTable> table;
  int64_t failed = 0, counted = 0, left_out = 0;
  const char* clock = "host";
  std::vector<double> call_ns;
  double check = 0, place = 0, kernels = 0;
  std::vector<int64_t> sizes;
  std::map<int32_t, KernelSums> rows;
};

// Each span's part of the time that passes, in ticks. Spans are in order of their begins.
std::vector<double> parts_of_time(const std::vector<KernelSpan>& spans) {
  std::vector<double> parts(spans.size(), 0);
  bool apart = true;
  for (size_t i = 0; i < spans.size(); ++i) {
    parts[i] = static_cast<double>(spans[i].end - std::min(spans[i].begin, spans[i].end));
    apart = apart && (i == 0 || spans[i].begin >= spans[i - 1].end);
  }
  if (apart) return parts;
  std::vector<std::pair<uint64_t, size_t>> marks;  // begins and ends
  for (size_t i = 0; i < spans.size(); ++i) marks.emplace_back(spans[i].begin, i), marks.emplace_back(spans[i].end, i);
  std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::fill(parts.begin(), parts.end(), 0);
  std::vector<size_t> running;
  uint64_t last = 0;
  for (const auto& [at, i] : marks) {
    for (const size_t r : running) parts[r] += static_cast<double>(at - last) / static_cast<double>(running.size());
    last = at;
    const auto found = std::find(running.begin(), running.end(), i);
    if (found == running.end()) {
      running.push_back(i);
    } else {
      running.erase(found);
    }
  }
  return parts;
}

// Amounts of one size are worked out once.
class Amounts {
 public:
  std::pair<std::optional<double>, std::optional<double>> of(const CallRecord& call, const KernelSpan& span) {
    const KernelTable& table = *call.table;
    const size_t first = std::min<size_t>(span.sizes, call.sizes.size()), count = std::min(table.symbols.size(), call.sizes.size() - first);
    const std::vector<int64_t> sizes(call.sizes.begin() + static_cast<ptrdiff_t>(first), call.sizes.begin() + static_cast<ptrdiff_t>(first + count));
    const auto key = std::make_tuple(&table, span.kernel, sizes);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const auto number = static_cast<size_t>(span.kernel);
    return known_.emplace(key, std::make_pair(table.bytes(number, sizes), table.flops(number, sizes))).first->second;
  }

 private:
  std::map<std::tuple<const KernelTable*, int32_t, std::vector<int64_t>>, std::pair<std::optional<double>, std::optional<double>>> known_;
};

void add_call(ModelSums& m, const CallRecord& c, const TickScale& scale, Amounts& amounts) {
  m.failed += c.failed != 0;
  m.left_out += c.left_out;
  if (c.failed) return;
  const auto ns = [&](uint64_t from, uint64_t to) { return to > from ? scale.duration_ns(to - from) : 0.0; };
  m.call_ns.push_back(scale.duration_ns(ticks_of(c)));
  m.check += ns(c.begin, c.checked);
  m.place += ns(c.checked, c.placed);
  m.counted += c.counted;
  m.clock = c.clock;
  const std::span<const int64_t> sizes = sizes_of(c);
  m.sizes.assign(sizes.begin(), sizes.end());
  const std::vector<double> parts = parts_of_time(c.kernels);
  std::map<int32_t, double> own_ns;
  for (size_t i = 0; i < c.kernels.size(); ++i) {
    const KernelSpan& span = c.kernels[i];
    KernelSums& row = m.rows[span.kernel];
    row.launches++;
    const double own = parts[i] * scale.duration_ns(1);
    row.ns += own;
    own_ns[span.kernel] += own;
    m.kernels += own;
    const auto [bytes, flops] = amounts.of(c, span);
    row.knows_bytes = row.knows_bytes && bytes, row.knows_flops = row.knows_flops && flops;
    row.bytes += bytes.value_or(0), row.flops += flops.value_or(0);
    const Counts counts = counts_of(c, span);
    for (size_t n = 0; n < counts.size(); n++) row.counters[n] += static_cast<double>(counts[n]);
  }
  std::map<int32_t, double> threads_ns;  // of kernels that ran on several
  for (const ChunkSpan& chunk : c.chunks) {
    if (chunk.kernel >= 0) threads_ns[chunk.kernel] += ns(chunk.begin, chunk.end);
  }
  for (const auto& [number, own] : own_ns) {
    KernelSums& row = m.rows[number];
    row.call_ns.push_back(own);
    const auto found = threads_ns.find(number);
    if (c.table->threads > 1 && c.table->device == "cpu") row.threads_ns += found == threads_ns.end() ? own : found->second;
  }
}

std::string kernel_json(const ModelSums& m, int32_t number, const KernelSums& k, double calls, double call_ns) {
  JsonMembers row;
  std::vector<double> times = k.call_ns;
  std::sort(times.begin(), times.end());
  row.integer("kernel", number);
  if (const auto n = static_cast<size_t>(number); n < m.table->kernels.size()) {
    const KernelRow& r = m.table->kernels[n];
    row.text("name", r.name)
        .text("function", r.function)
        .text("kind", r.kind)
        .raw("ops", json_strings(r.ops))
        .text("module", r.module)
        .text("source", r.source)
        .text("line", r.line);
  } else {
    row.text("name", "kernel " + std::to_string(number));
  }
  row.number("launches", static_cast<double>(k.launches) / calls).number("us", k.ns / calls / 1e3).number("share", call_ns > 0 ? k.ns / calls / call_ns : 0, 5);
  if (!times.empty()) row.number("least_us", times.front() / 1e3).number("median_us", times[times.size() / 2] / 1e3);
  if (k.knows_bytes) row.number("bytes", k.bytes / calls, 0).number("gb_s", k.ns > 0 ? k.bytes / k.ns : 0);
  if (k.knows_flops) row.number("flops", k.flops / calls, 0).number("gflop_s", k.ns > 0 ? k.flops / k.ns : 0);
  if (k.threads_ns > 0) row.number("threads_us", k.threads_ns / calls / 1e3);
  if (m.counted) {
    const double counted = static_cast<double>(m.counted);
    row.number("cycles", k.counters[0] / counted, 0).number("instructions", k.counters[1] / counted, 0).number("cache_misses", k.counters[2] / counted, 0);
  }
  return row.object();
}

std::string model_json(ModelSums& m) {
  JsonMembers out;
  const KernelTable& t = *m.table;
  out.text("model", t.model).text("package", t.path).text("device", t.device).text("isa", t.isa).integer("threads", t.threads).text("clock", m.clock);
  if (std::string_view(m.clock) == "CUDA events") {
    const std::string note = Cupti::note();
    out.text("clock_note", note.empty() ? "CUPTI's times are taken where all calls are asked for (all_calls)" : note);
  }
  out.integer("calls", static_cast<int64_t>(m.call_ns.size())).integer("failed_calls", m.failed).integer("left_out_calls", m.left_out);
  const double calls = static_cast<double>(std::max<size_t>(m.call_ns.size(), 1));
  double sum = 0;
  for (const double ns : m.call_ns) sum += ns;
  const double mean = sum / calls;
  if (!m.call_ns.empty()) {
    std::sort(m.call_ns.begin(), m.call_ns.end());
    out.number("call_us", mean / 1e3)
        .number("least_us", m.call_ns.front() / 1e3)
        .number("median_us", m.call_ns[m.call_ns.size() / 2] / 1e3)
        .number("most_us", m.call_ns.back() / 1e3);
    out.number("check_us", m.check / calls / 1e3).number("place_us", m.place / calls / 1e3).number("kernels_us", m.kernels / calls / 1e3);
    out.number("host_us", std::max(0.0, mean - m.kernels / calls) / 1e3);
  }
  JsonMembers sizes;
  for (size_t i = 0; i < m.sizes.size(); ++i) {
    if (!t.counters[i]) sizes.integer(t.symbols[i], m.sizes[i]);
  }
  out.raw("sizes", sizes.object());
  std::vector<std::pair<int32_t, const KernelSums*>> rows;
  for (const auto& [number, k] : m.rows) rows.emplace_back(number, &k);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second->ns > b.second->ns; });
  std::string kernels;
  for (const auto& [number, k] : rows) kernels += (kernels.empty() ? "\n " : ",\n ") + kernel_json(m, number, *k, calls, mean);
  return out.raw("kernels", "[" + kernels + "]").object();
}

}  // namespace

std::string Profile::table_json(const Model* only) const {
  const TickScale ticks = scale();
  std::vector<ModelSums> models;  // in order of their first calls
  Amounts amounts;
  const auto recorded = calls();
  const std::shared_ptr<const KernelTable> wanted = only ? only->kernel_table() : nullptr;
  for (const auto& c : recorded) {
    if (wanted && c->table != wanted) continue;
    const auto same = [&](const ModelSums& m) { return m.table == c->table; };
    auto found = std::find_if(models.begin(), models.end(), same);
    if (found == models.end()) {
      models.push_back({});
      models.back().table = c->table;
      found = models.end() - 1;
    }
    add_call(*found, *c, ticks, amounts);
  }
  std::string list;
  for (ModelSums& m : models) list += (list.empty() ? "\n" : ",\n") + model_json(m);
  JsonMembers out;
  out.integer("dropped_calls", dropped());
  const std::string note = counters_note();
  if (!note.empty()) out.text("counters", note);
  return out.raw("models", "[" + list + "]").object() + "\n";
}

}  // namespace coil::runtime
