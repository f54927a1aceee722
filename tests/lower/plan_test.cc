// Whole programs as the scheduler plans them for the CPU and for CUDA: plans are sound, and interpreted kernel by kernel they give eager's results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/constants.h"
#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cuda/cuda_kernels.h"
#include "codegen/packings.h"
#include "frontend/program_reader.h"
#include "loop/interpret.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"
#include "schedule/interpret_plan.h"
#include "schedule/parse_plan.h"
#include "schedule/schedule.h"
#include "schedule/verify_plan.h"
#include "tests/lower/program_files.h"
#include "tests/lower/program_runner.h"

namespace coil {
namespace {

namespace fs = std::filesystem;

struct Way {
  const char* name;
  LowerOptions lowering;
  TargetTraits traits;
  bool images = false;  // of interest where kernels run image by image
};

// As the targets of src/compiler lower and schedule.
std::vector<Way> ways() {
  const LowerOptions cpu = {.library = true, .quantised_products = true, .split_columns = true, .int4_block = {}};
  const LowerOptions cuda = {.straight_line = true, .library = false, .atomics = true, .any_order = true, .int4_block = {}};
  TargetTraits small_caches = cpu::traits();
  small_caches.kept_bytes = 1;
  return {{"CPU", cpu, cpu::traits()}, {"CPU, image by image", cpu, small_caches, true}, {"CUDA", cuda, cuda::traits({{90}, false, 0, {}, {}})}};
}

bool has_images(const KernelPlan& plan) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) {
    const auto* mark = std::get_if<ControlMark>(&k.def);
    return mark && mark->kind == ControlMark::Kind::images;
  });
}

struct Planned {
  LoopProgram loops;
  KernelPlan plan;
};

Result<Planned> plan_of(const Graph& graph, const Way& way) {
  const Graph own = with_own_pool(graph);
  TRY(LoopProgram lowered, lower(own, way.lowering));
  TRY(LoopProgram loops, run_loop_passes(std::move(lowered), {way.lowering, {}, {}}));
  TRY(KernelPlan plan, schedule(loops, way.traits));
  layout_constants(plan);
  return Planned{std::move(loops), std::move(plan)};
}

// By rows, as comparisons want it.
TensorData dense(const TensorData& t) {
  TensorData out = t;
  const auto bytes = std::make_shared<std::vector<uint8_t>>(dense_bytes(t));
  out.bytes = *bytes, out.owner = bytes, out.offset = 0;
  int64_t step = 1;
  for (size_t d = t.sizes.size(); d-- > 0; step *= t.sizes[d]) out.strides[d] = step;
  return out;
}

// What is written to states and inputs: as the loop program's interpreter has it, if that knows all of its definitions.
void expect_same_writes(const Planned& planned, const std::vector<TensorData>& inputs, const std::vector<TensorData>& found, double tolerance) {
  std::vector<LoopOutput> outputs = planned.loops.outputs;
  std::erase_if(outputs, [](const LoopOutput& o) { return o.kind == LoopOutput::Kind::check; });
  if (std::all_of(outputs.begin(), outputs.end(), [](const LoopOutput& o) { return o.kind == LoopOutput::Kind::user; })) return;
  const auto expected = interpret(planned.loops, inputs);
  if (!expected.ok() && expected.error().code == ErrorCode::unsupported_feature) return;
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == LoopOutput::Kind::user) continue;
    const std::string different = testing::first_difference(expected.value()[i], found[i], tolerance);
    EXPECT_TRUE(different.empty()) << "what is written to " << outputs[i].name << different << "\n" << to_string(planned.plan);
  }
}

// How many plans were run and compared; others hold kernels that have no reference.
struct Count {
  int plans = 0, compared = 0;
};

void expect_right(const Planned& planned, const Graph& graph, const std::vector<fs::path>& sets, double tolerance, Count& count) {
  const KernelPlan& plan = planned.plan;
  bool compared = false;
  for (const fs::path& set : sets) {
    SCOPED_TRACE(set.string());
    const auto arrays = read_npz(set.string());
    ASSERT_TRUE(arrays.ok()) << arrays.error().to_string();
    const auto inputs = testing::inputs_of(graph, arrays.value());
    ASSERT_TRUE(inputs.ok()) << inputs.error().to_string();
    PlanInterpreter interpreter(plan, {3, constant_bytes});
    auto results = interpreter.run(inputs.value());
    if (!results.ok() && results.error().code == ErrorCode::unsupported_feature) return;
    ASSERT_TRUE(results.ok()) << results.error().to_string() << "\n" << to_string(plan);
    std::vector<TensorData> found;
    for (const TensorData& t : results.value()) found.push_back(dense(t));
    const auto result = testing::compare_results(plan.outputs, found, arrays.value(), tolerance);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_TRUE(result.value().where.empty()) << result.value().where << "\n" << to_string(plan);
    expect_same_writes(planned, inputs.value(), found, tolerance);
    compared = true;
  }
  count.compared += compared;
}

// The plan's text says all of it but for what constants hold, tuned choices, source lines and the code of users' kernels.
void expect_read_back(const KernelPlan& plan) {
  const std::string text = to_string(plan);
  const auto again = parse_plan(text);
  ASSERT_TRUE(again.ok()) << again.error().to_string() << "\n" << text;
  EXPECT_EQ(to_string(again.value()), text);
}

void expect_right(const fs::path& program, const std::vector<fs::path>& sets, double tolerance, Count& count) {
  SCOPED_TRACE(program.string());
  auto read = read_program_file(program.string());
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  const auto graph = run_passes(std::move(read).value());
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const auto planned = plan_of(graph.value(), way);
    if (!planned.ok() && planned.error().code == ErrorCode::unsupported_feature) continue;  // by CUDA
    ASSERT_TRUE(planned.ok()) << planned.error().to_string();
    const KernelPlan& plan = planned.value().plan;
    if (way.images && !has_images(plan)) continue;
    const Status sound = verify_at_examples(plan);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string() << "\n" << to_string(plan);
    ++count.plans;
    expect_read_back(plan);
    expect_right(planned.value(), graph.value(), sets, tolerance, count);
  }
}

TEST(PlansOfMuseum, AreSoundAndRight) {
  Count count;
  for (const auto& [file, set] : testing::museum_programs()) {
    const double tolerance = set.stem().string().ends_with("bf16") ? 2e-2 : 1e-4;
    expect_right(file, {set}, tolerance, count);
  }
  EXPECT_GT(count.compared, count.plans / 2);
}

TEST(PlansOfZoo, AreSoundAndRight) {
  const std::optional<std::vector<testing::ZooProgram>> programs = testing::zoo_programs();
  if (!programs) GTEST_SKIP() << "COIL_ZOO_FOLDERS names no list of programs; tools/run_tests.py makes it";
  Count count;
  for (const testing::ZooProgram& p : *programs) expect_right(p.file, p.sets, p.tolerance, count);
  EXPECT_GT(count.compared, count.plans / 2);
}

}  // namespace
}  // namespace coil
