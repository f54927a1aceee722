// A profile as a trace in the Chrome format ("traceEvents"), which ui.perfetto.dev and chrome://tracing read: a track for each thread
// that called and each of the pool's, one for each CUDA stream; a call holds its phases and kernels. Times in microseconds.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/json_text.h"
#include "runtime/profile.h"

namespace coil::runtime {
namespace {

class TraceWriter {
 public:
  explicit TraceWriter(const TickScale& scale) : scale_(scale), pid_(getpid()) {}

  void call(const CallRecord& c) {
    const bool cuda = c.table->device != "cpu";
    callers_.insert(c.thread);
    JsonMembers args;
    args.text("model", c.table->model)
        .text("package", c.table->path)
        .text("device", c.table->device)
        .text("isa", c.table->isa)
        .integer("threads", c.table->threads);
    args.raw("sizes", sizes(*c.table, sizes_of(c)));
    if (c.failed) args.integer("error", c.failed);
    if (c.left_out) args.integer("calls_left_out_before", c.left_out);
    left_out_ += c.left_out;
    if (!c.traced) args.text("note", "the package is of an older coil, whose kernels cannot be told apart");
    event("call " + c.table->model, "call", c.thread, c.begin, c.end, args.object());
    event("check inputs", "host", c.thread, c.begin, c.checked, "{}");
    event("place outputs", "host", c.thread, c.checked, c.placed, "{}");
    event(cuda ? "enqueue kernels" : "kernels", "host", c.thread, c.placed, c.computed, "{}");
    const uint32_t stream = cuda ? stream_track(c.stream) : 0;
    for (const KernelSpan& k : c.kernels) kernel(c, k, cuda ? stream : k.thread);
    for (const ChunkSpan& k : c.chunks) {
      if (k.thread == c.thread) continue;  // the kernel's own event shows it
      workers_.insert(k.thread);
      const std::string name =
          k.kernel >= 0 && static_cast<size_t>(k.kernel) < c.table->kernels.size() ? c.table->kernels[static_cast<size_t>(k.kernel)].name : "images";
      event(name, "work", k.thread, k.begin, k.end, JsonMembers().integer("kernel", k.kernel).integer("items", k.items).object());
    }
  }

  int64_t left_out() const { return left_out_; }

  std::string text(const std::string& about) {
    name_tracks();
    return "{\"traceEvents\":[\n" + events_ + "\n],\"displayTimeUnit\":\"ns\",\"otherData\":" + about + "}\n";
  }

 private:
  void kernel(const CallRecord& c, const KernelSpan& k, uint32_t track) {
    const auto number = static_cast<size_t>(k.kernel);
    JsonMembers args;
    args.integer("kernel", k.kernel);
    if (number >= c.table->kernels.size()) return event("kernel " + std::to_string(k.kernel), "kernel", track, k.begin, k.end, args.object());
    const KernelRow& row = c.table->kernels[number];
    args.text("kind", row.kind).raw("ops", json_strings(row.ops));
    if (!row.function.empty()) args.text("function", row.function);
    if (!row.module.empty()) args.text("module", row.module);
    if (!row.source.empty()) args.text("source", row.source);
    if (!row.line.empty()) args.text("line", row.line);
    const std::span<const int64_t> all(c.sizes);
    const auto own =
        all.subspan(std::min<size_t>(k.sizes, all.size())).first(std::min(c.table->symbols.size(), all.size() - std::min<size_t>(k.sizes, all.size())));
    if (!own.empty()) args.raw("sizes", sizes(*c.table, own));
    if (const auto bytes = c.table->bytes(number, own)) args.number("bytes", *bytes, 0);
    if (const auto flops = c.table->flops(number, own)) args.number("flops", *flops, 0);
    if (const Counts counts = counts_of(c, k); c.counted)
      args.integer("cycles", static_cast<int64_t>(counts[0]))
          .integer("instructions", static_cast<int64_t>(counts[1]))
          .integer("cache_misses", static_cast<int64_t>(counts[2]));
    event(row.name, "kernel", track, k.begin, k.end, args.object());
  }

  static std::string sizes(const KernelTable& table, std::span<const int64_t> values) {
    JsonMembers members;
    for (size_t i = 0; i < std::min(table.symbols.size(), values.size()); ++i) {
      if (!table.counters[i]) members.integer(table.symbols[i], values[i]);
    }
    return members.object();
  }

  void event(const std::string& name, const char* category, uint32_t track, uint64_t begin, uint64_t end, const std::string& args) {
    if (end < begin) end = begin;
    line(JsonMembers()
             .text("name", name)
             .text("cat", category)
             .text("ph", "X")
             .integer("pid", pid_)
             .integer("tid", track)
             .number("ts", scale_.ns(begin) / 1e3)
             .number("dur", scale_.duration_ns(end - begin) / 1e3)
             .raw("args", args)
             .object());
  }

  void line(const std::string& json) { events_ += (events_.empty() ? "" : ",\n") + json; }

  // Numbers beyond those of threads.
  uint32_t stream_track(const void* stream) {
    const auto [at, added] = streams_.try_emplace(stream, 0x40000000u + static_cast<uint32_t>(streams_.size()));
    return at->second;
  }

  void name_track(uint32_t track, const std::string& name) {
    line(JsonMembers()
             .text("name", "thread_name")
             .text("ph", "M")
             .integer("pid", pid_)
             .integer("tid", track)
             .raw("args", JsonMembers().text("name", name).object())
             .object());
  }

  void name_tracks() {
    line(JsonMembers()
             .text("name", "process_name")
             .text("ph", "M")
             .integer("pid", pid_)
             .integer("tid", 0)
             .raw("args", JsonMembers().text("name", "coil").object())
             .object());
    for (const uint32_t t : callers_) name_track(t, "caller " + std::to_string(t));
    for (const uint32_t t : workers_) {
      if (!callers_.contains(t)) name_track(t, "pool thread " + std::to_string(t));
    }
    for (const auto& [stream, track] : streams_)
      name_track(track, stream ? "CUDA stream " + std::to_string(reinterpret_cast<uintptr_t>(stream)) : "CUDA default stream");
  }

  const TickScale& scale_;
  const int pid_;
  std::string events_;
  int64_t left_out_ = 0;
  std::set<uint32_t> callers_, workers_;
  std::map<const void*, uint32_t> streams_;
};

}  // namespace

std::string Profile::trace_json() const {
  const TickScale ticks = scale();
  TraceWriter writer(ticks);
  for (const auto& c : calls()) writer.call(*c);
  JsonMembers about;
  about.text("coil", COIL_VERSION).integer("dropped_calls", dropped()).integer("left_out_calls", writer.left_out());
  const std::string note = counters_note();
  if (!note.empty()) about.text("counters", note);
  return writer.text(about.object());
}

}  // namespace coil::runtime
