// What is wrong with a command line that has a word which nobody knows, and which known one was perhaps meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace coil::tool {

// The known word that the fewest changed letters away from `word`; empty: none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

struct UnknownWord {
  std::string word, meant;  // meant: empty where no known one is near
};
// The first word of the command line that looks like an option ("--kernel", "--kernel=x") and is none of `options`.
std::optional<UnknownWord> unknown_option(const std::vector<std::string>& words, const std::vector<std::string>& options);

}  // namespace coil::tool
