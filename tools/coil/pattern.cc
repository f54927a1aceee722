// The C library's, not std::regex: that is compiled anew in each file that uses it, for 6 seconds.
#include "pattern.h"

#include <regex.h>

#include "base/result.h"

namespace coil::tool {

std::optional<std::vector<std::string>> match(const char* pattern, const std::string& text) {
  if (text.find('\0') != std::string::npos) return std::nullopt;
  regex_t compiled;
  CHECK(regcomp(&compiled, (std::string("^(") + pattern + ")$").c_str(), REG_EXTENDED) == 0, pattern);
  std::vector<regmatch_t> found(compiled.re_nsub + 1);
  const bool matches = regexec(&compiled, text.c_str(), found.size(), found.data(), 0) == 0;
  regfree(&compiled);
  if (!matches) return std::nullopt;
  std::vector<std::string> parts;
  for (size_t i = 1; i < found.size(); ++i) {
    const auto begin = static_cast<size_t>(found[i].rm_so), end = static_cast<size_t>(found[i].rm_eo);
    parts.push_back(found[i].rm_so < 0 ? std::string() : text.substr(begin, end - begin));
  }
  return parts;
}

}  // namespace coil::tool
