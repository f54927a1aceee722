// Sizes that eager refuses and that would have an answer here, or none: the check of a node against them.
//
// torch.export traces without looking at some of them, so a program may hold such a call. Sizes that are known only in the call are not looked at.
#include "lower/size_rules.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace coil::lowering {
namespace {

std::string_view packet(std::string_view target) {
  target.remove_prefix(std::min(target.find('.') + 1, target.size()));
  return target.substr(0, target.find('.'));
}

[[noreturn]] void refuse(const Op& op, const std::string& what) { fail(ErrorCode::bad_program, fmt::format("{}: {}", op.node.target, what), "eager refuses it as well"); }

bool has_tensor(const Op& op, const char* arg) {
  const Argument* a = op.node.find(arg);
  const ValueId* id = a ? std::get_if<ValueId>(a) : nullptr;
  return id && id->valid() && op.graph.value(*id).is_tensor();
}

const Sizes& sizes_of(const Op& op, const char* arg) { return op.graph.value(std::get<ValueId>(*op.node.find(arg))).tensor().sizes; }

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (Expr s : sizes) text += (text.empty() ? "[" : ", ") + to_string(s);
  return text.empty() ? "[]" : text + "]";
}

bool differ(Expr a, Expr b) { return a->is_constant() && b->is_constant() && a != b; }
bool is_empty(const Sizes& sizes) { return std::any_of(sizes.begin(), sizes.end(), [](Expr s) { return is_const(s, 0); }); }

// Dimensions from `first` on hold something.
void non_empty(const Op& op, const char* arg, size_t first, const char* what) {
  const Sizes& sizes = sizes_of(op, arg);
  for (size_t d = first; d < sizes.size(); ++d) {
    if (is_const(sizes[d], 0)) refuse(op, fmt::format("{} of sizes {} is empty in dimension {}", what, text_of(sizes), d));
  }
}

void positive(const Op& op, const char* arg) {
  if (!op.has(arg)) return;
  for (Expr e : op.indices(arg)) {
    if (e->is_constant() && e->as_int() <= 0) refuse(op, fmt::format("'{}' has to be positive, not {}", arg, to_string(e)));
  }
}

void convolution(const Op& op) {
  if (!has_tensor(op, "weight")) return;
  non_empty(op, "weight", 2, "the weight");
  positive(op, "dilation");
  positive(op, "stride");
}

// Channels and pixels; a dimension of images may be empty.
void resampling(const Op& op) {
  if (!has_tensor(op, "self") && !has_tensor(op, "input")) return;
  non_empty(op, has_tensor(op, "self") ? "self" : "input", 1, "the image");
  const Sizes& out = op.out().sizes;
  for (size_t d = 2; d < out.size(); ++d) {
    if (is_const(out[d], 0)) refuse(op, fmt::format("the resized image of sizes {} is empty", text_of(out)));
  }
}

void adaptive_pool(const Op& op, size_t spatial) {
  const Sizes& sizes = sizes_of(op, "self");
  if (sizes.size() >= spatial + 1) non_empty(op, "self", sizes.size() - spatial - (sizes.size() > spatial + 1 ? 1 : 0), "the image");
}

// Of an empty dimension there is no largest element.
void extreme(const Op& op) {
  if (!has_tensor(op, "self")) return;
  const Sizes& sizes = sizes_of(op, "self");
  if (!op.has("dim")) {
    if (is_empty(sizes) && op.node.find("other") == nullptr) refuse(op, "the tensor is empty");
    return;
  }
  if (sizes.empty()) return;
  const size_t dim = wrap_dim(op.integer("dim"), sizes.size());
  if (is_const(sizes[dim], 0)) refuse(op, fmt::format("dimension {} is empty", dim));
}

void same_sizes(const Op& op, const char* arg, const Sizes& wanted, const char* what) {
  const Sizes& sizes = sizes_of(op, arg);
  bool same = sizes.size() == wanted.size();
  for (size_t d = 0; same && d < sizes.size(); ++d) same = !differ(sizes[d], wanted[d]);
  if (!same) refuse(op, fmt::format("'{}' has sizes {}, {} has {}", arg, text_of(sizes), what, text_of(wanted)));
}

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

void broadcasting(const Op& op, const char* first, const char* second) {
  const Sizes &a = sizes_of(op, first), &b = sizes_of(op, second);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const Expr x = a[a.size() - 1 - i], y = b[b.size() - 1 - i];
    if (differ(x, y) && !is_const(x, 1) && !is_const(y, 1)) refuse(op, fmt::format("sizes {} and {} do not go together", text_of(a), text_of(b)));
  }
}

// self + mat @ vec
void matrix_vector(const Op& op) {
  const Sizes &matrix = sizes_of(op, "mat"), &vector = sizes_of(op, "vec");
  if (matrix.size() != 2 || vector.size() != 1 || differ(matrix[1], vector[0])) refuse(op, fmt::format("a matrix of sizes {} and a vector of sizes {}", text_of(matrix), text_of(vector)));
  const Sizes& self = sizes_of(op, "self");
  if (self.size() > 1 || (self.size() == 1 && differ(self[0], matrix[0]) && !is_const(self[0], 1))) refuse(op, fmt::format("{} are added to a product of {} rows", text_of(self), to_string(matrix[0])));
}

void attention(const Op& op) {
  if (!has_tensor(op, "key") || !has_tensor(op, "value")) return;
  const Sizes &key = sizes_of(op, "key"), &value = sizes_of(op, "value");
  bool together = key.size() == value.size() && key.size() >= 2;
  for (size_t d = 0; together && d + 1 < key.size(); ++d) {
    together = !differ(key[d], value[d]) || (d + 2 < key.size() && (is_const(key[d], 1) || is_const(value[d], 1)));
  }
  if (!together) refuse(op, fmt::format("keys of sizes {} and values of sizes {}", text_of(key), text_of(value)));
}

// Rows of `source` for the rows of `self` that `index` names.
void rows_by_index(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &source = sizes_of(op, "source"), &index = sizes_of(op, "index");
  if (self.size() != source.size() && !source.empty() && !self.empty()) refuse(op, fmt::format("'source' has sizes {}, the tensor {}", text_of(source), text_of(self)));
  const Expr named = index.empty() ? op.pool.index(1) : index[0];
  const size_t place = source.empty() ? 0 : wrap_dim(op.integer("dim"), source.size());
  if (differ(named, source.empty() ? op.pool.index(1) : source[place])) refuse(op, fmt::format("{} positions for 'source' of sizes {}", to_string(named), text_of(source)));
  if (self.empty() || source.empty()) return;
  const size_t dim = wrap_dim(op.integer("dim"), self.size());
  Sizes wanted = self;
  wanted[dim] = source[dim];
  same_sizes(op, "source", wanted, "the tensor");
}

void selected_place(const Op& op) {
  Sizes wanted = sizes_of(op, "self");
  if (wanted.empty()) refuse(op, "a tensor without dimensions");
  const size_t dim = wrap_dim(op.integer("dim"), wanted.size());
  const Argument* given = op.node.find("index");
  const Expr* index = given ? std::get_if<Expr>(given) : nullptr;
  if (index && (*index)->is_constant() && wanted[dim]->is_constant()) {
    const int64_t i = (*index)->as_int(), n = wanted[dim]->as_int();
    if (i < -n || i >= n) refuse(op, fmt::format("index {} of dimension {} of sizes {}", i, dim, text_of(wanted)));
  }
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

// Values at positions: what the positions name has to have room for them. Of masks, only that they lie over the tensor.
void put_values(const Op& op) {
  const auto* ids = std::get_if<std::vector<ValueId>>(op.node.find("indices"));
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
    const TensorType& index = op.graph.value(id).tensor();
    first = std::min(first, dim), last = dim;
    if (is_bool(index.dtype) || index.dtype == DType::u8) {
      masks = true;
      for (Expr size : index.sizes) {
        if (dim >= self.size() || differ(size, self[dim])) refuse(op, fmt::format("a mask of sizes {} for a tensor of sizes {}", text_of(index.sizes), text_of(self)));
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

void index_of_a_number(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &index = sizes_of(op, "index");
  if (self.empty() && !index.empty() && differ(index[0], op.pool.index(1))) refuse(op, fmt::format("positions of sizes {} in a single number", text_of(index)));
}

void boundaries(const Op& op) {
  if (has_tensor(op, "boundaries") && sizes_of(op, "boundaries").size() != 1) refuse(op, "'boundaries' is no row");
}

// A weight for each class.
void class_weights(const Op& op) {
  if (!has_tensor(op, "weight")) return;
  const Sizes &weight = sizes_of(op, "weight"), &classes = sizes_of(op, "linear_weight");
  if (weight.size() != 1 || classes.empty() || differ(weight[0], classes[0])) refuse(op, fmt::format("weights of sizes {} for {} classes", text_of(weight), classes.empty() ? "no" : to_string(classes[0])));
}

// Reflectors are as many as columns or rows, whichever are fewer.
void reflections(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &tau = sizes_of(op, "input2"), &other = sizes_of(op, "input3");
  if (self.size() < 2 || tau.empty() || other.size() < 2) return;
  const bool left = !op.has("left") || op.flag("left");
  const Expr side = other[other.size() - (left ? 2 : 1)], columns = self.back();
  if (!side->is_constant() || !columns->is_constant() || !tau.back()->is_constant()) return;
  if (tau.back()->as_int() != std::min(side->as_int(), columns->as_int())) refuse(op, fmt::format("{} reflectors for a matrix of sizes {}", to_string(tau.back()), text_of(self)));
}

void pivots(const Op& op) {
  const Sizes &data = sizes_of(op, "LU_data");
  if (data.size() < 2 || !data.back()->is_constant() || !data[data.size() - 2]->is_constant()) return;
  Sizes wanted(data.begin(), data.end() - 1);
  wanted.back() = op.pool.index(std::min(data.back()->as_int(), data[data.size() - 2]->as_int()));
  same_sizes(op, "LU_pivots", wanted, "the factorisation's diagonal");
}

// Numbers are written to a tensor that holds none.
void written_beyond(const Op& op) {
  const Sizes& self = sizes_of(op, "self");
  if (is_empty(self) && !is_empty(op.indices("size"))) refuse(op, fmt::format("sizes {} reach beyond a tensor of sizes {}", text_of(op.indices("size")), text_of(self)));
}

// Uniform numbers between ends in order, and as many draws without putting back as there are.
void draws(const Op& op, std::string_view name) {
  if (name == "uniform" && op.number("from") > op.number("to")) refuse(op, fmt::format("from {} to {}, which is less", op.number("from"), op.number("to")));
  if (name != "multinomial" || sizes_of(op, "self").empty()) return;
  const Expr drawn = op.index("num_samples"), of = sizes_of(op, "self").back();
  if (drawn->is_constant() && drawn->as_int() <= 0) refuse(op, "no number is drawn");
  if (drawn->is_constant() && of->is_constant() && !op.flag("replacement") && drawn->as_int() > of->as_int()) refuse(op, fmt::format("{} of {} are drawn without putting back", to_string(drawn), to_string(of)));
}

}  // namespace

void check_sizes(const Op& op) {
  const std::string_view name = packet(op.node.target);
  draws(op, name);
  if (name == "convolution" || name == "_convolution" || name.starts_with("conv1d") || name.starts_with("conv2d") || name.starts_with("conv3d") || name.starts_with("conv_transpose")) {
    convolution(op);
  } else if ((name.starts_with("upsample_") || name.starts_with("_upsample_")) && !name.ends_with("_backward")) {
    resampling(op);
  } else if (name.find("adaptive_avg_pool") != std::string_view::npos && !name.ends_with("_backward")) {
    adaptive_pool(op, static_cast<size_t>(name[name.find("pool") + 4] - '0'));
  } else if (name.starts_with("fractional_max_pool") && !name.ends_with("_backward")) {
    positive(op, "kernel_size");
  } else if (name == "max" || name == "min" || name == "mode") {
    extreme(op);
  } else if (name == "diagonal_scatter") {
    diagonal_scatter(op);
  } else if (name == "as_strided_scatter") {
    written_beyond(op);
  } else if (name == "masked_select") {
    broadcasting(op, "self", "mask");
  } else if (name == "addmv") {
    matrix_vector(op);
  } else if (name == "index_add" || name == "index_copy" || name == "index_reduce") {
    rows_by_index(op);
  } else if (name == "select_scatter") {
    selected_place(op);
  } else if (name == "slice_scatter") {
    sliced_place(op);
  } else if (name == "index_put" || name == "_unsafe_index_put") {
    put_values(op);
  } else if (name == "index_select") {
    index_of_a_number(op);
  } else if (name == "bucketize") {
    boundaries(op);
  } else if (name == "scaled_dot_product_attention" || name.starts_with("_scaled_dot_product")) {
    if (!name.ends_with("_backward")) attention(op);
  } else if (name.find("linear_cross_entropy") != std::string_view::npos) {
    class_weights(op);
  } else if (name == "ormqr") {
    reflections(op);
  } else if (name == "lu_unpack") {
    pivots(op);
  }
}

}  // namespace coil::lowering
