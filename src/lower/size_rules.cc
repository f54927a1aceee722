// Sizes that eager refuses and that would have an answer here, or none: the check of a node against them.
//
// torch.export traces without looking at some of them, so a program may hold such a call. Sizes that are known only in the call are not looked at.
#include "lower/size_rules.h"

#include "lower/size_checks.h"

namespace coil::lowering {
namespace sizes {
namespace {

// Channels, images and the size that the window leaves of each of their dimensions, where they are constant; a transposed one gives more.
void convolved_sizes(const Op& op) {
  const char* input = has_tensor(op, "input") ? "input" : "self";
  const Argument* turned = op.node.find("transposed");
  const bool transposed = op.node.target.find("transpose") != std::string::npos || (turned && std::get_if<bool>(turned) && std::get<bool>(*turned));
  if (!has_tensor(op, input) || transposed || (op.has("padding") && std::holds_alternative<std::string>(*op.node.find("padding")))) return;
  const Sizes &x = sizes_of(op, input), &weight = sizes_of(op, "weight"), &out = op.out().sizes;
  if (weight.size() < 3 || out.size() != x.size() || x.size() + 1 < weight.size() || x.size() > weight.size()) return;
  const size_t batch = x.size() == weight.size() ? 1 : 0, spatial = weight.size() - 2;
  const int64_t groups = op.has("groups") ? op.integer("groups") : 1;
  const auto at = [&](const char* arg, size_t i, int64_t otherwise) {
    if (!op.has(arg)) return otherwise;
    const CheckedList<int64_t> all = op.integers(arg);
    return all.empty() ? otherwise : all[std::min(i, all.size() - 1)];
  };
  bool fits = groups > 0 && (is_const(x[batch], 0) || !differ(out[batch], weight[0])) && (batch == 0 || !differ(out[0], x[0]));
  if (x[batch]->is_constant() && weight[1]->is_constant() && !is_const(x[batch], 0)) fits = fits && x[batch]->as_int() == weight[1]->as_int() * groups;
  for (size_t i = 0; fits && i < spatial; ++i) {
    const Expr size = x[batch + 1 + i], taps = weight[2 + i], left = out[batch + 1 + i];
    if (!size->is_constant() || !taps->is_constant() || !left->is_constant()) continue;
    const int64_t reach = size->as_int() + 2 * at("padding", i, 0) - at("dilation", i, 1) * (taps->as_int() - 1) - 1;
    fits = left->as_int() == (reach < 0 ? 0 : reach / at("stride", i, 1) + 1);
  }
  if (!fits)
    refuse(op, fmt::format("an input of sizes {} and a weight of sizes {} in {} groups do not give {}", text_of(x), text_of(weight), groups, text_of(out)));
}

void convolution(const Op& op) {
  if (!has_tensor(op, "weight")) return;
  non_empty(op, "weight", 2, "the weight");
  positive(op, "dilation");
  positive(op, "stride");
  convolved_sizes(op);
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
  if (matrix.size() != 2 || vector.size() != 1 || differ(matrix[1], vector[0]))
    refuse(op, fmt::format("a matrix of sizes {} and a vector of sizes {}", text_of(matrix), text_of(vector)));
  const Sizes& self = sizes_of(op, "self");
  if (op.out().sizes.size() != 1) refuse(op, fmt::format("the program gives the result sizes {}", text_of(op.out().sizes)));
  if (self.size() > 1 || (self.size() == 1 && differ(self[0], matrix[0]) && !is_const(self[0], 1)))
    refuse(op, fmt::format("{} are added to a product of {} rows", text_of(self), to_string(matrix[0])));
}

void attention(const Op& op) {
  if (!has_tensor(op, "query") || !has_tensor(op, "key") || !has_tensor(op, "value")) return;
  const Sizes &query = sizes_of(op, "query"), &key = sizes_of(op, "key"), &value = sizes_of(op, "value");
  bool together = key.size() == value.size() && key.size() >= 2 && query.size() >= 2 && !differ(query.back(), key.back());
  for (size_t d = 0; together && d + 1 < key.size(); ++d) {
    together = !differ(key[d], value[d]) || (d + 2 < key.size() && (is_const(key[d], 1) || is_const(value[d], 1)));
  }
  if (op.node.target.find("flash") != std::string::npos) together = together && !differ(key.back(), value.back());
  if (!together) refuse(op, fmt::format("queries of sizes {}, keys of sizes {} and values of sizes {}", text_of(query), text_of(key), text_of(value)));
  if (!has_tensor(op, "attn_mask") || sizes_of(op, "attn_mask").size() < 2) return;
  const Sizes& mask = sizes_of(op, "attn_mask");
  const auto fits = [](Expr own, Expr size) { return is_const(own, 1) || !differ(own, size); };
  if (!fits(mask.back(), key[key.size() - 2]) || !fits(mask[mask.size() - 2], query[query.size() - 2]))
    refuse(op, fmt::format("a mask of sizes {} for queries of sizes {} and keys of sizes {}", text_of(mask), text_of(query), text_of(key)));
}

// A parameter for each channel, and something to make statistics of.
void batch_norm(const Op& op) {
  const Sizes& input = sizes_of(op, "input");
  if (input.size() < 2) return;
  for (const char* parameter : {"weight", "bias", "running_mean", "running_var"}) {
    if (has_tensor(op, parameter) && sizes_of(op, parameter).size() == 1 && differ(sizes_of(op, parameter)[0], input[1])) {
      refuse(op, fmt::format("'{}' has sizes {}, the input {}", parameter, text_of(sizes_of(op, parameter)), text_of(input)));
    }
  }
  const Argument* training = op.node.find("training");
  const bool* given = training ? std::get_if<bool>(training) : nullptr;
  if (is_empty(input) && (!given || *given)) refuse(op, fmt::format("statistics of an input of sizes {}", text_of(input)));
}

void boundaries(const Op& op) {
  if (has_tensor(op, "boundaries") && sizes_of(op, "boundaries").size() != 1) refuse(op, "'boundaries' is no row");
}

// A weight for each class.
void class_weights(const Op& op) {
  if (!has_tensor(op, "weight")) return;
  const Sizes &weight = sizes_of(op, "weight"), &classes = sizes_of(op, "linear_weight");
  if (weight.size() != 1 || classes.empty() || differ(weight[0], classes[0]))
    refuse(op, fmt::format("weights of sizes {} for {} classes", text_of(weight), classes.empty() ? "no" : to_string(classes[0])));
}

// Reflectors are as many as columns or rows, whichever are fewer.
void reflections(const Op& op) {
  const Sizes &self = sizes_of(op, "self"), &tau = sizes_of(op, "input2"), &other = sizes_of(op, "input3");
  if (self.size() < 2 || tau.empty() || other.size() < 2) return;
  const bool left = !op.has("left") || op.flag("left");
  const Expr side = other[other.size() - (left ? 2 : 1)], columns = self.back();
  if (!side->is_constant() || !columns->is_constant() || !tau.back()->is_constant()) return;
  if (tau.back()->as_int() != std::min(side->as_int(), columns->as_int()))
    refuse(op, fmt::format("{} reflectors for a matrix of sizes {}", to_string(tau.back()), text_of(self)));
}

void pivots(const Op& op) {
  const Sizes& data = sizes_of(op, "LU_data");
  if (data.size() < 2 || !data.back()->is_constant() || !data[data.size() - 2]->is_constant()) return;
  Sizes wanted(data.begin(), data.end() - 1);
  wanted.back() = op.pool.index(std::min(data.back()->as_int(), data[data.size() - 2]->as_int()));
  same_sizes(op, "LU_pivots", wanted, "the factorisation's diagonal");
}

// Along an empty dimension, nothing else may be empty.
void unique_rows(const Op& op) {
  const Sizes& self = sizes_of(op, "self");
  if (op.has("dim") && std::count_if(self.begin(), self.end(), [](Expr s) { return is_const(s, 0); }) > 1)
    refuse(op, fmt::format("slices of sizes {} are empty in more than one dimension", text_of(self)));
}

// Lengths (offsets) for each row of the data before the axis, which is their last dimension.
void segments(const Op& op) {
  const char* given = has_tensor(op, "lengths") ? "lengths" : "offsets";
  if (!has_tensor(op, given)) refuse(op, "neither 'lengths' nor 'offsets' are given");
  const Sizes &data = sizes_of(op, "data"), &rows = sizes_of(op, given);
  if (data.empty() || rows.empty()) refuse(op, fmt::format("data of sizes {} and '{}' of sizes {}", text_of(data), given, text_of(rows)));
  const size_t axis = wrap_dim(op.integer("axis"), data.size());
  if (axis != rows.size() - 1) refuse(op, fmt::format("axis {} is not the last dimension of '{}' of sizes {}", axis, given, text_of(rows)));
  for (size_t d = 0; d < axis; ++d) {
    if (differ(data[d], rows[d]))
      refuse(op, fmt::format("data of sizes {} and '{}' of sizes {} differ in dimension {}", text_of(data), given, text_of(rows), d));
  }
  const bool unsafe = op.node.find("unsafe") && op.has("unsafe") && op.flag("unsafe");
  if (std::string_view(given) == "lengths" && !unsafe && op.node.target.find("backward") == std::string::npos && is_empty(rows))
    refuse(op, fmt::format("'lengths' of sizes {} are empty", text_of(rows)));
  if (std::string_view(given) == "offsets" && is_const(rows.back(), 0)) refuse(op, "'offsets' are empty");
}

void random_integers(const Op& op) {
  const auto known = [&](const char* arg, int64_t otherwise) -> std::optional<int64_t> {
    const Argument* a = op.node.find(arg);
    if (!a) return otherwise;
    const Expr* e = std::get_if<Expr>(a);
    return e && (*e)->is_constant() ? std::optional<int64_t>((*e)->as_int()) : std::nullopt;
  };
  const std::optional<int64_t> low = known("low", 0), high = known("high", INT64_MAX);
  if (low && high && *low >= *high) refuse(op, fmt::format("from {} to less than {}", *low, *high));
}

void uniform(const Op& op) {
  if (op.number("from") > op.number("to")) refuse(op, fmt::format("from {} to {}, which is less", op.number("from"), op.number("to")));
}

void quantile(const Op& op) {
  const double* share = op.node.find("q") ? std::get_if<double>(op.node.find("q")) : nullptr;
  if (share && !(*share >= 0 && *share <= 1)) refuse(op, fmt::format("the quantile at {}, which is not in the range [0, 1]", *share));
}

// As many draws without putting back as there are.
void multinomial(const Op& op) {
  if (sizes_of(op, "self").empty()) return;
  const Expr drawn = op.index("num_samples"), of = sizes_of(op, "self").back();
  if (drawn->is_constant() && drawn->as_int() <= 0) refuse(op, "no number is drawn");
  if (drawn->is_constant() && of->is_constant() && !op.flag("replacement") && drawn->as_int() > of->as_int()) {
    refuse(op, fmt::format("{} of {} are drawn without putting back", to_string(drawn), to_string(of)));
  }
}

// An image for each grid.
void sampled(const Op& op) {
  non_empty(op, "input", 2, "the image");
  const Sizes &input = sizes_of(op, "input"), &grid = sizes_of(op, "grid");
  if (!input.empty() && !grid.empty() && differ(input[0], grid[0]))
    refuse(op, fmt::format("grids of sizes {} for images of sizes {}", text_of(grid), text_of(input)));
}

void average_pool(const Op& op) {
  if (op.has("divisor_override") && op.integer("divisor_override") == 0) refuse(op, "the divisor is 0");
}

Rules make_rules() {
  Rules rules;
  add_positions(rules);
  for (const char* name : {"convolution", "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
    rules[name] = convolution;
  for (const char* name :
       {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
        "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"}) {
    rules[name] = resampling;
  }
  for (size_t dims = 1; dims <= 3; ++dims) {
    static constexpr std::string_view kPools[][2] = {
        {"adaptive_avg_pool1d", "_adaptive_avg_pool1d"}, {"adaptive_avg_pool2d", "_adaptive_avg_pool2d"}, {"adaptive_avg_pool3d", "_adaptive_avg_pool3d"}};
    for (std::string_view name : kPools[dims - 1]) rules[name] = [dims](const Op& op) { adaptive_pool(op, dims); };
  }
  for (const char* name : {"fractional_max_pool2d", "fractional_max_pool3d"}) rules[name] = [](const Op& op) { positive(op, "kernel_size"); };
  for (const char* name : {"max", "min", "mode"}) rules[name] = extreme;
  for (const char* name : {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"})
    rules[name] = attention;
  for (const char* name : {"_linear_cross_entropy_batch_chunked", "_linear_cross_entropy_batch_chunked_no_reduction"}) rules[name] = class_weights;
  for (const char* name : {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}) rules[name] = sampled;
  for (const char* name : {"avg_pool2d", "avg_pool3d"}) rules[name] = average_pool;
  for (const char* name : {"unique_consecutive", "unique_dim"}) rules[name] = unique_rows;
  for (const char* name : {"randint", "randint_like"}) rules[name] = random_integers;
  for (const char* name : {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}) rules[name] = batch_norm;
  rules["masked_select"] = [](const Op& op) { broadcasting(op, "self", "mask"); };
  for (const char* name : {"segment_reduce", "_segment_reduce_backward"}) rules[name] = segments;
  rules["addmv"] = matrix_vector;
  rules["bucketize"] = boundaries;
  rules["ormqr"] = reflections;
  rules["lu_unpack"] = pivots;
  rules["uniform"] = uniform;
  rules["multinomial"] = multinomial;
  for (const char* name : {"quantile", "nanquantile"}) rules[name] = quantile;
  return rules;
}

}  // namespace
}  // namespace sizes

void check_sizes(const Op& op) {
  static const sizes::Rules rules = sizes::make_rules();
  std::string_view name = op.node.target;
  name.remove_prefix(std::min(name.find('.') + 1, name.size()));
  const auto rule = rules.find(name.substr(0, name.find('.')));
  if (rule != rules.end()) rule->second(op);
}

}  // namespace coil::lowering
