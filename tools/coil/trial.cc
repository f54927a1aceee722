#include "trial.h"

#include <filesystem>

#include <fmt/format.h>

#include "child.h"

namespace coil::tool {
namespace {

constexpr int kTrialInternal = 70;  // the exit code of a bug in coil

std::string own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

// What a bug in coil says, without the names and numbers that differ from program to program.
std::string internal_error(const std::string& output) {
  const size_t begin = output.find("COIL-E901");
  if (begin == std::string::npos) return "exit code 70";
  std::string line = output.substr(begin, output.find('\n', begin) - begin), out;
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') quoted = !quoted;
    else if (!quoted && (c < '0' || c > '9')) out += c;
  }
  return out;
}

// The first word of the first difference that `coil diff` names.
std::string difference(const std::string& output) {
  size_t first = std::string::npos;
  std::string found = "different";
  for (const char* word : {"wrong kernel ", "race kernel ", "overwritten kernel ", "different result "}) {
    const size_t at = output.find(word);
    if (at < first) first = at, found = std::string(word).substr(0, std::string(word).find(' '));
  }
  return found;
}

Result<ChildResult> run_limited(const TrialOptions& options, std::vector<std::string> command) {
  // A shell sets the limit for the command, before it becomes the command.
  if (options.bytes > 0) command.insert(command.begin(), {"/bin/sh", "-c", fmt::format("ulimit -v {}; exec \"$0\" \"$@\"", options.bytes >> 10)});
  return run_child(command, options.seconds);
}

}  // namespace

Result<std::string> how_it_fails(const TrialOptions& o, const std::string& folder) {
  const std::string program = folder + "/program.pt2", inputs = folder + "/inputs.npz";
  if (!o.test.empty()) {
    TRY(const ChildResult done, run_limited(o, {"/bin/sh", "-c", o.test, "sh", program, inputs}));
    return done.exit_code == 0 ? std::string("failed") : std::string();
  }
  std::vector<std::string> command = {own_path(), o.crash ? "run" : "diff", program, "-i", inputs};
  command.insert(command.end(), o.with.begin(), o.with.end());
  TRY(const ChildResult done, run_limited(o, std::move(command)));
  if (!o.crash) return done.exit_code == 1 ? difference(done.output) : std::string();
  if (done.signalled) return fmt::format("signal {}", done.exit_code - 128);
  return done.exit_code == kTrialInternal ? internal_error(done.output) : std::string();
}

Result<int> exit_of_check(const TrialOptions& o, const std::string& folder) {
  TRY(const ChildResult done, run_limited(o, {own_path(), "check", folder + "/program.pt2"}));
  return done.exit_code;
}

}  // namespace coil::tool
