// Families of lowerings that only table.cc needs to know: a new one recompiles two files.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

void add_pointwise_formulas(Table& table);
void add_index_put(Table& table);
void add_norm_backward(Table& table);
void add_convolution_backward(Table& table);
void add_attention_backward(Table& table);
void add_encoder_layers(Table& table);
void add_grid_sampling_backward(Table& table);
void add_distances_backward(Table& table);
void add_groups_backward(Table& table);
void add_pool_gradients(Table& table);
void add_grouped_products(Table& table);
void add_reinterpret(Table& table);
void add_segment_reduce(Table& table);
void add_windows(Table& table);
void add_packed_products(Table& table);
void add_detection(Table& table);
// aten.slice between positions from data, whose result's size the node binds (data_sizes.cc).
View slice_at_data(Op& op);
void add_complex_measures(Table& table);  // rows of complex_table(), as the next
void add_complex_ranges(Table& table);
void add_scaled_products(Table& table);  // rows of float8_table()

}  // namespace coil::lowering
