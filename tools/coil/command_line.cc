#include "command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "pattern.h"

namespace coil::tool {

Option& Option::type_name(const std::string& placeholder) {
  option_->type_name(placeholder);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::one_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::values(int least, int most) {
  option_->expected(least, most);
  return *this;
}

Option& Option::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

Option& Option::within(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::within(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Option CommandLine::add_option(const std::string& name, std::string& value, const std::string& help) { return Option(app_->add_option(name, value, help)); }

Option CommandLine::add_option(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option CommandLine::add_option(const std::string& name, std::vector<int64_t>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option CommandLine::add_option(const std::string& name, int& value, const std::string& help) { return Option(app_->add_option(name, value, help)); }

Option CommandLine::add_option(const std::string& name, int64_t& value, const std::string& help) { return Option(app_->add_option(name, value, help)); }

Option CommandLine::add_option(const std::string& name, uint64_t& value, const std::string& help) { return Option(app_->add_option(name, value, help)); }

Option CommandLine::add_option(const std::string& name, float& value, const std::string& help) { return Option(app_->add_option(name, value, help)); }

Option CommandLine::add_option(const std::string& name, double& value, const std::string& help) {
  CLI::Option* const option = app_->add_option(name, value, help);
  // NaN is outside of every range, but a comparison with its limits does not say so.
  option->check([](const std::string& text) { return std::isnan(std::strtod(text.c_str(), nullptr)) ? "'" + text + "' is not a number" : std::string(); });
  return Option(option);
}

Option CommandLine::add_flag(const std::string& name, std::string& value, const std::string& help) { return Option(app_->add_flag(name, value, help)); }

Option CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) { return Option(app_->add_flag(name, value, help)); }

Option CommandLine::add_flag(const std::string& name, std::function<void()> given, const std::string& help) {
  return Option(app_->add_flag_callback(name, std::move(given), help));
}

CommandLine CommandLine::add_command(const std::string& name, const std::string& help) { return CommandLine(app_->add_subcommand(name, help)); }

void CommandLine::require_command() { app_->require_subcommand(1, 1); }

void CommandLine::take_anything() { app_->prefix_command(); }

void CommandLine::footer(const std::string& text) { app_->footer(text); }

std::string CommandLine::name() const { return app_->get_name(); }

std::vector<std::string> CommandLine::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool CommandLine::given() const { return app_->parsed(); }

// "model: At Most 2 required but received 3", as the library says it.
static std::string in_plain_words(const std::string& message) {
  const auto m = match("([[:alnum:]_-]+): ((At Most|At Least) )?([0-9]+) required but received ([0-9]+)", message);
  if (!m) return message;
  const std::string &option = m->at(1), &which = m->at(3), &wanted = m->at(4), &received = m->at(5);
  const std::string bound = which == "At Most" ? "at most " : which == "At Least" ? "at least " : "";
  return option + " takes " + bound + wanted + (wanted == "1" ? " value" : " values") + ", not " + received;
}

int parse_command_line(int argc, char** argv, const char* description, const std::function<void(CommandLine&)>& declare,
                       const std::function<int(CommandLine&, const ParseOutcome&)>& then) {
  CLI::App app{description};
  app.name("coil");
  app.set_version_flag("--version", "coil " COIL_VERSION);
  CommandLine line(&app);
  declare(line);
  app.require_subcommand(0, 1);
  ParseOutcome outcome;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) {
      outcome = {ParseOutcome::Kind::wrong, in_plain_words(e.what())};
    } else {
      std::ostringstream text;
      app.exit(e, text, text);
      outcome = {ParseOutcome::Kind::text, text.str()};
    }
  }
  if (outcome.kind == ParseOutcome::Kind::parsed && app.get_subcommands().empty()) outcome = {ParseOutcome::Kind::nothing, app.help()};
  return then(line, outcome);
}

}  // namespace coil::tool
