#include "compiler/bisect.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "codegen/interface/watch_text.h"
#include "compiler/call_memory.h"
#include "compiler/cpu_target.h"
#include "compiler/without.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"
#include "runtime/context.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr double kTimedSeconds = 0.15;
constexpr int kMostCalls = 2000;

bool has(const std::vector<std::string>& list, std::string_view word) { return std::find(list.begin(), list.end(), word) != list.end(); }

void add_replaced(const CompileOptions& options, std::vector<Switch>& out) {
  for (const KernelReplacement& r : options.replace_kernels) {
    out.push_back({"edited kernel", r.kernel, fmt::format("leaving out --replace-kernel {}={}", r.kernel, r.file), [name = r.kernel](CompileOptions& o) {
                     std::erase_if(o.replace_kernels, [&](const KernelReplacement& other) { return other.kernel == name; });
                   }});
  }
}

// The tuner's choices: problems whose rows ask for anything but the default.
void add_choices(const CompileOptions& options, std::vector<Switch>& out) {
  if (!options.tune.replay) return;
  const tune::Record& record = *options.tune.replay;
  for (size_t i = 0; i < record.entries.size(); ++i) {
    const tune::Entry& e = record.entries[i];
    std::string text;
    for (const tune::Row& r : e.rows) {
      if (!r.choice.empty()) text = r.text;
    }
    if (text.empty()) continue;
    out.push_back({"choice", fmt::format("{}: {}", e.kernel, text), fmt::format("remove the rows of '{}' in the record, or tune again", e.kernel),
                   [i](CompileOptions& o) {
                     std::vector<tune::Row>& rows = o.tune.replay->entries[i].rows;
                     rows.resize(1);
                     rows[0].choice.clear();
                     rows[0].text = "default";
                     rows[0].up_to = INT64_MAX;
                   }});
  }
}

void add_passes(const CompileOptions& options, std::vector<Switch>& out) {
  const auto add = [&](std::string_view pass) {
    if (!can_be_left_out(pass) || has(options.skip_passes, pass)) return;
    out.push_back(
        {"pass", std::string(pass), fmt::format("--skip {}", pass), [name = std::string(pass)](CompileOptions& o) { o.skip_passes.push_back(name); }});
  };
  for (const Pass& p : graph_passes()) add(p.name);
  for (const LoopPass& p : loop_passes()) add(p.name);
}

void add_steps(const CompileOptions& options, std::vector<Switch>& out) {
  for (const SchedulerStep& s : scheduler_steps()) {
    if (has(options.without, s.name)) continue;
    out.push_back({"step of the scheduler", fmt::format("{} ({})", s.name, s.what), fmt::format("--without {}", s.name),
                   [name = std::string(s.name)](CompileOptions& o) { o.without.push_back(name); }});
  }
}

// Subsets are halved as long as one of the halves still makes it go, then single members are dropped.
std::vector<Switch> fewest(const std::vector<Switch>& all, const std::function<bool(const std::vector<Switch>&)>& goes) {
  std::vector<Switch> kept = all;
  for (size_t parts = 2; kept.size() > 1 && parts <= kept.size();) {
    bool smaller = false;
    const size_t size = (kept.size() + parts - 1) / parts;
    for (size_t begin = 0; begin < kept.size() && !smaller; begin += size) {
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin),
                 last = kept.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, kept.size()));
      std::vector<Switch> part(first, last), rest(kept.begin(), first);
      rest.insert(rest.end(), last, kept.end());
      if (part.size() < kept.size() && goes(part)) kept = part, smaller = true, parts = 2;
      else if (!rest.empty() && rest.size() < kept.size() && goes(rest)) kept = rest, smaller = true, parts = std::max<size_t>(parts - 1, 2);
    }
    if (!smaller && size == 1) break;
    if (!smaller) parts = std::min(parts * 2, kept.size());
  }
  return kept;
}

}  // namespace

std::vector<Switch> switches_of(const CompileOptions& options) {
  std::vector<Switch> out;
  add_replaced(options, out);
  add_choices(options, out);
  add_passes(options, out);
  add_steps(options, out);
  if (options.winograd) out.push_back({"variant", "Winograd's filtering", "--no-winograd", [](CompileOptions& o) { o.winograd = false; }});
  if (options.libraries && options.tune.replay) out.push_back({"library", "oneDNN", "--no-libraries", [](CompileOptions& o) { o.libraries = false; }});
  if (options.opt_level > 0)
    out.push_back({"optimiser", fmt::format("of machine code, level {}", options.opt_level), "-O 0", [](CompileOptions& o) { o.opt_level = 0; }});
  const TargetChoice& target = options.targets[0];
  if (target.architectures.size() > 1) {
    const std::string lowest = target.architectures[0];
    const std::vector<std::string> names = target_names({{target.target, {lowest}}});
    out.push_back({"instruction set", "above " + lowest, "--target " + names[0], [lowest](CompileOptions& o) { o.targets[0].architectures = {lowest}; }});
  }
  return out;
}

Result<std::vector<Switch>> fusion_switches(const Graph& graph, const CompileOptions& options) {
  TRY(const Graph plain, simplified(with_own_pool(graph), options));
  TRY(const LoopProgram loops, loops_of(plain, *options.targets[0].target, options));
  const TargetTraits traits = cpu_traits(this_machine(), options);
  const LoopProgram laid = laid_out(loops, traits);
  TRY(const KernelPlan plan, schedule(loops, traits));
  std::set<BufferId> stored;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    for (BufferId id : results_of(plan, k)) stored.insert(id);
  }
  std::vector<Switch> out;
  for (const Loop& loop : laid.loops) {
    if (!std::holds_alternative<Pointwise>(loop.def) && !std::holds_alternative<Reduction>(loop.def) && !template_name(loop.def)) continue;
    if (stored.contains(loop.outputs[0])) continue;
    const std::string step = std::string(kFusionOf) + laid.buffer(loop.outputs[0]).name;
    out.push_back({"fusion", "of " + laid.buffer(loop.outputs[0]).name + " with what reads it", "--without " + step,
                   [step](CompileOptions& o) { o.without.push_back(step); }});
  }
  return out;
}

Culprits find_culprits(const CompileOptions& options, const std::vector<Switch>& switches, const Shows& shows,
                       const std::function<void(const std::string&)>& progress) {
  Culprits found;
  const auto goes = [&](const std::vector<Switch>& off) {
    CompileOptions changed = options;
    std::string text;
    for (const Switch& s : off) {
      s.off(changed);
      text += (text.empty() ? "" : ", ") + s.option;
    }
    if (progress) progress(off.size() > 3 ? fmt::format("{} options", off.size()) : text);
    ++found.compiles;
    return shows(changed) == std::optional<bool>(false);
  };
  for (const Switch& s : switches) {
    if (goes({s})) found.switches.push_back(s);
  }
  if (!found.switches.empty() || switches.size() < 2 || !goes(switches)) return found;
  found.together = true;
  found.switches = fewest(switches, goes);
  found.together = found.switches.size() > 1;
  return found;
}

Result<double> seconds_of_call(std::span<const uint8_t> package, std::span<const CoilTensorView> inputs, int threads) {
  using Clock = std::chrono::steady_clock;
  runtime::ModelOptions options;
  options.device = "cpu";
  options.num_threads = threads;
  TRY(const std::shared_ptr<runtime::Model> model, runtime::Model::open_memory(package, options));
  OwnInputs own(inputs);
  runtime::Context context(model);
  std::vector<CoilTensorView> outputs(static_cast<size_t>(model->code().num_outputs));
  double best = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kMostCalls; ++i) {
    for (CoilTensorView& o : outputs) o.data = nullptr;
    CoilError error = {};
    const auto start = Clock::now();
    const int32_t code = context.run(own.views.data(), static_cast<int32_t>(own.views.size()), outputs.data(), static_cast<int32_t>(outputs.size()), &error);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (code != 0) return Error{static_cast<ErrorCode>(code), error.message, "", ""};
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    if (i >= 4 && std::chrono::duration<double>(Clock::now() - begin).count() > kTimedSeconds) break;
  }
  return best;
}

}  // namespace coil
