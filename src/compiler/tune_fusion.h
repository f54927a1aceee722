// Tuning how a program's loops are fused: whole programs, each built one way, called in turns.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "compiler/compile.h"
#include "loop/loop.h"
#include "schedule/target.h"
#include "tune/record.h"
#include "tune/tuner.h"

namespace coil {

// A way to fuse loops, as a change of the target's preferences.
struct FusionWay {
  const char* text;
  void (*apply)(TargetTraits& traits);
};

// What a tuner found for the program as a whole. way: null for the own rules; entry: what the record shall hold, none if nothing was looked at.
struct FusionChoice {
  const FusionWay* way = nullptr;
  std::optional<tune::Entry> entry;
};

// The program planned one way, untuned; null: the own rules.
using PlanOneWay = std::function<Result<std::unique_ptr<TuningTarget>>(const FusionWay* way)>;

// From the caller's record; in the mode `max` also from the cache, or timed within a part of the budget. A way is taken where it is faster at the most
// important sizes and not slower at the others that are tried, and computes the same. Programs whose constants are large are left as they are: all ways
// are in memory at once. begin: when tuning began. Errors: those of a build or a call.
Result<FusionChoice> tune_fusion(const LoopProgram& loops, const PlanOneWay& plan, const CompileOptions& options, double begin);

// The way that a record has for the program; null: the own rules. tuning_record: it has one that this version does not know.
Result<const FusionWay*> recorded_way(const tune::Record& record, const LoopProgram& loops);

}  // namespace coil
