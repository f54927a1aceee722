// The times of calls, kernel by kernel, of any package in any process: who asks starts a Profile; contexts see that somebody watches by
// one load, and then record. While nobody watches a call costs what it did; calls on CUDA streams that are being captured are left out.
//
// What a call records: when its inputs were checked, its memory was found, its kernels ran and it was over; each kernel's begin and end
// (CoilTrace in device/model_abi.h) with the sizes where these come from data; each piece of work of the pool's threads. On CUDA the
// kernels' times are the device's, and the kernels are enqueued one by one (not as a graph). Where all calls are asked for, each is waited
// for; else nobody waits, and the times are put into the record when somebody looks (LateTimes). Packages of older versions of coil tell of their calls, but
// not of their kernels.
//
// Where recording each call would take more than 2 % of their time, calls are left out after the first ones (call_sampling.h), unless
// ProfileOptions ask for all.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/kernel_table.h"
#include "runtime/ticks.h"

namespace coil::runtime {

class Model;

// Times in ticks (ticks.h).
struct KernelSpan {
  int32_t kernel = 0;
  uint32_t thread = 0;
  uint64_t begin = 0, end = 0;
  uint32_t sizes = 0;    // from where in CallRecord::sizes its own are
  uint32_t counted = 0;  // its row of CallRecord::counters, counted from 1; 0: it has none
};
using Counts = std::array<uint64_t, 3>;  // cycles, instructions, cache misses of a thread
// Work of a loop on one of the pool's threads.
struct ChunkSpan {
  int32_t kernel = 0;  // -1: of a loop over kernels, image by image
  uint32_t thread = 0;
  uint64_t begin = 0, end = 0;
  int64_t items = 0;
};
struct CallRecord {
  uint32_t thread = 0;
  uint64_t begin = 0, checked = 0, placed = 0, computed = 0, end = 0;
  int32_t failed = 0;            // the error's number
  const void* stream = nullptr;  // on CUDA
  // On CUDA, of a call that was not waited for: when the device had done what was before it, and when it had done the call. 0: it was waited for.
  uint64_t ready = 0, done = 0;
  const char* clock = "host";  // whose times the kernels have: "host", "CUDA events", "CUPTI"
  bool traced = false;         // the package tells of its kernels
  bool counted = false;        // `counters` are there
  int64_t left_out = 0;        // calls of this context before this one that were not recorded, to cost less
  std::vector<int64_t> sizes;  // the call's; then those of kernels that have their own
  std::vector<KernelSpan> kernels;
  std::vector<ChunkSpan> chunks;
  std::vector<Counts> counters;
  std::shared_ptr<const KernelTable> table;
  std::weak_ptr<const Model> model;
};

// The device's times of a call that was not waited for.
class LateTimes {
 public:
  virtual ~LateTimes() = default;
  // Waits for the call's kernels and puts their times into its record, once. Thread-safe.
  virtual void settle() noexcept = 0;
};

// What a call took, in ticks: where it was not waited for, from when the device could begin with it.
uint64_t ticks_of(const CallRecord& call);

// What the processor counted in a kernel; zeros where it did not.
Counts counts_of(const CallRecord& call, const KernelSpan& span);

// The call's sizes, those that the program has read from data included: as its last kernel had them.
std::span<const int64_t> sizes_of(const CallRecord& call);

struct ProfileOptions {
  int64_t calls = 0;       // watched so many, then no more; 0: until it is stopped
  bool counters = false;   // the processor's counters beside the times, where the system allows that: two system calls more for each kernel
  bool all_calls = false;  // none is left out to cost less
};

class Profile {
 public:
  // model null: all models of this process. `done` is called once, by the thread whose call was the last one of options.calls.
  static std::shared_ptr<Profile> start(const Model* model, const ProfileOptions& options, std::function<void(Profile&)> done = nullptr);
  void stop();
  ~Profile();

  const ProfileOptions& options() const { return options_; }
  // What was recorded so far; calls that are under way are left out, and those that a device has not done yet are waited for.
  std::vector<std::shared_ptr<const CallRecord>> calls() const;
  int64_t dropped() const;            // calls that found no room
  std::string counters_note() const;  // why there are no counters; empty: there are, or nobody asked
  TickScale scale() const;

  // A trace in the Chrome format, which Perfetto reads (profile_trace.cc), and the sums of each kernel as JSON (profile_table.cc).
  std::string trace_json() const;
  std::string table_json(const Model* only = nullptr) const;
  // The models of the recorded calls that are still open, in the order of their first calls.
  std::vector<std::shared_ptr<const Model>> models() const;

  // For recorders. Whether a call of `model` that begins now is to be recorded; each `take` is followed by one `add`.
  bool take(const Model& model);
  // Null: it was not recorded after all. `late` puts the kernels' times into the record.
  void add(std::shared_ptr<const CallRecord> call, std::shared_ptr<LateTimes> late = nullptr);
  void set_counters_note(const std::string& note);

 private:
  Profile(const Model* model, const ProfileOptions& options, std::function<void(Profile&)> done);

  const Model* model_;
  const ProfileOptions options_;
  std::function<void(Profile&)> done_;
  TickScale scale_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  int64_t taken_ = 0, added_ = 0, dropped_ = 0;
  size_t spans_ = 0;
  std::string counters_note_;
  std::vector<std::shared_ptr<const CallRecord>> calls_;
  mutable std::vector<std::shared_ptr<LateTimes>> late_;  // each once
};

// Grows with each profile that starts or ends, and each signal that asks for one.
extern std::atomic<uint32_t> profile_changes;
// How many profiles, or signals that ask for one, wait for calls: contexts look at it before each call.
extern std::atomic<int32_t> watchers;
// The profiles that want a call of `model`; each is owed an `add`.
std::vector<std::shared_ptr<Profile>> take_profiles(const Model& model);

// COIL_PROFILE and its companions: read with the process's first model. COIL-E402 when they are wrong (profile_env.cc).
Status start_profile_of_environment();
// A signal has come (profile_env.cc): starts what it asks for.
void answer_signals();

}  // namespace coil::runtime
