#include "reducer.h"

#include <algorithm>

namespace coil::tool {

Reducer::Reducer(const ProgramDocument& whole, std::set<std::string> known, Shows shows, int most)
    : whole_(whole), known_(std::move(known)), shows_(std::move(shows)), most_(most), part_(whole), outputs_(whole.outputs()) {}

Result<bool> Reducer::run() {
  TRY(const bool cut, accept(outputs_, {}));
  if (!cut) return false;
  // Each step may make the others worth another look.
  for (size_t before = 0; before != part_.num_nodes() && tests_ < most_;) {
    before = part_.num_nodes();
    TRY_STATUS(fewer_outputs());
    TRY_STATUS(earlier_output());
    TRY_STATUS(later_inputs());
  }
  return true;
}

// Takes the part with these outputs and inputs if it is smaller (or the first) and shows what is looked for.
Result<bool> Reducer::accept(const std::vector<std::string>& outputs, const std::set<std::string>& given) {
  if (tests_ >= most_ || !tried_.insert({outputs, given}).second) return false;
  Result<ProgramDocument> part = whole_.cut(outputs, given);
  if (!part.ok()) return false;
  if (tests_ > 0 && part.value().num_nodes() >= part_.num_nodes() && outputs.size() >= outputs_.size()) return false;
  ++tests_;
  TRY(const bool shows, shows_(part.value()));
  if (!shows) return false;
  part_ = std::move(part).value();
  outputs_ = outputs;
  given_ = given;
  return true;
}

Status Reducer::fewer_outputs() {
  if (outputs_.size() < 2) return ok_status();
  for (const std::string& one : std::vector<std::string>(outputs_)) {
    TRY(const bool alone, accept({one}, given_));
    if (alone) return ok_status();
  }
  for (size_t i = 0; i < outputs_.size() && outputs_.size() > 1;) {
    std::vector<std::string> fewer = outputs_;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    TRY(const bool without, accept(fewer, given_));
    if (!without) ++i;
  }
  return ok_status();
}

// Values that the part computes and does not give.
std::vector<std::string> Reducer::inner_values() const {
  std::vector<std::string> out = part_.values();
  std::erase_if(out, [&](const std::string& v) { return std::find(outputs_.begin(), outputs_.end(), v) != outputs_.end(); });
  return out;
}

// By large steps as long as they bring something, then operand by operand.
Status Reducer::earlier_output() {
  if (outputs_.size() != 1) return ok_status();
  for (bool moved = true; moved && tests_ < most_;) {
    moved = false;
    const std::vector<std::string> values = inner_values();
    for (const size_t eighth : {1, 2, 4, 6}) {
      if (moved || values.size() < 8) break;
      TRY(moved, accept({values[values.size() * eighth / 8]}, given_));
    }
    if (moved) continue;
    for (const std::string& operand : part_.operands(outputs_[0])) {
      if (moved) break;
      TRY(moved, accept({operand}, given_));
    }
  }
  return ok_status();
}

Status Reducer::later_inputs() {
  for (bool moved = true; moved && tests_ < most_;) {
    moved = false;
    const std::vector<std::string> values = inner_values();
    for (const size_t eighth : {7, 6, 4, 2}) {
      if (moved || values.size() < 8) break;
      std::set<std::string> given = given_;
      for (size_t i = 0; i < values.size() * eighth / 8; ++i) {
        if (known_.contains(values[i])) given.insert(values[i]);
      }
      TRY(moved, accept(outputs_, given));
    }
  }
  const std::vector<std::string> values = inner_values();
  for (size_t i = values.size(); i-- > 0 && tests_ < most_;) {
    if (!known_.contains(values[i])) continue;
    std::set<std::string> given = given_;
    given.insert(values[i]);
    TRY([[maybe_unused]] const bool taken, accept(outputs_, given));
  }
  return ok_status();
}

}  // namespace coil::tool
