#include "lower/pipeline.h"

#include <algorithm>
#include <map>

#include "loop/demanded_ranges.h"
#include "lower/find_attention.h"
#include "lower/find_quantised.h"

namespace coil {
namespace {

bool has_quantised_products(const LowerOptions& target) { return target.quantised_products; }

constexpr LoopPass kPasses[] = {
    {"find_attention", nullptr, [](LoopProgram p, const LowerOptions&) -> Result<LoopProgram> { return find_attention(std::move(p)); }, true},
    // Weights that were packed in another way become what the next pass knows.
    {"fold_bytes", has_quantised_products, [](LoopProgram p, const LowerOptions&) { return fold_constants(std::move(p), Fold::bytes); }, false},
    {"find_quantised", has_quantised_products,
     [](LoopProgram p, const LowerOptions& t) -> Result<LoopProgram> { return find_quantised(std::move(p), {t.int8_activations, t.signed_rows_only}); }, true},
    // After those that read what constants are made of.
    {"fold_constants", nullptr, [](LoopProgram p, const LowerOptions&) { return fold_constants(std::move(p)); }, true},
    {"merge_equal", nullptr, [](LoopProgram p, const LowerOptions&) -> Result<LoopProgram> { return merge_equal(std::move(p)); }, false},
    // Last: what the others wrote anew is read in part as well.
    {"demanded_ranges", nullptr, [](LoopProgram p, const LowerOptions& t) -> Result<LoopProgram> { return demanded_ranges(std::move(p), t.split_columns); },
     false},
};

using Step = std::function<Result<LoopProgram>(LoopProgram)>;

Result<LoopProgram> run_everywhere(LoopProgram program, const Step& step);

// A pass leaves a part's inputs where they are, but may number its buffers anew: the captures follow.
Result<RegionPart> run_on_part(const RegionPart& part, const Step& step) {
  std::map<BufferId, size_t> places;
  const std::vector<LoopInput>& inputs = part.program->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) places.emplace(inputs[i].buffer, i);
  TRY(LoopProgram program, run_everywhere(*part.program, step));
  RegionPart changed = part;
  for (auto& capture : changed.captures) capture.first = program.inputs.at(places.at(capture.first)).buffer;
  changed.program = std::make_shared<const LoopProgram>(std::move(program));
  return changed;
}

Result<LoopProgram> run_everywhere(LoopProgram program, const Step& step) {
  for (Loop& loop : program.loops) {
    auto* region = std::get_if<Region>(&loop.def);
    if (!region) continue;
    for (RegionPart& part : region->parts) {
      TRY(part, run_on_part(part, step));
    }
  }
  return step(std::move(program));
}

}  // namespace

std::span<const LoopPass> loop_passes() { return kPasses; }

Result<LoopProgram> remove_dead(LoopProgram program) {
  return run_everywhere(std::move(program), [](LoopProgram p) -> Result<LoopProgram> { return dead_loops(std::move(p)); });
}

Result<LoopProgram> run_loop_passes(LoopProgram program, const LoopPassOptions& options) {
  TRY_STATUS(verify(program));
  for (const LoopPass& pass : kPasses) {
    if (pass.wanted && !pass.wanted(options.target)) continue;
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end()) continue;
    TRY(program, run_everywhere(std::move(program), [&](LoopProgram p) -> Result<LoopProgram> {
          TRY(LoopProgram next, pass.run(std::move(p), options.target));
          return pass.leaves_dead ? dead_loops(std::move(next)) : next;
        }));
    const Status valid = verify(program);
    CHECK(valid.ok(), std::string(pass.name) + ": " + (valid.ok() ? "" : valid.error().to_string()));
    if (options.observer) options.observer(pass.name, program);
  }
  return program;
}

}  // namespace coil
