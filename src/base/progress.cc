#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/env.h"
#include "base/text.h"

namespace coil {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void put(int fd, const std::string& text) {
  // A terminal that went away is no reason to stop compiling.
  if (::write(fd, text.data(), text.size()) < 0) return;
}

}  // namespace

Progress::Mode Progress::mode_from_env() {
  const auto text = env("COIL_PROGRESS");
  if (text == "always") return Mode::always;
  if (text == "never") return Mode::never;
  return Mode::automatic;
}

Progress::Progress(Mode mode, int fd) : fd_(fd), live_(mode == Mode::always || (mode == Mode::automatic && ::isatty(fd))) {
  winsize size{};
  if (live_ && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) width_ = size.ws_col;
}

Progress::~Progress() { finish(); }

void Progress::begin(std::string_view label, size_t total) {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  label_ = label;
  detail_.clear();
  done_ = 0;
  total_ = total;
  draw(true);
}

void Progress::step(std::string_view detail) {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  ++done_;
  detail_ = detail;
  draw(done_ == total_);
}

void Progress::finish() {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  wipe();
}

void Progress::draw(bool force) {
  const double time = now();
  if (!force && time - last_draw_ < 0.05) return;
  last_draw_ = time;
  std::string line = total_ > 0 ? fmt::format("{}  {}/{}", shown(label_), done_, total_) : shown(label_);
  if (!detail_.empty()) line += "  " + shown(detail_);
  line = clipped(line, static_cast<size_t>(width_) - 1);
  put(fd_, "\r\033[K" + line);
  drawn_ = true;
}

void Progress::wipe() {
  if (drawn_) put(fd_, "\r\033[K");
  drawn_ = false;
}

}  // namespace coil
