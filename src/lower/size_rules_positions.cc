// Sizes that eager refuses of operators that read and write at positions: rows, slices, places, points.
#include "lower/size_checks.h"

namespace coil::lowering::sizes {
namespace {

void diagonal_scatter(const Op& op) {
  Sizes wanted = sizes_of(op, "self");
  const size_t a = wrap_dim(op.integer("dim1"), wanted.size()), b = wrap_dim(op.integer("dim2"), wanted.size());
  const int64_t offset = op.integer("offset");
  if (a == b) refuse(op, "both dimensions are the same");
  if (!wanted[a]->is_constant() || !wanted[b]->is_constant()) return;
  const int64_t rows = wanted[a]->as_int() - std::max<int64_t>(-offset, 0), columns = wanted[b]->as_int() - std::max<int64_t>(offset, 0);
  wanted.erase(wanted.begin() + static_cast<long>(std::max(a, b)));
  wanted.erase(wanted.begin() + static_cast<long>(std::min(a, b)));
  wanted.push_back(op.pool.index(std::max<int64_t>(std::min(rows, columns), 0)));
  same_sizes(op, "src", wanted, "the diagonal");
}

// Rows of `source` for the rows of `self` that `index` names.
void rows_by_index(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &source = sizes_of(op, "source"), &index = sizes_of(op, "index");
  if (self.size() != source.size() && !source.empty() && !self.empty())
    refuse(op, fmt::format("'source' has sizes {}, the tensor {}", text_of(source), text_of(self)));
  const Expr named = index.empty() ? op.pool.index(1) : index[0];
  const size_t place = source.empty() ? 0 : wrap_dim(op.integer("dim"), source.size());
  if (differ(named, source.empty() ? op.pool.index(1) : source[place]))
    refuse(op, fmt::format("{} positions for 'source' of sizes {}", to_string(named), text_of(source)));
  if (self.empty() || source.empty()) return;
  const size_t dim = wrap_dim(op.integer("dim"), self.size());
  Sizes wanted = self;
  wanted[dim] = source[dim];
  same_sizes(op, "source", wanted, "the tensor");
}

// The dimension of one chosen place, which it has, whatever the other dimensions hold.
size_t chosen_dimension(const Op& op) {
  const Sizes& self = sizes_of(op, "self");
  if (self.empty()) refuse(op, "a tensor without dimensions");
  const size_t dim = wrap_dim(op.integer("dim"), self.size());
  const Argument* given = op.node.find("index");
  const Expr* index = given ? std::get_if<Expr>(given) : nullptr;
  if (index && (*index)->is_constant() && self[dim]->is_constant()) {
    const int64_t i = (*index)->as_int(), n = self[dim]->as_int();
    if (i < -n || i >= n) refuse(op, fmt::format("index {} of dimension {} of sizes {}", i, dim, text_of(self)));
  }
  return dim;
}

void selected_place(const Op& op) {
  const size_t dim = chosen_dimension(op);
  Sizes wanted = sizes_of(op, "self");
  wanted.erase(wanted.begin() + static_cast<long>(dim));
  same_sizes(op, "src", wanted, "the place");
}

void sliced_place(const Op& op) {
  Sizes wanted = sizes_of(op, "self");
  if (wanted.empty()) return;
  const size_t dim = wrap_dim(op.integer("dim"), wanted.size());
  positive(op, "step");
  const auto known = [&](const char* arg, int64_t otherwise) -> std::optional<int64_t> {
    if (!op.has(arg)) return otherwise;
    const Expr* e = std::get_if<Expr>(op.node.find(arg));
    return e && (*e)->is_constant() ? std::optional<int64_t>((*e)->as_int()) : std::nullopt;
  };
  const std::optional<int64_t> first = known("start", 0), last = known("end", INT64_MAX), step = known("step", 1);
  if (!wanted[dim]->is_constant() || !first || !last || !step) return;
  const int64_t n = wanted[dim]->as_int();
  const auto inside = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t length = std::max<int64_t>(inside(*last) - inside(*first), 0);
  wanted[dim] = op.pool.index((length + *step - 1) / *step);
  same_sizes(op, "src", wanted, "the slice");
}

// Positions for each dimension that has any.
void read_positions(const Op& op) {
  const auto* ids = list_of(op, "indices");
  if (!ids) return;
  const Sizes& self = sizes_of(op, "self");
  for (size_t i = 0, dim = 0; i < ids->size() && dim < self.size(); ++i) {
    const ValueId id = (*ids)[i];
    if (!id.valid()) {
      ++dim;
      continue;
    }
    if (!op.graph.value(id).is_tensor()) return;
    const TensorType& index = op.graph.value(id).tensor();
    const bool mask = is_bool(index.dtype) || index.dtype == DType::u8;
    if (!mask && is_const(self[dim], 0) && !is_empty(index.sizes))
      refuse(op, fmt::format("positions of sizes {} in dimension {} of sizes {}", text_of(index.sizes), dim, text_of(self)));
    dim += mask ? index.sizes.size() : 1;
  }
}

// Values at positions: what the positions name has to have room for them. Of masks, only that they lie over the tensor.
void put_values(const Op& op) {
  read_positions(op);
  const auto* ids = list_of(op, "indices");
  if (!ids || !has_tensor(op, "values")) return;
  const Sizes &self = sizes_of(op, "self"), &values = sizes_of(op, "values");
  Sizes named, rest;
  size_t dim = 0, first = SIZE_MAX, last = 0;
  bool masks = false;
  for (ValueId id : *ids) {
    if (!id.valid()) {
      if (dim < self.size()) rest.push_back(self[dim]);
      ++dim;
      continue;
    }
    if (!op.graph.value(id).is_tensor()) return;
    const TensorType& index = op.graph.value(id).tensor();
    first = std::min(first, dim), last = dim;
    if (is_bool(index.dtype) || index.dtype == DType::u8) {
      masks = true;
      for (Expr size : index.sizes) {
        if (dim >= self.size() || differ(size, self[dim]))
          refuse(op, fmt::format("a mask of sizes {} for a tensor of sizes {}", text_of(index.sizes), text_of(self)));
        ++dim;
      }
      continue;
    }
    for (size_t i = 0; i < index.sizes.size(); ++i) {
      if (named.size() <= i) named.insert(named.begin(), op.pool.index(1));
      Expr& size = named[named.size() - 1 - i];
      if (is_const(size, 1)) size = index.sizes[index.sizes.size() - 1 - i];
    }
    ++dim;
  }
  if (masks) {  // how many elements they name is data; what lies behind them is not
    for (size_t i = 0; i < values.size() && dim + i < self.size(); ++i) {
      const Expr value = values[values.size() - 1 - i];
      if (!is_const(value, 1) && differ(value, self[self.size() - 1 - i]))
        refuse(op, fmt::format("values of sizes {} for rows of a tensor of sizes {}", text_of(values), text_of(self)));
    }
  }
  if (masks || first == SIZE_MAX) return;
  for (; dim < self.size(); ++dim) rest.push_back(self[dim]);
  // Positions in neighbouring dimensions keep their place, others come first.
  const bool together = static_cast<size_t>(std::count_if(ids->begin(), ids->end(), [](ValueId id) { return id.valid(); })) == last - first + 1;
  rest.insert(rest.begin() + static_cast<long>(together ? std::min(first, rest.size()) : 0), named.begin(), named.end());
  bool fits = values.size() <= rest.size();
  for (size_t i = 0; fits && i < values.size(); ++i) {
    const Expr value = values[values.size() - 1 - i], place = rest[rest.size() - 1 - i];
    fits = is_const(value, 1) || !differ(value, place);
  }
  if (!fits) refuse(op, fmt::format("values of sizes {} for positions of sizes {}", text_of(values), text_of(rest)));
}

// Positions are given for a dimension without places.
void places(const Op& op, const char* arg, const char* index, size_t dim) {
  const Sizes& self = sizes_of(op, arg);
  if (dim < self.size() && is_const(self[dim], 0) && !is_empty(sizes_of(op, index)))
    refuse(op, fmt::format("positions of sizes {} in dimension {} of sizes {}", text_of(sizes_of(op, index)), dim, text_of(self)));
}

void scattered(const Op& op) {
  const Sizes& self = sizes_of(op, "self");
  if (!self.empty()) places(op, "self", "index", wrap_dim(op.integer("dim"), self.size()));
}

// Where another dimension has no places either, eager has nothing to do and looks at no position.
void rows_written(const Op& op) {
  Sizes others = sizes_of(op, "self");
  if (others.empty()) return;
  others.erase(others.begin() + static_cast<long>(wrap_dim(op.integer("dim"), others.size())));
  if (!is_empty(others)) scattered(op);
}

// As many elements of one tensor as of another.
void as_many(const Op& op, const char* first, const char* second) {
  const Expr a = count(op.pool, sizes_of(op, first)), b = count(op.pool, sizes_of(op, second));
  if (differ(a, b)) refuse(op, fmt::format("'{}' has {} elements, '{}' {}", first, to_string(a), second, to_string(b)));
}

// Weights of points: for a histogram of rows without the last dimension.
void weights_of_points(const Op& op, const char* arg, bool rows) {
  if (!has_tensor(op, arg)) return;
  Sizes wanted = sizes_of(op, "self");
  if (rows && !wanted.empty()) wanted.pop_back();
  same_sizes(op, arg, wanted, "the points");
}

// A mask, positions and values that go together.
void masked_positions(const Op& op) {
  const auto* ids = list_of(op, "indices");
  if (!ids) return;
  Sizes joint = sizes_of(op, "mask");
  const auto join = [&](const Sizes& sizes, bool fixed) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (joint.size() <= i) joint.insert(joint.begin(), op.pool.index(1));
      Expr& size = joint[joint.size() - 1 - i];
      const Expr own = sizes[sizes.size() - 1 - i];
      if (differ(size, own) && !is_const(own, 1) && (fixed || !is_const(size, 1)))
        refuse(op, fmt::format("sizes {} and {} do not go together", text_of(joint), text_of(sizes)));
      if (is_const(size, 1)) size = own;
    }
  };
  for (ValueId id : *ids) {
    if (id.valid() && op.graph.value(id).is_tensor()) join(op.graph.value(id).tensor().sizes, false);
  }
  if (has_tensor(op, "values")) join(sizes_of(op, "values"), true);
}

void index_of_a_number(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &index = sizes_of(op, "index");
  if (self.empty() && !index.empty() && differ(index[0], op.pool.index(1))) refuse(op, fmt::format("positions of sizes {} in a single number", text_of(index)));
  scattered(op);
}

// Numbers are written to a tensor that holds none.
void written_beyond(const Op& op) {
  const Sizes& self = sizes_of(op, "self");
  if (is_empty(self) && !is_empty(op.indices("size")))
    refuse(op, fmt::format("sizes {} reach beyond a tensor of sizes {}", text_of(op.indices("size")), text_of(self)));
}

// Classes are numbers below `num_classes`.
void one_hot(const Op& op) {
  const Argument* classes = op.node.find("num_classes");
  const Expr* n = classes ? std::get_if<Expr>(classes) : nullptr;
  if (n && is_const(*n, 0) && !is_empty(sizes_of(op, "self"))) refuse(op, "there are no classes");
}

void put(const Op& op) {
  as_many(op, "index", "source");
  if (is_empty(sizes_of(op, "self")) && !is_empty(sizes_of(op, "index"))) refuse(op, "the tensor is empty");
}

}  // namespace

void add_positions(Rules& rules) {
  for (const char* name : {"select", "select_copy"}) rules[name] = chosen_dimension;
  rules["index_add"] = rows_by_index;
  rules["index_copy"] = [](const Op& op) {
    rows_by_index(op);
    rows_written(op);
  };
  rules["index_reduce"] = [](const Op& op) {
    rows_by_index(op);
    scattered(op);
  };
  for (const char* name : {"index", "_unsafe_index"}) rules[name] = read_positions;
  for (const char* name : {"index_put", "_unsafe_index_put"}) rules[name] = put_values;
  for (const char* name : {"scatter", "scatter_add", "scatter_reduce"}) rules[name] = scattered;
  for (const char* name : {"_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"}) rules[name] = masked_positions;
  for (const char* name : {"histogramdd", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"}) {
    rules[name] = [](const Op& op) { weights_of_points(op, "weight", true); };
  }
  rules["histogram"] = [](const Op& op) {
    weights_of_points(op, "weight", false);
    if (has_tensor(op, "bins") && is_empty(sizes_of(op, "bins"))) refuse(op, "there are no edges of bins");
  };
  rules["bincount"] = [](const Op& op) { weights_of_points(op, "weights", false); };
  for (const char* name : {"embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"}) {
    rules[name] = [](const Op& op) { places(op, "weight", "indices", 0); };
  }
  rules["index_fill"] = rows_written;
  rules["diagonal_scatter"] = diagonal_scatter;
  rules["select_scatter"] = selected_place;
  rules["slice_scatter"] = sliced_place;
  rules["as_strided_scatter"] = written_beyond;
  rules["index_select"] = index_of_a_number;
  rules["put"] = put;
  rules["one_hot"] = one_hot;
}

}  // namespace coil::lowering::sizes
