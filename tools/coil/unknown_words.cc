#include "unknown_words.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace coil::tool {
namespace {

// How many letters have to be put in, left out or replaced.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kShort = 4;  // one letter is near any other
  if (word.size() < kShort) return "";
  const size_t most = std::max<size_t>(1, word.size() / 3);
  std::string best;
  size_t least = most + 1;
  for (const std::string& k : known) {
    // What begins like it is near, however long it is.
    const bool begins = word.size() >= 5 && k.starts_with(word);
    const size_t d = begins ? 1 : distance(word, k);
    if (d < least) least = d, best = k;
  }
  return best;
}

std::optional<UnknownWord> unknown_option(const std::vector<std::string>& words, const std::vector<std::string>& options) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "--") return std::nullopt;
    const bool option = name.size() > 1 && name[0] == '-' && !std::isdigit(static_cast<unsigned char>(name[1])) && name[1] != '.';
    // "-O3" and "-j4" are an option and its value.
    const bool known = std::find(options.begin(), options.end(), name) != options.end() ||
                       (name.size() > 2 && name[1] != '-' && std::find(options.begin(), options.end(), name.substr(0, 2)) != options.end());
    if (option && !known) return UnknownWord{name, nearest(name, options)};
  }
  return std::nullopt;
}

}  // namespace coil::tool
