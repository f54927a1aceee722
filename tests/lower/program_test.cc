// Whole programs: exported files against eager's results, through the passes, the lowering and the loop interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "frontend/program_reader.h"
#include "loop/parse.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "tests/lower/program_files.h"
#include "tests/lower/program_runner.h"
#include "tests/passes/read_back.h"
#include "tests/paths.h"

namespace coil {
namespace {

namespace fs = std::filesystem;

// The interpreter has no libraries.
bool calls_library(const LoopProgram& program) {
  return std::any_of(program.loops.begin(), program.loops.end(), [](const Loop& loop) {
    const auto* region = std::get_if<Region>(&loop.def);
    const auto inside = [](const RegionPart& part) { return calls_library(*part.program); };
    return std::holds_alternative<Library>(loop.def) || (region && std::any_of(region->parts.begin(), region->parts.end(), inside));
  });
}

// The program's text says all of it, but for what constants hold: read back and with their contents put in again, it is the same program.
void put_contents(LoopProgram& program, const LoopProgram& original) {
  std::map<std::string, const BufferInfo*> by_name;
  for (const BufferInfo& b : original.buffers) by_name[b.name] = &b;
  for (BufferInfo& b : program.buffers) {
    if (b.kind == BufferInfo::Kind::computed || b.kind == BufferInfo::Kind::input) continue;
    b.data = by_name.at(b.name)->data;
    b.strides = by_name.at(b.name)->strides;
  }
  for (size_t i = 0; i < program.loops.size(); ++i) {
    auto* region = std::get_if<Region>(&program.loops[i].def);
    for (size_t p = 0; region && p < region->parts.size(); ++p) {
      auto part = std::make_shared<LoopProgram>(*region->parts[p].program);
      put_contents(*part, *std::get<Region>(original.loops[i].def).parts[p].program);
      region->parts[p].program = std::move(part);
    }
  }
}

Result<LoopProgram> read_back(const LoopProgram& program) {
  const std::string text = to_string(program);
  TRY(LoopProgram again, parse_loops(text));
  if (const std::string other = to_string(again); other != text) {
    const auto at = static_cast<size_t>(std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
    return Error{ErrorCode::internal, "the text changes: " + text.substr(std::max<size_t>(at, 100) - 100, 300),
                 "now " + other.substr(std::max<size_t>(at, 100) - 100, 300), ""};
  }
  put_contents(again, program);
  return again;
}

// The program after its passes, read back from its text (tests/passes/text_test.cc does the stages before).
Result<Graph> simplified_by_text(const std::string& path) {
  TRY(Graph graph, read_program_file(path));
  TRY(graph, run_passes(std::move(graph)));
  return testing::read_back(graph);
}

Result<LoopProgram> loops_of(const Graph& graph, bool fold) {
  TRY(LoopProgram program, lower(graph));
  return testing::passed_loops(std::move(program), fold);
}

void expect_right(const fs::path& program, const std::vector<fs::path>& sets, double tolerance, bool fold) {
  SCOPED_TRACE(program.string());
  Graph original;
  auto expected = testing::lower_file(program.string(), fold, &original);
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  auto graph = simplified_by_text(program.string());
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  auto lowered = loops_of(graph.value(), fold);
  ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
  ASSERT_EQ(to_string(lowered.value()), to_string(expected.value()));
  auto again = read_back(lowered.value());
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  if (calls_library(lowered.value())) return;
  for (const fs::path& set : sets) {
    auto arrays = read_npz(set.string());
    ASSERT_TRUE(arrays.ok()) << arrays.error().to_string();
    auto result = testing::compare_with_eager(graph.value(), again.value(), arrays.value(), tolerance);
    ASSERT_TRUE(result.ok()) << set << ": " << result.error().to_string();
    EXPECT_TRUE(result.value().where.empty()) << set << ": " << result.value().where;
  }
}

TEST(Museum, ProgramsOfSupportedVersionsAreRight) {
  int programs = 0;
  for (const auto& [file, set] : testing::museum_programs()) {
    const double tolerance = set.stem().string().ends_with("bf16") ? 2e-2 : 1e-4;
    expect_right(file, {set}, tolerance, programs % 2 == 0);
    ++programs;
  }
  EXPECT_GT(programs, 0) << "no programs in " << testing::museum();
}

TEST(Zoo, EveryOperatorsProgramIsRight) {
  const std::optional<std::vector<testing::ZooProgram>> programs = testing::zoo_programs();
  if (!programs) GTEST_SKIP() << "COIL_ZOO_FOLDERS names no list of programs; tools/run_tests.py makes it";
  for (const testing::ZooProgram& p : *programs) expect_right(p.file, p.sets, p.tolerance, true);
  EXPECT_FALSE(programs->empty()) << "the list has no programs of operators";
}

}  // namespace
}  // namespace coil
