// A tuning record from anywhere: what is read is written again as it was read, and goes with itself. A second input behind a line "----"
// is merged into the first.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tune/record.h"

namespace {

using namespace coil;

void check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kSeparator = "\n----\n";
  const size_t end = text.find(kSeparator);
  Result<tune::Record> record = tune::parse_record(text.substr(0, end), "input");
  if (!record.ok()) {
    check(!record.error().message.empty());
    return 0;
  }
  const std::string written = tune::record_text(record.value());
  const Result<tune::Record> again = tune::parse_record(written, "what was written");
  check(again.ok());
  check(tune::record_text(again.value()) == written);
  (void)tune::record_tables(record.value());
  if (end == std::string_view::npos) return 0;
  const Result<tune::Record> more = tune::parse_record(text.substr(end + kSeparator.size()), "more");
  if (!more.ok() || !tune::merge(record.value(), more.value()).ok()) return 0;
  for (const tune::Entry& e : more.value().entries) check(more.value().untimed || record.value().find(e.problem));
  return 0;
}
