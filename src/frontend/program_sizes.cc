// Other sizes for a program as its file has it.
#include <algorithm>
#include <numeric>

#include "frontend/program_contents.h"

namespace coil {
namespace {

using SizeMap = std::map<int64_t, int64_t>;

// Arguments of operators that are sizes, or places that go along with sizes.
bool says_sizes(const std::string& argument) {
  static const std::set<std::string> kNames = {"size", "shape",  "sizes",       "normalized_shape", "split_size",  "split_sizes",    "start",
                                               "end",  "length", "num_classes", "num_weights",      "input_sizes", "self_sym_sizes", "input_size",
                                               "N",    "C",      "HxW",         "groups",           "new_shape"};
  return kNames.contains(argument);
}

void replace_int(Json& value, const SizeMap& sizes) {
  if (!value.is_number_integer()) return;
  if (const auto found = sizes.find(value.get<int64_t>()); found != sizes.end()) value = found->second;
}

// {"as_int": 8}, {"as_ints": [8, 3]}, {"as_sym_ints": [{"as_int": 8}, {"as_name": "s0"}]}
void replace_argument(Json& arg, const SizeMap& sizes) {
  if (!arg.is_object()) return;
  for (auto& [kind, value] : arg.items()) {
    if (kind == "as_int") replace_int(value, sizes);
    if (kind == "as_ints" && value.is_array()) std::for_each(value.begin(), value.end(), [&](Json& v) { replace_int(v, sizes); });
    if (kind == "as_sym_int") replace_argument(value, sizes);
    if (kind == "as_sym_ints" && value.is_array()) std::for_each(value.begin(), value.end(), [&](Json& v) { replace_argument(v, sizes); });
  }
}

std::optional<int64_t> constant(const Json& size) {
  if (!size.is_object() || !size.contains("as_int") || !size["as_int"].is_number_integer()) return std::nullopt;
  return size["as_int"].get<int64_t>();
}

// Dense strides in the order in which the dimensions lie; a dimension that is repeated stays so. Sizes that are not constant leave them as they are.
void replace_strides(Json& meta, const std::vector<int64_t>& sizes) {
  Json& strides = meta["strides"];
  if (!strides.is_array() || strides.size() != sizes.size()) return;
  std::vector<int64_t> old;
  for (const Json& s : strides) {
    const std::optional<int64_t> value = constant(s);
    if (!value) return;
    old.push_back(*value);
  }
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return old[a] > old[b]; });
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (old[d] == 0 && sizes[d] > 1) continue;
    strides[d] = {{"as_int", step}};
    step *= std::max<int64_t>(sizes[d], 1);
  }
}

void replace_meta(Json& meta, const SizeMap& map) {
  if (!meta.is_object() || !meta.contains("sizes") || !meta["sizes"].is_array() || !meta.contains("strides")) return;
  bool changed = false;
  std::vector<int64_t> sizes;
  for (Json& s : meta["sizes"]) {
    const std::optional<int64_t> before = constant(s);
    if (before) replace_int(s["as_int"], map);
    const std::optional<int64_t> after = constant(s);
    changed = changed || before != after;
    if (after) sizes.push_back(*after);
  }
  if (changed) replace_strides(meta, sizes);
}

// A graph, and the graphs in its nodes' arguments.
void replace_graph(Json& graph, const SizeMap& map) {
  if (graph.contains("tensor_values")) {
    for (auto& [name, meta] : graph["tensor_values"].items()) replace_meta(meta, map);
  }
  if (!graph.contains("nodes")) return;
  for (Json& node : graph["nodes"]) {
    for (Json& input : node["inputs"]) {
      Json& arg = input["arg"];
      if (says_sizes(input.value("name", ""))) replace_argument(arg, map);
      if (arg.is_object() && arg.contains("as_graph") && arg["as_graph"].contains("graph")) replace_graph(arg["as_graph"]["graph"], map);
    }
  }
}

}  // namespace

std::vector<std::optional<int64_t>> ProgramDocument::constant_sizes_of(const std::string& value) const {
  std::vector<std::optional<int64_t>> out;
  const Json& values = contents_->graph().at("tensor_values");
  if (!values.contains(value) || !values.at(value).contains("sizes")) return out;
  for (const Json& s : values.at(value).at("sizes")) out.push_back(constant(s));
  return out;
}

uint64_t ProgramDocument::weight_bytes() const {
  uint64_t n = 0;
  for (const auto& [name, w] : contents_->weights) {
    uint64_t bytes = static_cast<uint64_t>(byte_size(w.dtype));
    for (int64_t s : w.sizes) bytes *= static_cast<uint64_t>(s);
    n += bytes;
  }
  return n;
}

ProgramDocument ProgramDocument::resized(const SizeMap& sizes) const {
  ProgramDocument out = *this;
  replace_graph(out.contents_->graph(), sizes);
  for (auto& [name, weight] : out.contents_->weights) {
    for (int64_t& size : weight.sizes) {
      // A corner of what there was: the memory stays where it is, and writing makes it dense.
      if (const auto found = sizes.find(size); found != sizes.end()) size = std::min(size, found->second);
    }
  }
  return out;
}

}  // namespace coil
