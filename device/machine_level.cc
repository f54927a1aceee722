// Which of a package's instruction sets this machine runs; see select_isa in host_support.h.
#include "input_errors.h"
#if defined(__x86_64__)
#include "x86_64/levels.h"
#elif defined(__aarch64__)
#include "aarch64/levels.h"
#endif

extern "C" {
char* getenv(const char* name);
int strcmp(const char* a, const char* b);
}

namespace cd {
namespace {

enum : int32_t { kWrongMachine = 303, kBadVariable = 402 };

}  // namespace

int32_t select_isa(const int32_t* levels, int32_t count, const char** isa_name, CoilError* error) {
  int32_t limit = machine_level();
  const char* wish = getenv("COIL_ISA");
  if (wish && *wish) {
    int32_t level = kMostLevel;
    while (level > 0 && strcmp(wish, kIsaNames[level]) != 0 && strcmp(wish, kIsaNames[level] + kShortName) != 0) level--;
    if (!level) return fail(error, kBadVariable, "COIL_ISA=%s is not one of %s", wish, kLevelWords), -1;
    if (level < limit) limit = level;
  }
  int32_t best = -1;
  for (int32_t i = 0; i < count; i++) {
    if (levels[i] <= limit && (best < 0 || levels[i] >= levels[best])) best = i;
  }
  if (best >= 0) {
    *isa_name = kIsaNames[levels[best]];
    return best;
  }
  error->code = kWrongMachine;
  Text text(error);
  text.add("the package holds code for");
  for (int32_t i = 0; i < count; i++) text.add("%s %s", i ? "," : "", kIsaNames[levels[i]]);
  text.add("; this machine runs %s%s; compile for it with --target", kIsaNames[limit], wish && *wish ? " (limited by COIL_ISA)" : "");
  return -1;
}

}  // namespace cd
