// The tuner of whole programs: which sizes to look at, what is known already, the search, and the record of what was found. What a
// kernel's choices are and how a build that can run them is timed is a TuningTarget's business.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "codegen/choice.h"
#include "schedule/kernel_plan.h"
#include "tune/options.h"
#include "tune/profiling.h"
#include "tune/record.h"
#include "tune/search.h"

namespace coil {

// Values of all symbols but those from data and `workers`, by their ids.
using SymbolValues = std::vector<int64_t>;

// Kernels that are one problem, in the program's order. Copies, sorts and the like are none.
struct TuningProblem {
  std::string text;
  std::vector<size_t> kernels;
};
// By the texts of the plan's kernels; an empty text: no problem.
std::vector<TuningProblem> problems_of(const std::vector<std::string>& texts);

tune::NamedChoice named(const ChoiceNames& names, const Choice& choice);
// Null: a name that the kernel does not have.
std::optional<Choice> choice_of(const ChoiceNames& names, const tune::NamedChoice& named);

class TuningTarget {
 public:
  // [point][problem]: what to time there, the kernel's own rule first.
  using Candidates = std::vector<std::vector<std::vector<Choice>>>;

  virtual ~TuningTarget() = default;
  virtual const KernelPlan& plan() const = 0;
  virtual const std::vector<TuningProblem>& problems() const = 0;
  virtual tune::Hardware hardware() const = 0;
  virtual int64_t workers() const = 0;  // the plan's symbol of that name in the timed calls

  // Of one kernel of the plan. choice_key: the number by which choices differ; candidates: at most so many.
  virtual Expr choice_key(size_t kernel) const = 0;
  virtual const ChoiceNames& names(size_t kernel) const = 0;
  virtual std::string choice_text(size_t kernel, const Choice& choice) const = 0;
  virtual std::vector<Choice> candidates(size_t kernel, const std::function<int64_t(SymbolId)>& sizes, size_t most) const = 0;

  // The part of its time that this choice must save over every other to be chosen.
  virtual double needed_gain(size_t, const Choice&) const { return 0; }

  // What the results depend on beside the hardware, the problem and the options.
  virtual std::vector<cache::Field> cache_fields() const = 0;

  // What a build of the program alone takes until it can be called, roughly.
  virtual double ready_seconds() const = 0;

  // Builds the program such that it can run all candidates, which it may make fewer to be done within `seconds`. Null: they were built,
  // but this machine has no device to time them. points and candidates outlive the profiler.
  virtual Result<std::unique_ptr<ProgramProfiler>> profiler(const std::vector<SymbolValues>& points, Candidates& candidates, double seconds) = 0;
};

// Of each kernel: what some point wants to time.
std::vector<std::vector<Choice>> united_choices(const KernelPlan& plan, const std::vector<TuningProblem>& problems, const TuningTarget::Candidates& candidates);

// cache: of tuned problems; null: none. begin: when tuning began, by tuning_clock(). Errors: those of a build or a call.
Result<tune::Record> run_tuner(TuningTarget& target, const TuneOptions& options, cache::Cache* cache, double begin);
double tuning_clock();  // seconds

// What the constants' way into a build that is called takes: copied, summed, copied to a device.
inline double load_seconds(const KernelPlan& plan) { return 3e-9 * static_cast<double>(plan.constants_bytes); }

// A problem's entry in the cache: a record of that entry alone.
std::optional<tune::Entry> cached_entry(cache::Cache& cache, const cache::Key& key);
void keep_entry(cache::Cache& cache, const cache::Key& key, const tune::Hardware& hardware, const tune::Entry& entry);

// The times of the candidates that ran or were wrong, in their order; text: of a candidate, by its number.
void add_timings(tune::MeasuredPoint& point, const tune::ProblemResult& result, const std::function<std::string(size_t)>& text);

// Dimensions that a caller chooses.
std::vector<SymbolId> free_symbols(const KernelPlan& plan);

// The sizes to tune at, in the order of their importance: each dimension through its range, the others at a middle size; what the user
// named comes first.
std::vector<SymbolValues> points_of(const KernelPlan& plan, const TuneOptions& options);

// What was chosen for a kernel at some sizes.
struct Chosen {
  Choice choice;
  SymbolValues values;
};

// The last choice key that goes with `low` of two neighbouring sizes. Where the target's own order agrees with what was chosen at both, it says where the
// better choice changes (programs of one dynamic dimension). Elsewhere all between goes with `high`: its choice was seen to serve as much work.
int64_t last_key_of(const TuningTarget& target, size_t kernel, const Chosen& low, const Chosen& high);

// Whether the program's guards allow these sizes.
bool allowed_at(const KernelPlan& plan, const SymbolValues& values);

// bad_option: --warm names a dimension that the program does not have, or sizes out of its range.
Status check_warm(const KernelPlan& plan, const TuneOptions& options);

// Bytes of scratch memory of a call, at the largest of the sizes that are tried.
uint64_t most_scratch(const KernelPlan& plan, const TuneOptions& options, int64_t workers);

// The names of a plan's dynamic dimensions at a point, and the values of all symbols there.
std::map<std::string, int64_t> names_of(const KernelPlan& plan, const SymbolValues& values);
std::function<int64_t(SymbolId)> lookup(const KernelPlan& plan, const SymbolValues& values, int64_t workers);

// Writes a record's choices into a plan whose kernels have these texts and keys. tuning_record, naming the problem that the record
// lacks, or the choice that this version does not have. `has`: whether a kernel can be run so.
struct RecordedKernel {
  std::string problem;  // empty: none
  Expr key;
  const ChoiceNames* names = nullptr;
  std::function<bool(const Choice&)> has;
  std::function<std::string(const Choice&)> text;
};
Status apply_record(KernelPlan& plan, const std::vector<RecordedKernel>& kernels, const tune::Record& record);

}  // namespace coil
