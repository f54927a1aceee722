// See compare.h.
#include "report/compare.h"

#include <algorithm>
#include <map>
#include <set>

namespace coil::report {
namespace {

constexpr double kMost = 0.5;  // of the kernels' time, by which two programs are one

std::string text_at(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found && found->is_string() ? found->get<std::string>() : std::string();
}

// A kernel that ran, with what it can be recognised by.
struct Side {
  int number = 0;
  double us = 0;
  std::string name, operators;
  std::set<std::string> places;    // module and function of each of its lines, with the line's text: edits above a line move its number
  std::set<std::string> contents;  // the same without the module
  std::set<std::string> each;      // its operators
  int row = -1;
};

std::vector<Side> sides_of(const Json& report) {
  std::vector<Side> out;
  for (const Json& k : report.at("kernels")) {
    const auto us = k.find("us");
    if (us == k.end() || !us->is_number()) continue;
    Side s;
    s.number = k.value("n", 0);
    s.us = us->get<double>();
    s.name = text_at(k, "name");
    s.operators = text_at(k, "kind");
    for (const Json& op : k.value("ops", Json::array())) {
      if (op.is_string()) s.operators += "\n" + op.get<std::string>(), s.each.insert(op.get<std::string>());
    }
    for (const Json& o : k.value("origins", Json::array())) {
      if (!o.is_object()) continue;
      const std::string source = text_at(o, "source"), line = text_at(o, "line"), module = text_at(o, "module");
      const size_t number = source.rfind(':'), in = source.find(" in ", number == std::string::npos ? 0 : number);
      const std::string function = source.substr(0, number) + (in == std::string::npos ? "" : source.substr(in));
      if (!line.empty()) s.contents.insert(line);
      if (!module.empty() || !line.empty()) s.places.insert(module + "\n" + function + "\n" + line);
    }
    out.push_back(std::move(s));
  }
  return out;
}

class Matcher {
 public:
  Matcher(std::vector<Side> a, std::vector<Side> b) : a_(std::move(a)), b_(std::move(b)) {}

  Comparison run() {
    const auto joined = [](const std::set<std::string>& texts) {
      std::string all;
      for (const std::string& t : texts) all += t + "\r";
      return all;
    };
    in_order([&](const Side& s) { return s.places.empty() ? "" : s.name + "\r" + joined(s.places); });
    in_order([&](const Side& s) { return s.places.empty() ? "" : s.operators + "\r" + joined(s.places); });
    in_order([&](const Side& s) { return joined(s.places); });
    by_overlap(&Side::places, [](const Side&) { return true; });
    in_order([&](const Side& s) { return s.contents.empty() ? "" : s.operators + "\r" + joined(s.contents); });  // modules that are called otherwise
    const auto says_nothing = [](const Side& s) { return s.places.empty(); };
    const bool known = !std::all_of(a_.begin(), a_.end(), says_nothing) && !std::all_of(b_.begin(), b_.end(), says_nothing);
    const bool by_lines = matched(a_) >= kMost && matched(b_) >= kMost;
    in_order([](const Side& s) { return s.operators; });
    by_overlap(&Side::each, says_nothing);
    return comparison(known ? by_lines : matched(a_) >= kMost && matched(b_) >= kMost);
  }

 private:
  // Those that are still alone and have one key: the first of one side with the first of the other one, and so on.
  template <class Key>
  void in_order(Key key) {
    std::map<std::string, std::vector<Side*>> waiting;
    for (Side& s : b_) {
      if (s.row < 0) waiting[key(s)].push_back(&s);
    }
    std::map<std::string, size_t> next;
    for (Side& s : a_) {
      const std::string k = key(s);
      const auto found = waiting.find(k);
      if (s.row >= 0 || k.empty() || found == waiting.end() || next[k] >= found->second.size()) continue;
      s.row = found->second[next[k]++]->row = rows_++;
    }
  }

  // What one program computes in one kernel and the other one in several: each that is alone goes to the kernel that has the most of its lines.
  template <class Which>
  void by_overlap(std::set<std::string> Side::* texts, Which which) {
    for (const auto& [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
      for (Side& s : *from) {
        if (s.row >= 0 || !which(s)) continue;
        Side* best = nullptr;
        size_t most = 0;
        for (Side& other : *to) {
          const auto common =
              static_cast<size_t>(std::count_if((s.*texts).begin(), (s.*texts).end(), [&](const std::string& t) { return (other.*texts).contains(t); }));
          if (common > most) best = &other, most = common;
        }
        if (!best) continue;
        if (best->row < 0) best->row = rows_++;
        s.row = best->row;
      }
    }
  }

  static double matched(const std::vector<Side>& sides) {
    double all = 0, found = 0;
    for (const Side& s : sides) all += s.us, found += s.row >= 0 ? s.us : 0;
    return all > 0 ? found / all : 1;
  }

  Comparison comparison(bool one_program) const {
    Comparison out;
    out.one_program = one_program;
    out.matched_a = matched(a_), out.matched_b = matched(b_);
    std::map<int, size_t> row_of;
    for (const auto& [sides, place] : {std::pair(&a_, &Counterparts::a), std::pair(&b_, &Counterparts::b)}) {
      for (const Side& s : *sides) {
        const size_t at = s.row < 0 ? out.rows.size() : row_of.try_emplace(s.row, out.rows.size()).first->second;
        if (at == out.rows.size()) out.rows.emplace_back();
        (out.rows[at].*place).push_back(s.number);
      }
    }
    return out;
  }

  std::vector<Side> a_, b_;
  int rows_ = 0;
};

}  // namespace

Comparison compare_reports(const Json& a, const Json& b) { return Matcher(sides_of(a), sides_of(b)).run(); }

Json to_json(const Comparison& comparison) {
  Json rows = Json::array();
  for (const Counterparts& c : comparison.rows) rows.push_back({c.a, c.b});
  return {{"one_program", comparison.one_program}, {"matched_a", comparison.matched_a}, {"matched_b", comparison.matched_b}, {"rows", rows}};
}

}  // namespace coil::report
