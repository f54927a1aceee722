// The command `coil`: parses the command line, runs one command, turns errors into messages and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include "base/json.h"
#include <string_view>

#include "base/text.h"
#include "command.h"
#include "terminal.h"
#include "unknown_words.h"

namespace coil::tool {
namespace {

bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

// stderr always has the text; with --json, stdout has the same for programs.
int report(const Error& error, bool json) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  if (json) {
    const Json out = {{"error", {{"code", error_name(error.code)}, {"message", error.message}, {"where", error.where}, {"hint", error.hint}}}};
    put(out.dump(2, true) + "\n");
  }
  return exit_code(error.code);
}

int report_bug(const std::string& text, bool json) {
  return report({ErrorCode::internal, text, "", "this is a bug in coil: please report it with the command and, if you can, the model"}, json);
}

// The result is worth nothing if it did not arrive; a reader that went away (`| head`) wanted no more.
int flush_output(int code) {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout);
  if (!failed || errno == EPIPE || code != 0) return code;
  return report({ErrorCode::file_unwritable, fmt::format("cannot write to standard output: {}", std::strerror(errno)), "", ""}, false);
}

// What is wrong with the command line. `command`: what it asks for, null: nothing that there is.
Error line_error(const std::string& problem, const CommandLine& app, const CommandLine* command, const std::vector<std::string>& words) {
  const auto meant = [](const std::string& word) { return word.empty() ? std::string() : fmt::format("did you mean {}? ", word); };
  const std::string help = command ? fmt::format("see `coil {} --help`", command->name()) : "see `coil --help`";
  if (!command && !words.empty() && words[0][0] != '-') {
    std::vector<std::string> known;
    for (const CommandRow& row : commands()) known.emplace_back(row.name);
    return {ErrorCode::bad_option, fmt::format("there is no command '{}'", shown(words[0])), "", meant(nearest(words[0], known)) + help};
  }
  if (const auto unknown = unknown_option(words, (command ? command : &app)->option_names())) {
    return {ErrorCode::bad_option, fmt::format("{} has no option {}", command ? "coil " + command->name() : "coil", shown(unknown->word)), "",
            meant(unknown->meant) + help};
  }
  return {ErrorCode::bad_option, problem, "", help};
}

constexpr const char* kExamples =
    "Examples:\n"
    "  coil compile model.pt2 -o model.coil.pt2\n"
    "  coil run model.coil.pt2 --input inputs.npz --output outputs.npz\n"
    "  coil bench model.coil.pt2 --shape batch=8\n"
    "`coil COMMAND --help` tells more.";

int run_tool(int argc, char** argv, bool json) {
  std::vector<std::pair<CommandLine, Action>> added;
  const auto declare = [&](CommandLine& app) {
    app.footer(kExamples);
    for (const CommandRow& row : commands()) {
      CommandLine command = app.add_command(row.name, row.help);
      added.emplace_back(command, row.add(command));
    }
  };
  const auto act = [&](CommandLine& app, const ParseOutcome& outcome) {
    const auto asked = std::find_if(added.begin(), added.end(), [](const auto& row) { return row.first.given(); });
    switch (outcome.kind) {
      case ParseOutcome::Kind::text: put(outcome.text); return flush_output(0);
      case ParseOutcome::Kind::nothing: std::fputs(outcome.text.c_str(), stderr); return exit_code(ErrorCode::bad_option);
      case ParseOutcome::Kind::wrong:
        return report(line_error(outcome.text, app, asked == added.end() ? nullptr : &asked->first, {argv + 1, argv + argc}), json);
      case ParseOutcome::Kind::parsed: break;
    }
    const Result<int> result = asked->second();
    return flush_output(result.ok() ? result.value() : report(result.error(), json));
  };
  return parse_command_line(argc, argv, "coil compiles PyTorch programs (torch.export) to packages that run without PyTorch.", declare, act);
}

}  // namespace
}  // namespace coil::tool

int main(int argc, char** argv) {
  const bool json = coil::tool::wants_json(argc, argv);
  try {
    return coil::tool::run_tool(argc, argv, json);
  } catch (const std::bad_alloc&) {
    return coil::tool::report({coil::ErrorCode::out_of_memory, "out of memory", "", ""}, json);
  } catch (const std::exception& e) {
    return coil::tool::report_bug(e.what(), json);
  } catch (...) {
    return coil::tool::report_bug("unknown exception", json);
  }
}
