#include "codegen/cpu/host/host_calls.h"

#include <utility>

#include <fmt/format.h>

#include "codegen/interface/read_text.h"
#include "codegen/interface/call_text.h"

namespace coil {

static constexpr size_t kCallsOfAFunction = 256;  // longer programs are several functions: clang's time grows faster than a function beyond that
static constexpr size_t kFunctionsOfAFile = 8;    // of more, there are several files: clang takes some 50 MB for one

void HostCalls::Level::close() {
  text += calls;
  calls.clear();
  text_offsets.merge(call_offsets);
}

std::set<int> HostCalls::offsets(size_t begin, size_t end) const {
  std::set<int> all;
  for (size_t k = begin; k < end; ++k) all.merge(offsets_of(plan_, plan_.kernels[k]));
  return all;
}

void HostCalls::add(Level& level, const std::string& text, std::set<int> offsets, size_t count) {
  level.calls += text;
  level.call_offsets.merge(offsets);
  level.count += count;
  if (level.count < kCallsOfAFunction || level.whole) return;
  const std::string name = fmt::format("calls_{}", num_functions_++);
  functions_.push_back({std::exchange(level.definitions, {}), name, std::exchange(level.calls, {}), std::exchange(level.call_offsets, {})});
  level.text += fmt::format("  if (const int32_t wrong = {}(call, error, host, s, flags{}{})) return wrong;\n", name, late_outputs() ? ", made" : "",
                            plan_.late_memory.empty() ? "" : ", late");
  level.count = 0;
}

void HostCalls::finish(Level& level) {
  if (!level.definitions.empty()) functions_.push_back({std::move(level.definitions), "", "", {}});
  named_first_.merge(level.text_offsets);
}

bool HostCalls::fill_files() const { return num_functions_ > kFunctionsOfAFile; }

bool HostCalls::late_outputs() const { return has_late_outputs(plan_); }

std::string HostCalls::head(const Function& f) const {
  return fmt::format("int32_t {}(const cd::TracedCall* call, CoilError* error, const CoilHost* host, long* s, int* flags{}{})", f.name,
                     late_outputs() ? ", void** made" : "", plan_.late_memory.empty() ? "" : ", uint8_t** late");
}

std::string HostCalls::defined(const Function& f, HostFile file, const std::string& one_thread) const {
  const char* kept = file == HostFile::alone ? "static " : "extern \"C\" __attribute__((visibility(\"hidden\"))) ";
  return f.definitions +
         fmt::format("__attribute__((noinline, optnone)) {}{} {{\n  (void)call, (void)error, (void)host, (void)s, (void)flags;\n{}{}  return 0;\n}}\n\n", kept,
                     head(f), one_thread, f.calls);
}

std::string HostCalls::text(HostFile file, const std::string& one_thread) const {
  std::string text;
  for (const Function& f : functions_) {
    if (f.name.empty()) text += f.definitions;
    else text += file == HostFile::alone ? defined(f, file, one_thread) : shared_text(HostFile::further, head(f), "");
  }
  return text;
}

std::vector<HostCalls::Part> HostCalls::parts(const std::string& one_thread) const {
  std::vector<Part> parts;
  for (size_t begin = 0; begin < functions_.size();) {
    Part& part = parts.emplace_back();
    for (size_t n = 0; begin < functions_.size() && n < kFunctionsOfAFile; ++begin) {
      const Function& f = functions_[begin];
      if (f.name.empty()) continue;
      part.text += defined(f, HostFile::further, one_thread);
      part.offsets.insert(f.offsets.begin(), f.offsets.end());
      ++n;
    }
  }
  return parts;
}

}  // namespace coil
