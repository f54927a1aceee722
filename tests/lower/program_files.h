// The exported programs that tests run: those of the museum, and the zoo's of single operators.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/paths.h"

namespace coil::testing {

inline std::vector<std::filesystem::path> files(const std::filesystem::path& folder, const std::string& ending) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::exists(folder)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().string().ends_with(ending)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

inline std::filesystem::path museum() {
  const char* other = std::getenv("COIL_MUSEUM");
  return other != nullptr ? std::filesystem::path(other) : std::filesystem::path(COIL_SOURCE_DIR) / "tests/museum";
}

// The programs of supported versions, each with its arrays.
inline std::vector<std::pair<std::filesystem::path, std::filesystem::path>> museum_programs() {
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> found;
  for (const char* version : {"torch-2.5.1", "torch-2.7.1", "torch-2.9.1", "torch-2.11.0", "torch-2.11.0-cuda", "torch-2.13.0", "torch-2.15.0"}) {
    for (const std::filesystem::path& file : files(museum() / version, ".pt2")) {
      std::string arrays = file.stem().string();
      if (arrays.ends_with("_core")) arrays.resize(arrays.size() - 5);
      found.emplace_back(file, file.parent_path() / (arrays + ".npz"));
    }
  }
  return found;
}

struct ZooProgram {
  std::filesystem::path file;
  std::vector<std::filesystem::path> sets;  // of arrays
  double tolerance = 0;
};

// "tolerance": 0.0001 of the zoo's meta.json
inline double number_after(const std::string& text, const std::string& key) {
  const size_t at = text.find("\"" + key + "\":");
  return at == text.npos ? 0 : std::atof(text.c_str() + at + key.size() + 3);
}

// The list that tests/models/zoo.py make --folders writes; the cache itself may hold programs of other versions of this tree. nullopt: no list is named.
inline std::optional<std::vector<ZooProgram>> zoo_programs() {
  const char* list = std::getenv("COIL_ZOO_FOLDERS");
  if (list == nullptr) return std::nullopt;
  // Its arrays hold a string, which .npz readers here refuse.
  const std::vector<std::string> refused = {"plain_arguments"};
  std::vector<ZooProgram> programs;
  std::ifstream folders(list);
  for (std::string line; std::getline(folders, line);) {
    const std::filesystem::path folder = line;
    std::ifstream in(folder / "meta.json");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string name = folder.filename().string();
    if (text.find("\"group\": \"op\"") == text.npos || std::find(refused.begin(), refused.end(), name) != refused.end()) continue;
    for (const std::filesystem::path& file : files(folder, ".pt2")) programs.push_back({file, files(folder, ".npz"), number_after(text, "tolerance")});
  }
  return programs;
}

}  // namespace coil::testing
