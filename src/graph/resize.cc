#include "graph/resize.h"

#include <algorithm>
#include <numeric>

namespace coil {
namespace {

using SizeList = std::vector<int64_t>;

// The constant sizes of a tensor; empty where one is not constant.
std::optional<SizeList> sizes_of(const Graph& graph, ValueId id) {
  if (!id.valid() || !graph.value(id).is_tensor()) return std::nullopt;
  SizeList out;
  for (Expr s : graph.value(id).tensor().sizes) {
    if (!s->is_constant()) return std::nullopt;
    out.push_back(s->as_int());
  }
  return out;
}

std::optional<int64_t> number(const Node& node, const char* name) {
  const Argument* a = node.find(name);
  const Expr* e = a ? std::get_if<Expr>(a) : nullptr;
  return e && (*e)->is_constant() ? std::optional<int64_t>((*e)->as_int()) : std::nullopt;
}

SizeList numbers(const Node& node, const char* name) {
  SizeList out;
  const Argument* a = node.find(name);
  const auto* list = a ? std::get_if<std::vector<Expr>>(a) : nullptr;
  for (size_t i = 0; list && i < list->size(); ++i) {
    if (!(*list)[i]->is_constant()) return {};
    out.push_back((*list)[i]->as_int());
  }
  return out;
}

// "aten.max_pool2d.default" -> "max_pool2d"
std::string packet(const std::string& target) {
  const size_t first = target.find('.');
  if (first == std::string::npos) return target;
  const size_t second = target.find('.', first + 1);
  std::string name = target.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  while (!name.empty() && name[0] == '_') name.erase(0, 1);
  return name;
}

class Resize {
 public:
  Resize(const Graph& graph, int64_t from, int64_t to) : graph_(graph), map_{{from, to}} {}

  std::optional<std::map<int64_t, int64_t>> run() {
    constexpr int kMostRounds = 32;
    for (int round = 0; round < kMostRounds; ++round) {
      changed_ = false;
      for (const Node& node : graph_.nodes) {
        node_rule(node);
        if (!possible_) return std::nullopt;
      }
      if (!changed_) return map_;
    }
    return std::nullopt;
  }

 private:
  int64_t of(int64_t size) const {
    const auto found = map_.find(size);
    return found == map_.end() ? size : found->second;
  }

  // The size has to become `wanted`.
  void set(int64_t size, int64_t wanted) {
    if (of(size) == wanted) return;
    if (wanted < 1 || map_.contains(size)) {
      possible_ = false;
      return;
    }
    map_[size] = wanted;
    changed_ = true;
  }

  void node_rule(const Node& node) {
    const ValueId first = operand(node);
    const std::optional<SizeList> in = sizes_of(graph_, first), out = node.outputs.empty() ? std::nullopt : sizes_of(graph_, node.outputs[0]);
    const std::string name = packet(node.target);
    if (name == "cat" || name == "split" || name == "chunk" || name == "split_with_sizes" || name == "unsafe_split" || name == "tensor_split")
      return parts(node, name == "cat");
    if (!in || !out) return;
    if (name == "view" || name == "reshape" || name == "unsafe_view" || name == "flatten" || name == "unflatten" || name == "view_copy" ||
        name == "reshape_alias" || name == "reshape_copy")
      regroup(*in, *out);
    else if (name.starts_with("conv") && name.find("transpose") == std::string::npos) window(node, *in, *out, true);
    else if (name.starts_with("max_pool") || name.starts_with("avg_pool")) window(node, *in, *out, false);
    else if (name == "constant_pad_nd" || name == "pad" || name == "reflection_pad2d" || name == "replication_pad2d" || name == "reflection_pad1d")
      padding(node, *in, *out);
    else if (name == "slice") slice(node, *in, *out);
  }

  static ValueId operand(const Node& node) {
    for (const Argument& a : node.args) {
      if (const ValueId* id = std::get_if<ValueId>(&a)) return *id;
    }
    return ValueId();
  }

  int64_t product(const SizeList& sizes, size_t begin, size_t end) const {
    int64_t n = 1;
    for (size_t i = begin; i < end; ++i) n *= of(sizes[i]);
    return n;
  }

  // Neighbouring dimensions of the same number of elements stay so.
  void regroup(const SizeList& in, const SizeList& out) {
    size_t i = 0, o = 0;
    while (i < in.size() && o < out.size() && possible_) {
      size_t i_end = i + 1, o_end = o + 1;
      int64_t a = in[i], b = out[o];
      while (a != b) {
        if (a < b && i_end < in.size()) a *= in[i_end++];
        else if (a > b && o_end < out.size()) b *= out[o_end++];
        else return;  // sizes of 0, or none that go together
      }
      const int64_t left = product(in, i, i_end), right = product(out, o, o_end);
      if (left != right) {
        if (!absorb(out, o, o_end, left) && !absorb(in, i, i_end, right)) possible_ = false;
      }
      i = i_end;
      o = o_end;
    }
  }

  // The first dimension that may still change makes the product `wanted`.
  bool absorb(const SizeList& sizes, size_t begin, size_t end, int64_t wanted) {
    for (size_t d = begin; d < end; ++d) {
      if (sizes[d] == 1 || map_.contains(sizes[d])) continue;
      const int64_t others = product(sizes, begin, end) / of(sizes[d]);
      if (others < 1 || wanted % others != 0) continue;
      set(sizes[d], wanted / others);
      return possible_;
    }
    return false;
  }

  // A dimension that is the sum of those of its parts.
  void parts(const Node& node, bool joined) {
    std::vector<ValueId> pieces = node.outputs;
    ValueId whole = operand(node);
    if (joined) {
      whole = node.outputs.empty() ? ValueId() : node.outputs[0];
      pieces.clear();
      for (const Argument& a : node.args) {
        if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) pieces = *list;
      }
    }
    const std::optional<SizeList> all = sizes_of(graph_, whole);
    if (!all || all->empty() || pieces.empty()) return;
    int64_t dim = number(node, "dim").value_or(0), sum = 0;
    if (dim < 0) dim += static_cast<int64_t>(all->size());
    if (dim < 0 || dim >= static_cast<int64_t>(all->size())) return;
    std::set<int64_t> sizes;
    for (ValueId id : pieces) {
      const std::optional<SizeList> piece = sizes_of(graph_, id);
      if (!piece || piece->size() != all->size()) return;
      sizes.insert((*piece)[static_cast<size_t>(dim)]);
      sum += of((*piece)[static_cast<size_t>(dim)]);
    }
    const int64_t size = (*all)[static_cast<size_t>(dim)];
    const auto count = static_cast<int64_t>(pieces.size());
    if (of(size) == sum) return;
    if (map_.contains(size) && sizes.size() == 1 && of(size) % count == 0) set(*sizes.begin(), of(size) / count);
    else set(size, sum);
  }

  void window(const Node& node, const SizeList& in, const SizeList& out, bool convolution) {
    SizeList taps = numbers(node, "kernel_size");
    if (convolution) {
      const Argument* w = node.find("weight");
      const std::optional<SizeList> weight = w && std::get_if<ValueId>(w) ? sizes_of(graph_, std::get<ValueId>(*w)) : std::nullopt;
      if (!weight || weight->size() < 3) return;
      taps.assign(weight->begin() + 2, weight->end());
    }
    if (taps.empty() || out.size() != in.size()) return;
    const size_t spatial = std::min(in.size(), convolution ? taps.size() : in.size() > 3 ? in.size() - 2 : size_t{1});
    const auto at = [](const SizeList& list, size_t i, int64_t otherwise) { return list.empty() ? otherwise : list[std::min(i, list.size() - 1)]; };
    const SizeList stride = numbers(node, "stride"), pad = numbers(node, "padding"), dilation = numbers(node, "dilation");
    for (size_t i = 0; i < spatial; ++i) {
      const size_t d = in.size() - spatial + i;
      const int64_t kernel = at(taps, i, 1), step = at(stride, i, convolution ? 1 : kernel);
      if (of(in[d]) == in[d] || step < 1) continue;
      const int64_t reach = of(in[d]) + 2 * at(pad, i, 0) - at(dilation, i, 1) * (kernel - 1) - 1;
      // As many as there were, counted from what the window left of the old size, so that ceil_mode is kept.
      const int64_t before = in[d] + 2 * at(pad, i, 0) - at(dilation, i, 1) * (kernel - 1) - 1;
      const bool up = before >= 0 && out[d] > before / step + 1;
      set(out[d], reach < 0 ? 0 : (up ? (reach + step - 1) / step : reach / step) + 1);
    }
  }

  void padding(const Node& node, const SizeList& in, const SizeList& out) {
    const SizeList pads = numbers(node, node.find("pad") ? "pad" : "padding");
    for (size_t i = 0; 2 * i + 1 < pads.size() && i < in.size() && in.size() == out.size(); ++i) {
      const size_t d = in.size() - 1 - i;
      if (of(in[d]) != in[d]) set(out[d], of(in[d]) + pads[2 * i] + pads[2 * i + 1]);
    }
  }

  void slice(const Node& node, const SizeList& in, const SizeList& out) {
    int64_t dim = number(node, "dim").value_or(0);
    if (dim < 0) dim += static_cast<int64_t>(in.size());
    if (dim < 0 || dim >= static_cast<int64_t>(in.size()) || in.size() != out.size()) return;
    const auto d = static_cast<size_t>(dim);
    const int64_t start = number(node, "start").value_or(0), end = number(node, "end").value_or(INT64_MAX),
                  step = std::max<int64_t>(number(node, "step").value_or(1), 1);
    const auto place = [&](int64_t p, int64_t size) { return std::clamp<int64_t>(p < 0 ? p + size : p, 0, size); };
    // Ends are sizes as well where they are those of a tensor (ProgramDocument::resized).
    const int64_t from = place(of(start), of(in[d])), to = place(end == INT64_MAX ? end : of(end), of(in[d]));
    if (of(in[d]) != in[d] || of(end) != end || of(start) != start) set(out[d], std::max<int64_t>(to - from + step - 1, 0) / step);
  }

  const Graph& graph_;
  std::map<int64_t, int64_t> map_;
  bool changed_ = false, possible_ = true;
};

}  // namespace

std::set<int64_t> constant_sizes(const Graph& graph) {
  std::set<int64_t> out;
  for (const ValueInfo& v : graph.values) {
    if (!v.is_tensor()) continue;
    for (Expr s : v.tensor().sizes) {
      if (s->is_constant() && s->as_int() > 1) out.insert(s->as_int());
    }
  }
  return out;
}

std::optional<std::map<int64_t, int64_t>> with_size(const Graph& graph, int64_t from, int64_t to) { return Resize(graph, from, to).run(); }

}  // namespace coil
