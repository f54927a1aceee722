// Whole programs: every stage of their graphs is read back from its text as what it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "frontend/program_reader.h"
#include "passes/pipeline.h"
#include "tests/passes/read_back.h"
#include "tests/paths.h"

namespace coil {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> programs_in(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!fs::exists(folder)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".pt2") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void expect_stages_read_back(const fs::path& path) {
  SCOPED_TRACE(path.string());
  Result<Graph> graph = read_program_file(path.string());
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  const auto check = [](std::string_view stage, const Graph& g) {
    const auto again = testing::read_back(g);
    EXPECT_TRUE(again.ok()) << stage << ": " << again.error().to_string();
  };
  check("graph", graph.value());
  PassOptions options;
  options.observer = [&](std::string_view pass, const Graph&, const Graph& after) { check(pass, after); };
  const auto simple = run_passes(std::move(graph).value(), options);
  EXPECT_TRUE(simple.ok()) << simple.error().to_string();
}

TEST(GraphStages, OfTheMuseumAreReadBack) {
  const char* other = std::getenv("COIL_MUSEUM");
  const fs::path museum = other != nullptr ? fs::path(other) : fs::path(COIL_SOURCE_DIR) / "tests/museum";
  const std::vector<fs::path> programs = programs_in(museum);
  for (const fs::path& program : programs) expect_stages_read_back(program);
  EXPECT_FALSE(programs.empty()) << "no programs in " << museum;
}

TEST(GraphStages, OfOperatorsAreReadBack) {
  // The list that tests/models/zoo.py make --folders writes.
  const char* list = std::getenv("COIL_ZOO_FOLDERS");
  if (list == nullptr) GTEST_SKIP() << "COIL_ZOO_FOLDERS names no list of programs; tools/run_tests.py makes it";
  int programs = 0;
  std::ifstream folders(list);
  for (std::string line; std::getline(folders, line);) {
    std::ifstream in(fs::path(line) / "meta.json");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.find("\"group\": \"op\"") == text.npos) continue;
    for (const fs::path& file : programs_in(line)) {
      expect_stages_read_back(file);
      ++programs;
    }
  }
  EXPECT_GT(programs, 0) << "no programs of operators in " << list;
}

}  // namespace
}  // namespace coil
