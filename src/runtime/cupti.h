// What ran on NVIDIA's devices, as their own tracing library (CUPTI) records it: begin and end of each kernel, copy and fill, without what lies
// between them. Found at run time (COIL_CUPTI); where it is missing, too old, or serves another tool of the process (nsys, torch.profiler), callers do
// with events on the stream (cuda_marks.h).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace coil::runtime {

class Cupti {
 public:
  struct Times {
    uint64_t begin = 0, end = 0;  // nanoseconds of now()
  };

  // Loads it when it is first asked, and begins to record. Null: it cannot be had; `note` says why. Thread-safe.
  static Cupti* start();
  static std::string note();
  // Records nothing more until the next start: when nobody watches calls.
  static void rest();

  uint64_t now() const;
  // What this thread enqueues between the two belongs to `id`, which no other work of the process has (new_id).
  void begin(uint64_t id);
  void end();
  static uint64_t new_id();

  // After the work is done: what ran for `id`, from the first begin to the last end; nothing where nothing was recorded. flush before.
  void flush();
  std::optional<Times> take(uint64_t id);

 private:
  struct Functions;
  Cupti() = default;
  bool load();
  bool record();
  void stop();
  static Cupti& one();
  static void give_buffer(uint8_t** buffer, size_t* size, size_t* most_records);
  static void read_buffer(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);
  void add(const uint8_t* record);
  void join(uint32_t correlation);

  std::mutex use_;  // of the next three
  Functions* f_ = nullptr;
  bool tried_ = false, recording_ = false;
  void* subscriber_ = nullptr;
  std::string note_;
  std::mutex mutex_;                  // of what was recorded
  std::map<uint32_t, uint64_t> ids_;  // by CUPTI's numbers
  std::map<uint32_t, Times> ran_;     // of which the id is not known yet
  std::map<uint64_t, Times> times_;   // by id
};

}  // namespace coil::runtime
