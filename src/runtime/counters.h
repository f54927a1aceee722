// The processor's counters of a thread (perf_event), where the system allows them: in containers and virtual machines it often does not.
#pragma once

#include <cstdint>
#include <string>

namespace coil::runtime {

class Counters {
 public:
  Counters() = default;
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  // Counts what the calling thread does from now on. False: `note` says why it cannot.
  bool start();
  const std::string& note() const { return note_; }
  // Cycles, instructions, cache misses so far; those that the machine does not count stay 0.
  void read(uint64_t values[3]) const;

 private:
  void close();
  int files_[3] = {-1, -1, -1};
  uint32_t thread_ = 0;
  std::string note_;
};

}  // namespace coil::runtime
