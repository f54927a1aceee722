#include "size_reducer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "graph/resize.h"
#include "compiler/call_memory.h"

namespace coil::tool {
namespace {

// Values of the program's dynamic sizes in this call: those that are an input's dimension.
std::map<int32_t, int64_t> symbols_of(const Graph& graph, const NamedTensors& inputs) {
  std::map<int32_t, int64_t> out;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::user || !graph.value(in.value).is_tensor()) continue;
    const auto given = inputs.find(graph.value(in.value).name);
    const std::vector<Expr>& sizes = graph.value(in.value).tensor().sizes;
    for (size_t d = 0; given != inputs.end() && d < sizes.size() && d < given->second.sizes.size(); ++d) {
      if (sizes[d]->kind == ExprKind::symbol) out[sizes[d]->id] = given->second.sizes[d];
    }
  }
  return out;
}

// The inputs of a call with these dynamic sizes; nullopt: the sizes of one cannot be told, or are more than there were.
std::optional<NamedTensors> inputs_with(const Graph& graph, const NamedTensors& inputs, const std::map<int32_t, int64_t>& symbols, int64_t size,
                                        int64_t below) {
  NamedTensors out;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::user || !graph.value(in.value).is_tensor()) continue;
    const std::string& name = graph.value(in.value).name;
    const auto given = inputs.find(name);
    if (given == inputs.end()) return std::nullopt;
    std::vector<int64_t> sizes;
    for (Expr s : graph.value(in.value).tensor().sizes) {
      if (any_of(s, [&](Expr e) { return e->kind == ExprKind::symbol && !symbols.contains(e->id); })) return std::nullopt;
      sizes.push_back(evaluate_index(s, [&](SymbolId id) { return symbols.at(id.index); }));
      const size_t d = sizes.size() - 1;
      if (d >= given->second.sizes.size() || sizes[d] > given->second.sizes[d] || sizes[d] < 0) return std::nullopt;
    }
    out[name] = corner(given->second, sizes, size, below);
  }
  for (const auto& [name, value] : inputs) out.try_emplace(name, value);  // numbers
  return out;
}

int64_t elements(const RunnablePart& part) {
  int64_t n = 0;
  for (const auto& [name, t] : part.inputs) n += element_count(t.sizes);
  return n;
}

template <class T>
TensorData brought_below(const TensorData& t, int64_t size, int64_t below) {
  const auto bytes = std::make_shared<std::vector<uint8_t>>(t.bytes.begin(), t.bytes.end());
  for (size_t at = 0; at + sizeof(T) <= bytes->size(); at += sizeof(T)) {
    T v;
    std::memcpy(&v, bytes->data() + at, sizeof v);
    if (v < static_cast<T>(below) || v >= static_cast<T>(size)) continue;
    v = static_cast<T>(v % static_cast<T>(below));
    std::memcpy(bytes->data() + at, &v, sizeof v);
  }
  TensorData out = t;
  out.bytes = *bytes;
  out.owner = bytes;
  return out;
}

}  // namespace

std::vector<int64_t> smaller_sizes(int64_t size, int64_t least) {
  std::vector<int64_t> powers, others;
  for (int64_t p = 1; p < size; p *= 2) {
    powers.push_back(p);
    for (int64_t beside : {p - 1, p + 1}) {
      if (beside > 2) others.push_back(beside);
    }
  }
  for (int64_t other : {size / 2, size - size / 4, size - 1}) others.push_back(other);
  std::sort(others.begin(), others.end());
  powers.insert(powers.end(), others.begin(), others.end());
  std::vector<int64_t> out;
  for (int64_t p : powers) {
    if (p >= least && p < size && std::find(out.begin(), out.end(), p) == out.end()) out.push_back(p);
  }
  return out;
}

TensorData corner(const TensorData& t, const std::vector<int64_t>& sizes, int64_t size, int64_t below) {
  TensorData out = t;
  out.sizes = sizes;
  if (below < 1) return out;
  if (t.dtype == DType::i64) return brought_below<int64_t>(out, size, below);
  if (t.dtype == DType::i32) return brought_below<int32_t>(out, size, below);
  return out;
}

Status SizeReducer::run() {
  // Each may make the other worth another look.
  for (bool changed = true; changed && tests_ < most_;) {
    TRY(const bool calls, smaller_calls());
    TRY(const bool constants, smaller_constants());
    changed = calls || constants;
  }
  return ok_status();
}

Result<bool> SizeReducer::accept(RunnablePart other) {
  constexpr int kChecksForATest = 8;  // those that do not go together cost little, but not nothing
  if (tests_ >= most_ || checked_ >= kChecksForATest * most_) return false;
  ++checked_;
  TRY(const bool together, ask_.goes_together(other));
  if (!together) return false;
  ++tests_;
  TRY(const bool shows, ask_.shows(other));
  if (shows) part_ = std::move(other);
  return shows;
}

Result<bool> SizeReducer::smaller_calls() {
  Result<Graph> read = ask_.graph_of(part_);
  if (!read.ok()) return false;  // what fails may be reading it
  const Graph& graph = read.value();
  bool changed = false;
  std::map<int32_t, int64_t> symbols = symbols_of(graph, part_.inputs);
  for (const auto& [id, value] : std::map<int32_t, int64_t>(symbols)) {
    for (int64_t smaller : smaller_sizes(value, std::max<int64_t>(graph.pool->symbol_info(SymbolId(id)).min, 1))) {
      std::map<int32_t, int64_t> other = symbols;
      other[id] = smaller;
      std::optional<NamedTensors> inputs = inputs_with(graph, part_.inputs, other, value, smaller);
      if (!inputs) continue;
      TRY(const bool taken, accept({part_.document, std::move(*inputs)}));
      if (!taken) continue;
      symbols = std::move(other);
      changed = true;
      break;
    }
  }
  return changed;
}

Result<bool> SizeReducer::smaller_constants() {
  Result<Graph> read = ask_.graph_of(part_);
  if (!read.ok()) return false;
  bool changed = false;
  std::set<int64_t> open = constant_sizes(read.value());
  while (!open.empty() && tests_ < most_) {
    const int64_t size = *open.rbegin();  // the largest first: most is gained by it
    open.erase(size);
    TRY(const bool taken, smaller_constant(read.value(), size));
    if (!taken) continue;
    changed = true;
    read = ask_.graph_of(part_);
    if (!read.ok()) return changed;
    // Other sizes went along; those that came new are no larger than what was tried for them.
    const std::set<int64_t> now = constant_sizes(read.value());
    std::erase_if(open, [&](int64_t s) { return !now.contains(s); });
  }
  return changed;
}

Result<bool> SizeReducer::smaller_constant(const Graph& graph, int64_t size) {
  for (int64_t smaller : smaller_sizes(size, 1)) {
    const auto map = with_size(graph, size, smaller);
    if (!map) continue;
    RunnablePart other{part_.document.resized(*map), {}};
    bool possible = true;
    for (const auto& [name, t] : part_.inputs) {
      std::vector<int64_t> sizes = t.sizes;
      const std::vector<std::optional<int64_t>> wanted = other.document.constant_sizes_of(name);
      for (size_t d = 0; d < sizes.size() && d < wanted.size(); ++d) {
        possible = possible && wanted[d].value_or(0) <= sizes[d];
        if (wanted[d]) sizes[d] = *wanted[d];
      }
      other.inputs[name] = corner(t, sizes, size, smaller);
    }
    if (!possible || (elements(other) >= elements(part_) && other.document.weight_bytes() >= part_.document.weight_bytes())) continue;
    TRY(const bool taken, accept(std::move(other)));
    if (taken) return true;
  }
  return false;
}

}  // namespace coil::tool
