// See pairs.h.
#include "report/pairs.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace coil::report {
namespace {

// "layer_norm.rstd_3" is "layer_norm.rstd" in a list of operators.
std::string without_number(std::string name) {
  for (;;) {
    const size_t at = name.find_last_not_of("0123456789");
    if (at == std::string::npos || at + 1 == name.size() || name[at] != '_') return name;
    name.resize(at);
  }
}

}  // namespace

std::vector<int> buffer_numbers(const Json& text) {
  std::vector<int> ids;
  std::istringstream in(text.get<std::string>());
  for (int id; in >> id;) ids.push_back(id);
  return ids;
}

Pairs::Pairs(const Json& kernels, std::map<int, StoredTensor> stored) : stored_(std::move(stored)) {
  for (const Json& k : kernels) {
    Side side;
    for (const Json& op : k.value("ops", Json::array())) side.ops.push_back(without_number(op.get<std::string>()));
    side.reads = buffer_numbers(k.value("reads", Json("")));
    side.writes = buffer_numbers(k.value("writes", Json("")));
    kernels_.push_back(std::move(side));
  }
}

bool Pairs::has(const Side& kernel, const std::string& op) { return std::find(kernel.ops.begin(), kernel.ops.end(), op) != kernel.ops.end(); }

std::optional<double> Pairs::spared(const std::string& producer, const std::string& consumer) const {
  for (const auto& [id, tensor] : stored_) {
    if (!tensor.name.empty() && tensor.name == producer) return bytes_of(tensor);
  }
  // The value is called otherwise, or not stored: kernels that have the operators say so, of equal ones the first.
  const std::string from = without_number(producer), to = without_number(consumer);
  for (const Side& writer : kernels_) {
    if (!has(writer, from) || has(writer, to)) continue;
    for (const Side& reader : kernels_) {
      if (!has(reader, to)) continue;
      for (const int id : writer.writes) {
        const auto found = stored_.find(id);
        if (found != stored_.end() && std::find(reader.reads.begin(), reader.reads.end(), id) != reader.reads.end()) return bytes_of(found->second);
      }
    }
  }
  const bool together = std::any_of(kernels_.begin(), kernels_.end(), [&](const Side& k) { return has(k, from) && has(k, to); });
  return together ? std::optional<double>(0) : std::nullopt;
}

}  // namespace coil::report
