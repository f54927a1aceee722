// tests/passes/golden/<pass>/<case>.txt: a graph, "----", the graph after the pass (or the error). COIL_GOLDEN_UPDATE=1
// rewrites what comes after the line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "passes/pipeline.h"
#include "tests/passes/graph_text.h"
#include "tests/paths.h"

namespace coil {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = "----\n";

std::string read_all(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const Pass* find_pass(const std::string& name) {
  for (const Pass& p : graph_passes()) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

std::string run_pass(const Pass& pass, std::string_view input) {
  Result<Graph> graph = testing::graph_of(input);
  if (!graph.ok()) return "input: " + graph.error().to_string() + "\n";
  Result<Graph> after = pass.run(graph.value());
  if (!after.ok()) return after.error().to_string() + "\n";
  Status valid = verify(after.value());
  if (!valid.ok()) return "invalid: " + valid.error().to_string() + "\n";
  return to_string(after.value());
}

TEST(PassGoldens, All) {
  fs::path root = fs::path(COIL_SOURCE_DIR) / "tests/passes/golden";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 20u);
  bool update = std::getenv("COIL_GOLDEN_UPDATE") != nullptr;
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    const Pass* pass = find_pass(file.parent_path().filename().string());
    ASSERT_NE(pass, nullptr);
    std::string text = read_all(file);
    size_t at = text.find(kSeparator);
    std::string input = text.substr(0, at);
    std::string output = run_pass(*pass, input);
    EXPECT_FALSE(output.starts_with("input: ") || output.starts_with("invalid: ")) << output;
    if (update) {
      std::ofstream(file) << input << kSeparator << output;
    } else {
      ASSERT_NE(at, std::string::npos);
      EXPECT_EQ(output, text.substr(at + kSeparator.size()));
    }
  }
}

}  // namespace
}  // namespace coil
