#include "make_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

namespace coil::tool {
namespace {

// The tuner's, and what each command says by itself.
constexpr std::array kNotRepeated = {"tune",   "tune_budget", "tune_memory", "tune_threads", "warm",
                                     "record", "dump",        "debug_info",  "threads",      "replace_kernels"};

std::string whole_path(const std::string& path) {
  std::error_code ignored;
  const std::string whole = std::filesystem::absolute(path, ignored).string();
  return whole.empty() ? path : whole;
}

class Words {
 public:
  void option(std::string_view field, std::string flag, const std::string& value) {
    if (std::find(kNotRepeated.begin(), kNotRepeated.end(), field) != kNotRepeated.end()) return;
    if (const size_t brace = flag.find('{'); brace != std::string::npos) add(flag.substr(0, brace) + "=" + value);
    else add(flag), add((field == "replay" || field == "machine") && value != "this" ? whole_path(value) : value);
  }
  void add(const std::string& word) { text_ += (text_.empty() ? "" : " ") + make_word(word); }
  std::string done() { return std::move(text_); }

 private:
  std::string text_;
};

// A line's end would end the rule, whatever quotes it stands in.
bool is_control(char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }
bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-_./=:,+@").find(c) != std::string_view::npos; }

}  // namespace

std::string make_word(const std::string& text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  const bool escaped = std::any_of(text.begin(), text.end(), is_control);
  std::string out = escaped ? "\"$$(printf %b '" : "'";
  for (const char c : text) {
    if (is_control(c)) out += fmt::format("\\0{:03o}", static_cast<unsigned char>(c));
    else if (escaped && c == '\\') out += "\\\\";
    else out += c == '\'' ? "'\\''" : c == '$' ? "$$" : c == '#' ? "\\#" : std::string(1, c);
  }
  return out + (escaped ? "')\"" : "'");
}

std::string make_options(const CompileArguments& a, bool whole) {
  const CompileSettings defaults;
  Words words;
#define TEXT(field, text, flag, ...) \
  if (a.field != defaults.field) words.option(#field, flag, a.field);
#define NUMBER(field, number, least, most, flag, ...) \
  if (a.field != defaults.field) words.option(#field, flag, std::to_string(a.field));
#define WITHOUT(field, flag, help) \
  if (!a.field) words.add(flag);
#define LIST(field, flag, ...) \
  for (const std::string& each : a.field) words.option(#field, flag, each);
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
  for (const std::string& path : a.kernels) words.add("--user-kernels"), words.add(whole_path(path));
  if (!whole) return words.done();
  for (const std::string& dim : a.dims) words.add("--dim"), words.add(dim);
  if (!a.program.empty()) words.add("--program"), words.add(a.program);
  for (const std::string& each : a.replace_kernels) {
    const size_t equals = std::min(each.find('='), each.size());
    words.add("--replace-kernel");
    words.add(equals == each.size() ? each : each.substr(0, equals + 1) + whole_path(each.substr(equals + 1)));
  }
  return words.done();
}

}  // namespace coil::tool
