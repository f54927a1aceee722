// See advice.h.
#include "report/advice.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "report/time_text.h"

namespace coil::report {
namespace {

constexpr double kHostShare = 0.1;  // of a call
constexpr double kShortShare = 0.3;
constexpr double kWorthSaying = 0.02;  // of a call
constexpr double kLowRoof = 0.4;       // products and convolutions usually reach more

std::string text_of(const char* format, double a, double b = 0) {
  char text[384];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

std::string text_of(const char* format, double a, const std::string& b) {
  char text[384];
  std::snprintf(text, sizeof text, format, a, b.c_str());
  return text;
}

std::string count_of(const std::vector<int>& kernels, const char* one, const char* several) {
  return std::to_string(kernels.size()) + " " + (kernels.size() == 1 ? one : several);
}

class Adviser {
 public:
  explicit Adviser(const Json& report) : report_(report), call_(report.at("call")), us_(call_.value("call_us", 0.0)) {}

  Json run() {
    if (us_ <= 0) return Json::array();
    host();
    short_kernels();
    slow_products();
    shapes();
    one_thread();
    copies();
    std::stable_sort(found_.begin(), found_.end(), [](const Json& a, const Json& b) { return a["us"].get<double>() > b["us"].get<double>(); });
    return Json(found_);
  }

 private:
  // Whether kernels have a device's times.
  bool on_device() const { return call_.value("clock", "host") != "host"; }

  void add(const std::string& text, double us, std::vector<int> kernels) { found_.push_back({{"text", text}, {"us", us}, {"kernels", kernels}}); }

  template <class F>
  double sum(std::vector<int>* kernels, F time) const {
    double us = 0;
    for (const Json& k : report_.at("kernels")) {
      const double part = k.contains("us") ? time(k) : 0.0;
      if (part > 0) us += part, kernels->push_back(k.at("n").get<int>());
    }
    return us;
  }

  void host() {
    const double host = call_.value("host_us", 0.0);
    if (host < kHostShare * us_) return;
    if (on_device())
      return add(
          text_of(
              "%.0f %% of a call (%s) is the host's: a recorded call starts its kernels one by one and is waited for. coil bench measures calls as they are "
              "otherwise. Larger batches make the host matter less.",
              100 * host / us_, time_text(host)),
          host, {});
    add(text_of("%.0f %% of a call (%s) is the host's: checking inputs, finding memory, going from kernel to kernel. Larger batches make it matter less.",
                100 * host / us_, time_text(host)),
        host, {});
  }

  void short_kernels() {
    std::vector<int> kernels;
    const double us = sum(
        &kernels, [](const Json& k) { return k["us"].get<double>() / std::max(k.value("launches", 1.0), 1.0) < kShortKernel ? k["us"].get<double>() : 0.0; });
    if (us < kShortShare * us_ || kernels.size() < 2) return;
    if (on_device())
      return add(
          text_of("%.0f kernels of less than 5 us each take %.0f %% of the call: starting one takes about as long. Larger batches use the device better; calls "
                  "that nobody records may run as one CUDA graph, which starts them faster.",
                  static_cast<double>(kernels.size()), 100 * us / us_),
          us / 2, kernels);
    add(text_of(
            "%.0f kernels of less than 5 us each take %.0f %% of the call: there is too little work for more threads. Larger batches, or one thread (num_threads=1) where calls run side by side, use the machine better.",
            static_cast<double>(kernels.size()), 100 * us / us_),
        us / 2, kernels);
  }

  void slow_products() {
    std::vector<int> kernels;
    const bool tuned =
        std::any_of(report_.at("targets").begin(), report_.at("targets").end(), [](const Json& t) { return t.is_object() && t.contains("tuned_for"); });
    const double us = sum(&kernels, [](const Json& k) {
      const std::string kind = k.value("kind", "");
      const bool product = kind == "gemm" || kind == "conv2d" || kind == "attention" || kind == "grouped_gemm";
      const double roof = k.value("roof_us", 0.0), took = k["us"].get<double>();
      return product && roof > 0 && roof < kLowRoof * took ? took - roof / kLowRoof : 0.0;
    });
    if (us < kWorthSaying * us_) return;
    add(count_of(kernels, "product or convolution stays", "products and convolutions stay") + " below 40 % of what the machine can do; " + time_text(us) +
            " of a call lie there. " +
            (tuned ? "They were tuned already: look for small or odd sizes (batch, channels) in their shapes."
                   : "Tuning times their variants: coil compile --tune fast."),
        us, kernels);
  }

  // What the compilation noted of a kernel's shapes, once for all kernels of which it noted the same.
  void shapes() {
    struct Noted {
      std::string text;
      double us = 0;
      bool known = true;  // how much of the time goes there
      std::vector<int> kernels;
    };
    std::vector<Noted> noted;
    for (const Json& k : report_.at("kernels")) {
      if (!k.contains("hint") || !k.contains("us")) continue;
      const std::string text = k["hint"].value("text", "");
      const double spares = k["hint"].value("spares", 0.0), us = k["us"].get<double>();
      auto found = std::find_if(noted.begin(), noted.end(), [&](const Noted& n) { return n.text == text; });
      if (found == noted.end()) found = noted.insert(noted.end(), Noted{text, 0, true, {}});
      found->us += spares > 0 ? us * spares : us;
      found->known = found->known && spares > 0;
      found->kernels.push_back(k.at("n").get<int>());
    }
    for (const Noted& n : noted) {
      if (n.us < kWorthSaying * us_) continue;
      const Json& first = report_.at("kernels").at(static_cast<size_t>(n.kernels[0]));
      std::string text = first.value("name", "") + place_of(first);
      if (n.kernels.size() > 1) text += " and " + std::to_string(n.kernels.size() - 1) + " more";
      add(text + ": " + n.text + (n.known ? "; the padding takes about " : "; the product takes ") + time_text(n.us) + " of a call.", n.us, n.kernels);
    }
  }

  static std::string place_of(const Json& kernel) {
    for (const Json& o : kernel.value("origins", Json::array())) {
      const std::string source = o.value("source", "");
      if (!source.empty()) return " (" + source.substr(0, source.find(" in ")) + ")";
    }
    return "";
  }

  void one_thread() {
    const double threads = report_.at("call").value("threads", 1.0);
    if (threads < 2) return;
    std::vector<int> kernels;
    const double us = sum(&kernels, [&](const Json& k) {
      const double took = k["us"].get<double>();
      const bool alone = k.value("threads_us", 0.0) < kOneThread * took;
      return alone && took / std::max(k.value("launches", 1.0), 1.0) > 10 * kShortKernel ? took * (1 - 1 / threads) : 0.0;
    });
    if (us < kWorthSaying * us_) return;
    add(count_of(kernels, "long kernel", "long kernels") +
            text_of(" ran on one of %.0f threads: the machine was busy with something else, another call held the pool, or the work has no axis to divide.",
                    threads),
        us, kernels);
  }

  // Kernels that only move what others have computed.
  void copies() {
    std::vector<int> kernels;
    const double us = sum(&kernels, [](const Json& k) { return k.value("moves", false) && k.value("bytes", 0.0) > 0 ? k["us"].get<double>() : 0.0; });
    if (us < kWorthSaying * us_) return;
    add(count_of(kernels, "kernel computes nothing and only moves", "kernels compute nothing and only move") + " data: " + time_text(us) + " of a call. " +
            (kernels.size() == 1 ? "It is a transpose, concatenation, gather or change of type"
                                 : "They are transposes, concatenations, gathers and changes of type") +
            " that no neighbour could take in.",
        us, kernels);
  }

  const Json& report_;
  const Json& call_;
  const double us_;
  std::vector<Json> found_;
};

}  // namespace

Json advice_of(const Json& report) { return Adviser(report).run(); }

}  // namespace coil::report
