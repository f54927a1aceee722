// Times, and which of them are worth a word. Microseconds as people read them: "35 us", "160 ms", "1.5 s".
#pragma once

#include <cstdio>
#include <string>

namespace coil::report {

inline constexpr double kShortKernel = 5;   // us a launch: about what starting threads, or a launch, costs
inline constexpr double kOneThread = 1.15;  // time of all threads beside that of the kernel

inline std::string time_text(double us) {
  char text[64];
  if (us >= 1e6) std::snprintf(text, sizeof text, "%.3g s", us * 1e-6);
  else if (us >= 1e3) std::snprintf(text, sizeof text, "%.3g ms", us * 1e-3);
  else std::snprintf(text, sizeof text, "%.3g us", us);
  return text;
}

}  // namespace coil::report
