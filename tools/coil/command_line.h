// What a command declares of its command line: options, flags, commands of its own. CLI11 reads it (command_line.cc): its header takes a compiler ten
// seconds, so no other file includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace coil::tool {

// An option that was declared; belongs to its command. Each call returns the option itself, for the next one.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const std::string& placeholder);  // of its value in --help
  Option& required();
  Option& one_each();                           // of a list: one value each time that the option is given, so that a positional may follow
  Option& values(int least, int most);          // of a list, or of a value that may be left out (0, 1)
  Option& delimiter(char between);              // of a list in one word
  Option& within(int64_t least, int64_t most);  // whole numbers; both ends are allowed
  Option& within(int least, int most) { return within(int64_t{least}, int64_t{most}); }
  Option& within(double least, double most);
  Option& positive();
  bool given() const;  // after parsing

 private:
  CLI::Option* option_;
};

// A command, or the tool itself. A handle: copies name the same command. What values refer to must live until they are parsed.
class CommandLine {
 public:
  explicit CommandLine(CLI::App* app) : app_(app) {}

  // `name`: "model" (a positional), "--threads", "-o,--output". `value` keeps what it has where the option is not given.
  Option add_option(const std::string& name, std::string& value, const std::string& help);
  Option add_option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  Option add_option(const std::string& name, std::vector<int64_t>& value, const std::string& help);
  Option add_option(const std::string& name, int& value, const std::string& help);
  Option add_option(const std::string& name, int64_t& value, const std::string& help);
  Option add_option(const std::string& name, uint64_t& value, const std::string& help);
  Option add_option(const std::string& name, float& value, const std::string& help);
  Option add_option(const std::string& name, double& value, const std::string& help);
  // "--tf32{all}": may stand alone and means that word, or have a value.
  Option add_flag(const std::string& name, std::string& value, const std::string& help);
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  Option add_flag(const std::string& name, std::function<void()> given, const std::string& help);

  CommandLine add_command(const std::string& name, const std::string& help);
  void require_command();                // exactly one of its own
  void take_anything();                  // words that were not declared are no errors
  void footer(const std::string& text);  // of --help

  std::string name() const;
  std::vector<std::string> option_names() const;  // "--output", "-o"
  bool given() const;                             // after parsing: this command was asked for

 private:
  CLI::App* app_;
};

// What became of a command line.
struct ParseOutcome {
  enum class Kind {
    parsed,   // one of the commands was asked for
    text,     // --help or --version: `text` answers
    nothing,  // no command: `text` is the help
    wrong     // `text` says why, in CLI11's words
  };
  Kind kind = Kind::parsed;
  std::string text;
};

// The command line of a program whose commands are added by `declare`; parses, and calls `then` while the commands live.
int parse_command_line(int argc, char** argv, const char* description, const std::function<void(CommandLine&)>& declare,
                       const std::function<int(CommandLine&, const ParseOutcome&)>& then);

}  // namespace coil::tool
