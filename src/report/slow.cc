// See slow.h.
#include "report/slow.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "report/time_text.h"

namespace coil::report {
namespace {

constexpr double kNearRoof = 0.7, kFarFromRoof = 0.4;  // of what the machine can do
constexpr double kWorthTelling = 0.001;                // of a call, for what other kernels take
constexpr double kWorthNaming = 0.01;                  // of a call

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string percent(double share) { return number(share < 0.0095 ? "%.1f %%" : "%.0f %%", 100 * share); }

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return number("%.3g GB", bytes * 1e-9);
  if (bytes >= 1e6) return number("%.3g MB", bytes * 1e-6);
  return bytes >= 1e3 ? number("%.3g KB", bytes * 1e-3) : number("%.0f bytes", bytes);
}

bool is_product(const std::string& kind) {
  return kind == "gemm" || kind == "conv2d" || kind == "attention" || kind == "grouped_gemm" || kind == "quantised_gemm";
}

class Explainer {
 public:
  explicit Explainer(const Json& report) : report_(report), call_(report.at("call")), us_(call_.value("call_us", 0.0)) {
    for (const Json& t : report_.value("targets", Json::array())) tuned_ = tuned_ || (t.is_object() && t.contains("tuned_for"));
  }

  std::vector<std::string> run(size_t most) {
    whole();
    std::vector<const Json*> busiest;
    for (const Json& k : report_.at("kernels")) {
      if (k.value("us", 0.0) > kWorthNaming * us_) busiest.push_back(&k);
    }
    std::stable_sort(busiest.begin(), busiest.end(), [](const Json* a, const Json* b) { return (*a)["us"].get<double>() > (*b)["us"].get<double>(); });
    merge_equal(busiest, most);
    const double covered = shown_us_ / std::max(us_, 1e-9), rest = call_.value("kernels_us", 0.0) - shown_us_;
    if (shown_ > 0 && covered < 0.9 && rest > kWorthTelling * us_) say("The other kernels take " + percent(rest / us_) + " together.");
    fusing();
    for (const Json& a : report_.value("advice", Json::array())) say(a.at("text").get<std::string>());
    return std::move(text_);
  }

 private:
  void say(const std::string& sentence) { text_.push_back(sentence); }

  void whole() {
    const double host = call_.value("host_us", 0.0), kernels = call_.value("kernels_us", 0.0);
    say("A call takes " + time_text(us_) + " on the average (median " + time_text(call_.value("median_us", us_)) + ", " +
        time_text(call_.value("least_us", us_)) + " to " + time_text(call_.value("most_us", us_)) + ", " + std::to_string(call_.value("calls", 0)) +
        " calls): " + percent(kernels / std::max(us_, 1e-9)) + " in " + std::to_string(report_.at("kernels").size()) +
        (report_.at("kernels").size() == 1 ? " kernel, " : " kernels, ") + percent(host / std::max(us_, 1e-9)) +
        " in the host (checking inputs, finding memory, going from kernel to kernel).");
  }

  // Kernels of one function in several layers are one entry: what is said of one holds for all.
  void merge_equal(const std::vector<const Json*>& busiest, size_t most) {
    std::map<std::string, std::vector<const Json*>> groups;
    for (const Json* k : busiest) groups[key(*k)].push_back(k);
    std::vector<std::pair<double, std::vector<const Json*>>> order;
    for (const auto& [name, members] : groups) {
      double us = 0;
      for (const Json* k : members) us += (*k)["us"].get<double>();
      order.emplace_back(us, members);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [us, members] : order) {
      if (shown_ == most) break;
      kernel(*members[0], members.size(), us);
      shown_us_ += us;
      ++shown_;
    }
  }

  static std::string key(const Json& k) {
    const Json function = k.value("function", Json());
    return (function.is_string() ? function.get<std::string>() : k.value("name", "") + k.value("kind", "")) + "|" + number("%.0f", k.value("bytes", 0.0)) +
           "|" + number("%.0f", k.value("flops", 0.0));
  }

  static std::string place(const Json& k) {
    const Json origins = k.value("origins", Json::array());
    if (origins.empty()) return "";
    const std::string module = origins[0].value("module", ""), source = origins[0].value("source", "");
    const std::string text = module + (module.empty() || source.empty() ? "" : ", ") + source;
    return text.empty() ? "" : " (" + text + ")";
  }

  void kernel(const Json& k, size_t times, double us) {
    const Json function = k.value("function", Json());
    const std::string name = function.is_string() ? function.get<std::string>() : k.value("name", "");
    std::string text = name + place(k) + " takes " + percent(us / us_) + ", " + time_text(us);
    if (times > 1) text += " in " + std::to_string(times) + " equal kernels of " + time_text(us / static_cast<double>(times));
    say(text + ". " + bound(k) + choice(k) + shape(k) + threads(k));
  }

  std::string bound(const Json& k) const {
    const double us = k.value("us", 0.0), roof = k.value("roof_us", 0.0), launches = std::max(k.value("launches", 1.0), 1e-9);
    const std::string what = k.value("bound", "");
    if (k.value("kind", "") == "sort" && us / launches >= kShortKernel) return "It sorts: its time is that of comparisons, which no roof counts. ";
    if (us / launches < kShortKernel) return "It is short (" + time_text(us / launches) + " each): starting it costs as much as what it computes. ";
    if (roof <= 0 || what.empty())
      return k.contains("bytes") ? "" : "What it moves and computes is not known (a routine of a library, or a kernel of your own). ";
    const std::string amount = what == "compute" ? number("%.3g GFLOP at ", k.value("flops", 0.0) * 1e-9) + number("%.3g GFLOP/s", k.value("gflop_s", 0.0))
                                                 : bytes_text(k.value("bytes", 0.0)) + number(" at %.3g GB/s", k.value("gb_s", 0.0));
    const std::string limit = what == "compute" ? "arithmetic" : what == "cache" ? "bandwidth of the caches" : "bandwidth of the memory";
    const double part = roof / us;
    if (part >= kNearRoof)
      return "It is bound by the " + limit + ": " + amount + " is " + percent(part) + " of what this machine gives. Only " +
             (what == "compute" ? "less arithmetic" : "moving less") + " makes it faster. ";
    if (part >= kFarFromRoof) return "The " + limit + " would allow " + time_text(roof) + ": " + amount + ", " + percent(part) + " of this machine's. ";
    return "Neither arithmetic nor memory explains its time: the " + limit + " would allow " + time_text(roof) + " (" + percent(part) + "). ";
  }

  // How it was chosen, and what the others took.
  std::string choice(const Json& k) const {
    const std::string variant = k.value("variant", "");
    std::string text;
    if (!variant.empty()) text = "The tuner chose '" + variant + "' for it. ";
    else if (is_product(k.value("kind", "")) && !tuned_) text = "It runs by default rules; its variants were not timed (coil compile --tune fast). ";
    if (k.contains("replaced")) text += "Its text was edited (--replace-kernel). ";
    return text;
  }

  // What the compilation noted of its shapes.
  static std::string shape(const Json& k) {
    const std::string text = k.contains("hint") ? k["hint"].value("text", "") : "";
    return text.empty() ? "" : "Its shapes cost time: " + text + ". ";
  }

  std::string threads(const Json& k) const {
    const double threads = call_.value("threads", 1.0), us = k.value("us", 0.0), all = k.value("threads_us", 0.0);
    if (threads < 2 || us / std::max(k.value("launches", 1.0), 1e-9) < 10 * kShortKernel || all >= kOneThread * us) return "";
    return "It ran on one of " + number("%.0f", threads) + " threads. ";
  }

  // The pairs that cost most, each reason once.
  void fusing() {
    std::vector<const Json*> rows;
    for (const Json& n : report_.at("not_fused")) {
      if (n.value("saves_us", 0.0) > kWorthNaming * us_) rows.push_back(&n);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Json* a, const Json* b) { return a->value("saves_us", 0.0) > b->value("saves_us", 0.0); });
    std::set<std::string> said;
    for (const Json* n : rows) {
      if (said.size() == 3) break;
      const std::string sentence = n->value("producer", "") + " was not fused into " + n->value("consumer", "") + " (" + n->value("reason", "") +
                                   "): " + bytes_text(n->value("bytes", 0.0)) + " go through memory for it, at least " + time_text(n->value("saves_us", 0.0)) +
                                   ".";
      if (said.insert(n->value("reason", "")).second) say(sentence);
    }
  }

  const Json& report_;
  const Json& call_;
  const double us_;
  bool tuned_ = false;
  std::vector<std::string> text_;
  size_t shown_ = 0;
  double shown_us_ = 0;
};

}  // namespace

std::vector<std::string> why_slow(const Json& report, size_t kernels) {
  std::vector<std::string> sentences = Explainer(report).run(kernels);
  for (std::string& s : sentences) {
    while (!s.empty() && s.back() == ' ') s.pop_back();
  }
  return sentences;
}

}  // namespace coil::report
