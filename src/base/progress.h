// One live line on a terminal: "compiling kernels  12/40  generated add_relu". Silent when stderr is not a terminal.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace coil {

// Thread-safe. Redraws at most some 20 times a second; the line is wiped by finish() and by the destructor.
class Progress {
 public:
  enum class Mode { automatic, always, never };  // COIL_PROGRESS

  Progress() : Progress(Mode::never) {}
  explicit Progress(Mode mode, int fd = 2);
  // Mode from COIL_PROGRESS; automatic when unset or unknown.
  static Mode mode_from_env();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A new stage of `total` steps; 0: unknown.
  void begin(std::string_view label, size_t total);
  // One step is done; `detail` is what it was.
  void step(std::string_view detail = {});
  void finish();
  bool live() const { return live_; }

 private:
  void draw(bool force);
  void wipe();
  std::mutex mutex_;
  const int fd_;
  bool live_ = false;
  bool drawn_ = false;
  int width_ = 80;
  std::string label_, detail_;
  size_t done_ = 0, total_ = 0;
  double last_draw_ = 0;
};

}  // namespace coil
