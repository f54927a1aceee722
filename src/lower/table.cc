// The table of all lowerings: each family of operators adds its rows.
#include "lower/aliases.h"
#include "lower/families.h"
#include "lower/lower.h"
#include "lower/lowering.h"

namespace coil {
namespace lowering {
namespace {

Table make_table() {
  Table t;
  for (auto add : {add_pointwise,
                   add_pointwise_formulas,
                   add_activations,
                   add_casts,
                   add_assertions,
                   add_views,
                   add_reshapes,
                   add_joins,
                   add_padding,
                   add_creation,
                   add_windows,
                   add_indexing,
                   add_scatter,
                   add_index_put,
                   add_reductions,
                   add_softmax,
                   add_statistics,
                   add_normalization,
                   add_matmul,
                   add_einsum,
                   add_convolution,
                   add_pooling,
                   add_attention,
                   add_sorting,
                   add_resampling,
                   add_grid_sampling,
                   add_losses,
                   add_recurrent,
                   add_data_sizes,
                   add_distances,
                   add_search,
                   add_special,
                   add_bessel,
                   add_norm_backward,
                   add_convolution_backward,
                   add_attention_backward,
                   add_encoder_layers,
                   add_grid_sampling_backward,
                   add_distances_backward,
                   add_groups_backward,
                   add_pool_gradients,
                   add_grouped_products,
                   add_polynomials,
                   add_incomplete_gamma,
                   add_antialiasing,
                   add_calculus,
                   add_products,
                   add_unpooling,
                   add_embedding_bag,
                   add_segment_reduce,
                   add_histograms,
                   add_random,
                   add_margin_losses,
                   add_numeric,
                   add_order_statistics,
                   add_constructions,
                   add_higher_order,
                   add_fft,
                   add_linalg,
                   add_quantization,
                   add_packed_products,
                   add_detection,
                   add_reinterpret}) {
    add(t);
  }
  add_aliases(t);
  return t;
}

}  // namespace

const Table& table() {
  static const Table instance = make_table();
  return instance;
}

}  // namespace lowering

bool has_lowering(std::string_view target) {
  return lowering::table().contains(target) || lowering::complex_table().contains(target) || lowering::float8_table().contains(target);
}

std::vector<std::string> lowered_operators() {
  std::vector<std::string> names;
  for (const auto& [name, lowering] : lowering::table()) names.push_back(name);
  return names;
}

}  // namespace coil
