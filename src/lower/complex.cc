// Which lowerings complex numbers have: this file decides it for all of them.
//
// Rows that move data, or treat the two parts alike, serve as they are (kComplexMovement): the part travels with the body. All others have
// rows of their own in complex_pointwise.cc, complex_reductions.cc, fft.cc and linalg*.cc; an operator with neither is refused.
#include <algorithm>

#include "lower/aliases.h"
#include "lower/families.h"
#include "lower/moving_rows.h"
#include "lower/names.h"

namespace coil::lowering {
namespace {

// clang-format off: a row of names a line would be pages
constexpr MovingRow kComplexMovement[] = {
    // views
    {"alias"}, {"alias_copy"}, {"detach"}, {"detach_copy"}, {"lift_fresh"}, {"lift"}, {"lift_fresh_copy"}, {"contiguous"}, {"clone"},
    {"resolve_conj"}, {"resolve_neg"}, {"pin_memory"}, {"positive"}, {"permute"}, {"permute_copy"}, {"transpose"}, {"transpose_copy"},
    {"swapaxes"}, {"swapdims"}, {"t"}, {"t_copy"}, {"mT"}, {"numpy_T"}, {"movedim"}, {"moveaxis"}, {"expand"}, {"expand_as"},
    {"broadcast_to"}, {"expand_copy"}, {"slice"}, {"slice_copy"}, {"narrow"}, {"narrow_copy"}, {"select"}, {"select_copy"}, {"split"}, {"split_with_sizes"},
    {"split_with_sizes_copy"}, {"split_copy"}, {"unsafe_split"}, {"unsafe_split_with_sizes"}, {"chunk"}, {"unsafe_chunk"}, {"tensor_split"},
    {"hsplit"}, {"vsplit"}, {"dsplit"}, {"block_diag"}, {"cartesian_prod"}, {"combinations"}, {"diagflat"}, {"_chunk_cat"}, {"im2col"},
    {"resize"}, {"resize_as"},     {"unbind"}, {"unbind_copy"}, {"flip"}, {"fliplr"}, {"flipud"}, {"roll"}, {"rot90"}, {"unfold"}, {"unfold_copy"}, {"unfold_backward"}, {"diagonal"},
    {"select_backward"}, {"slice_backward"}, {"diagonal_backward"}, {"trace_backward"}, {"value_selecting_reduction_backward"},
    {"diagonal_copy"}, {"linalg_diagonal"}, {"as_strided"}, {"as_strided_copy"}, {"repeat"}, {"tile"}, {"repeat_interleave"}, {"tril"},
    {"triu"}, {"broadcast_tensors"}, {"meshgrid"}, {"view"}, {"reshape"}, {"_unsafe_view"}, {"view_copy"}, {"_reshape_alias"}, {"reshape_as"},
    {"view_as"}, {"flatten"}, {"unflatten"}, {"ravel"}, {"squeeze"}, {"squeeze_copy"}, {"unsqueeze"}, {"unsqueeze_copy"}, {"atleast_1d"},
    {"atleast_2d"}, {"atleast_3d"}, {"_reshape_copy"}, {"pixel_shuffle"}, {"pixel_unshuffle"}, {"channel_shuffle"}, {"native_channel_shuffle"},
    // joins, padding, creation, conversion
    {"cat"}, {"concat"}, {"concatenate"}, {"stack"}, {"hstack"}, {"vstack"}, {"dstack"}, {"column_stack"}, {"diff", "self prepend append"},
    {"diag_embed"}, {"diag"}, {"as_strided_scatter", "self src"}, {"slice_scatter", "self src"}, {"select_scatter", "self src"}, {"diagonal_scatter", "self src"}, {"fill_diagonal", "fill_value"}, {"pad"},
    {"constant_pad_nd", "value"}, {"reflection_pad1d"}, {"reflection_pad2d"}, {"reflection_pad3d"}, {"replication_pad1d"}, {"replication_pad2d"},
    {"replication_pad3d"}, {"replication_pad1d_backward"}, {"replication_pad2d_backward"}, {"replication_pad3d_backward"}, {"reflection_pad1d_backward"}, {"reflection_pad2d_backward"}, {"reflection_pad3d_backward"}, {"zeros"}, {"_efficientzerotensor"}, {"zeros_like"}, {"new_zeros"}, {"empty"}, {"empty_like"}, {"new_empty"}, {"empty_strided"},
    {"new_empty_strided"}, {"empty_permuted"}, {"zero"}, {"ones"}, {"ones_like"}, {"new_ones"}, {"full"}, {"full_like"}, {"new_full"}, {"fill"},
    {"scalar_tensor"}, {"eye"}, {"to"}, {"chalf"}, {"_to_copy"}, {"type_as"}, {"convert_element_type"}, {"copy"}, {"_assert_tensor_metadata"},
    // data positions
    {"index_select"}, {"gather"}, {"take_along_dim"}, {"take"}, {"embedding"}, {"index"}, {"_unsafe_index"}, {"scatter", "src value"},
    {"scatter_add", "src"}, {"index_put", "values"}, {"_unsafe_index_put", "values"}, {"index_copy", "source"}, {"index_fill", "value"}, {"index_add", "source"},
    {"where", "self other"}, {"masked_fill", "self value"}, {"masked_scatter", "self source"}, {"masked_scatter_backward"}, {"put", "self source"},
    {"_unsafe_masked_index", "fill"}, {"_unsafe_masked_index_put_accumulate", "self values"},
    // the same for both parts
    {"sum", "self"}, {"mean", "self"}, {"cumsum", "self"}, {"trace"}, {"sum_to_size", "self"}, {"nan_to_num"}, {"rand"}, {"rand_like"}, {"randn"}, {"randn_like"}, {"uniform"}, {"normal_functional"},
    {"dropout"}, {"native_dropout"}, {"feature_dropout"},
    // products, which know of complex numbers themselves
    {"mm"}, {"bmm"}, {"addmm", "self"}, {"baddbmm", "self"}, {"addmv", "self"}, {"matmul"}, {"linalg_matmul"}, {"linear"}, {"mv"}, {"dot"}, {"vdot"}, {"outer"},
    {"ger"}, {"einsum"}, {"conv1d"}, {"conv2d"}, {"conv3d"}, {"conv_transpose1d"}, {"conv_transpose2d"}, {"conv_transpose3d"}, {"convolution"},
    {"_convolution"}, {"tensordot"},
    // sizes that data decides
    {"nonzero"}, {"nonzero_numpy"}, {"argwhere"}, {"nonzero_static"}, {"masked_select"},
    // branches
    {"cond"},
};
// clang-format on

// What PyTorch's CPU has for complex numbers of two float16; parts are computed in float32 and rounded where they are stored.
// Here these do more than to move data:
constexpr const char* kOfHalves[] = {
    "abs",
    "add",
    "sub",
    "rsub",
    "mul",
    "addcmul",
    "neg",
    "negative",
    "sgn",
    "eq",
    "ne",
    "equal",
    "isclose",
    "isnan",
    "isinf",
    "isfinite",
    "isreal",
    "conj",
    "_conj",
    "conj_physical",
    "_conj_physical",
    "_conj_copy",
    "real",
    "imag",
    "view_as_real",
    "view_as_real_copy",
    "view_as_complex",
    "view_as_complex_copy",
    "complex",
    "polar",
    "chalf",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "all",
    "any",
    "count_nonzero",
    "norm",
    "linalg_vector_norm",
    "dist",
    "pairwise_distance",
    "float_power",
    "l1_loss",
    "linspace",
    "logspace",
    "nonzero",
    "nonzero_numpy",
    "nonzero_static",
    "argwhere",
    "masked_select",
    "masked_fill",
    "where",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "_unsafe_index_put",
    "index",
    "_unsafe_index",
    "gather",
    "index_select",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "diff",
    "outer",
    "kron",
    "dropout",
    "native_dropout",
    "feature_dropout",
    "_softmax",
    "softmax",
    "_log_softmax",
    "log_softmax",
    "convolution",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "item",
    "_local_scalar_dense",
    "matrix_H",
    "mH",
    "adjoint",
    "fft_fftshift",
    "fft_ifftshift",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "uniform",
    "normal_functional",
};
// These move data, and PyTorch does not have them for such numbers.
constexpr const char* kNotOfHalves[] = {
    "mean",
    "sum",
    "cumsum",
    "trace",
    "sum_to_size",
    "nan_to_num",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addmv",
    "matmul",
    "linalg_matmul",
    "linear",
    "mv",
    "dot",
    "vdot",
    "einsum",
    "tensordot",
    "ger",
    "im2col",
    "take",
    "put",
    "scatter",
    "scatter_add",
    "take_along_dim",
    "eye",
    "masked_scatter",
    "channel_shuffle",
    "native_channel_shuffle",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
};

bool is_complex_value(const Graph& graph, ValueId id) { return id.valid() && graph.value(id).is_tensor() && is_complex(graph.value(id).tensor().dtype); }

// Complex numbers are of two float16 among the arguments and results, and none are wider.
bool is_of_halves(const Graph& graph, const Node& node) {
  bool halves = false, wider = false;
  const auto look = [&](ValueId id) {
    if (!is_complex_value(graph, id)) return;
    (graph.value(id).tensor().dtype == DType::c32 ? halves : wider) = true;
  };
  for (const Argument& a : node.args) {
    if (const ValueId* id = std::get_if<ValueId>(&a)) look(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&a)) std::for_each(ids->begin(), ids->end(), look);
  }
  std::for_each(node.outputs.begin(), node.outputs.end(), look);
  return halves && !wider;
}

}  // namespace

bool has_complex_row(const Graph& graph, const Node& node) {
  if (!complex_table().contains(node.target)) return false;
  if (!is_of_halves(graph, node)) return true;
  const std::string_view name = packet(node.target);
  const bool moves = std::any_of(std::begin(kComplexMovement), std::end(kComplexMovement), [&](const MovingRow& m) { return m.packet == name; });
  return listed(kOfHalves, name) || (moves && !listed(kNotOfHalves, name));
}

bool is_complex_node(const Graph& graph, const Node& node) {
  const auto complex = [&](ValueId id) { return is_complex_value(graph, id); };
  for (const Argument& a : node.args) {
    if (std::holds_alternative<std::complex<double>>(a)) return true;
    if (const ValueId* id = std::get_if<ValueId>(&a); id && complex(*id)) return true;
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&a); ids && std::any_of(ids->begin(), ids->end(), complex)) return true;
  }
  return std::any_of(node.outputs.begin(), node.outputs.end(), complex);
}

const Table& complex_table() {
  static const Table instance = [] {
    Table t;
    add_moving_rows(t, table(), kComplexMovement);
    add_complex_pointwise(t);
    add_complex_reductions(t);
    add_complex_measures(t);
    add_complex_ranges(t);
    add_fft(t);
    add_linalg(t);
    add_aliases(t);
    return t;
  }();
  return instance;
}

}  // namespace coil::lowering
