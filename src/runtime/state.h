// The buffers that a program changes from call to call: counters, running statistics, the caches of one conversation. Calls on one state take turns;
// different states have nothing in common and may be used at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/device.h"
#include "runtime/late_pages.h"
#include "runtime/shared_pages.h"

namespace coil::runtime {

class Model;

class State {
 public:
  // What the exported program begins with. On the CPU only pages that are written to take memory (of one that `forks` also those that are read). The model
  // outlives the state.
  static Result<std::unique_ptr<State>> make(const Model& model, bool forks);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The functions below wait for calls under way and take the mutex.
  // Back to what the program begins with.
  Status reset();
  // A state of its own with the same contents. On the CPU both have their pages in common until one writes to them, and a fork of a state that `forks` copies
  // nothing: what was written since an earlier fork is copied when one of the two is used next, or, where forks have copied as much before, all that was ever
  // written to, once for all that have it. (CUDA: the whole, on the device.)
  Result<std::unique_ptr<State>> fork();
  // The contents as bytes, without what is zero, for restore() in any process that has opened the same package on the same kind of device.
  Result<std::vector<uint8_t>> save();
  // COIL-E213: the bytes are damaged, or of another model or another compile of it; the state is then as it was.
  Status restore(const uint8_t* bytes, size_t size);

  // A part of it, which lies within: into the host's memory, from there, and back to what the exported program begins with.
  Status read(int64_t begin, std::span<uint8_t> to);
  Status write(int64_t begin, std::span<const uint8_t> from);
  Status reset(int64_t begin, int64_t bytes);

  const Model& model() const { return model_; }
  int64_t bytes() const { return bytes_; }
  // In the device's memory. Whoever uses it holds the mutex.
  uint8_t* data() const { return data_; }
  // Before the data is used, `changes`: or changed. COIL-E213: this process is a fork(2) of the one that made the state, which has changed it since.
  Status enter(bool changes);
  std::mutex& mutex() { return mutex_; }
  // On CUDA: the event that the last call which used the state recorded, for streams to wait for; under the mutex.
  void* event() const { return event_; }

 private:
  explicit State(const Model& model);
  Status allocate();
  Status wait();
  Status fill(const uint8_t* from, int64_t bytes);  // from the device's or the host's memory; the rest with zeros
  Status copy(void* to, const void* from, int64_t bytes);
  // On the CPU.
  std::vector<SavedRun> file_parts() const;
  std::vector<SavedRun> written() const;  // what may be other than zero
  void own_alone();                       // fresh pages, which are zero
  bool take_file();
  Status leave_parent();
  Status fork_pages(State& other);
  bool map_in_common(State& other);
  Status give_late();  // before this one changes: forks that were not used yet get what they lack
  Status take_late();
  void copy_parts(State& to, std::span<const SavedRun> parts) const;
  size_t mapped_bytes() const;
  uint64_t& changes_in_file() const;

  const Model& model_;
  int64_t bytes_;
  uint8_t* data_ = nullptr;
  void* event_ = nullptr;
  bool forks_ = false;
  std::shared_ptr<SharedPages> pages_;  // what data_ is a mapping of; null: pages of its own
  bool common_ = false;                 // a mapping whose writes go to the file, which no other state has
  bool frozen_ = false;                 // forks have the file, too: the next change makes the mapping a private one
  std::shared_ptr<LatePages> given_;    // what forks of this one lack, which has not changed since
  std::shared_ptr<LatePages> lacked_;   // what this fork lacks, which has not been used yet
  uint64_t copied_ = 0;                 // bytes that this fork, and those that it comes from, have copied since the file was made
  // Another process may write to the file, too, if it was forked from this one. Each change is counted here and in the file.
  uint64_t process_ = 0, changes_ = 0;
  std::mutex mutex_;
};

}  // namespace coil::runtime
