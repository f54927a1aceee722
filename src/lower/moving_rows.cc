#include "lower/moving_rows.h"

#include <map>

#include "lower/names.h"

namespace coil::lowering {
namespace {

// clang-format off: a row of names a line would be pages
constexpr MovingRow kMovingRows[] = {
    {"alias"}, {"alias_copy"}, {"detach"}, {"detach_copy"}, {"lift_fresh"}, {"lift"}, {"lift_fresh_copy"}, {"contiguous"}, {"clone"}, {"pin_memory"},
    {"permute"}, {"permute_copy"}, {"transpose"}, {"transpose_copy"}, {"swapaxes"}, {"swapdims"}, {"t"}, {"t_copy"}, {"mT"}, {"numpy_T"}, {"movedim"},
    {"moveaxis"}, {"expand"}, {"expand_as"}, {"broadcast_to"}, {"expand_copy"}, {"slice"}, {"slice_copy"}, {"narrow"}, {"narrow_copy"}, {"select"},
    {"select_copy"}, {"split"}, {"split_with_sizes"}, {"split_with_sizes_copy"}, {"split_copy"}, {"unsafe_split"}, {"unsafe_split_with_sizes"},
    {"chunk"}, {"unsafe_chunk"}, {"tensor_split"}, {"hsplit"}, {"vsplit"}, {"dsplit"}, {"resize"}, {"resize_as"}, {"unbind"}, {"unbind_copy"},
    {"flip"}, {"fliplr"}, {"flipud"}, {"roll"}, {"rot90"}, {"unfold"}, {"unfold_copy"}, {"diagonal"}, {"diagonal_copy"}, {"linalg_diagonal"},
    {"as_strided"}, {"as_strided_copy"}, {"repeat"}, {"tile"}, {"repeat_interleave"}, {"broadcast_tensors"}, {"meshgrid"}, {"view"}, {"reshape"},
    {"_unsafe_view"}, {"view_copy"}, {"_reshape_alias"}, {"reshape_as"}, {"view_as"}, {"flatten"}, {"unflatten"}, {"ravel"}, {"squeeze"},
    {"squeeze_copy"}, {"unsqueeze"}, {"unsqueeze_copy"}, {"atleast_1d"}, {"atleast_2d"}, {"atleast_3d"}, {"_reshape_copy"}, {"pixel_shuffle"},
    {"pixel_unshuffle"}, {"cat"}, {"concat"}, {"concatenate"}, {"stack"}, {"hstack"}, {"vstack"}, {"dstack"}, {"column_stack"},
    {"slice_scatter", "self src"}, {"select_scatter", "self src"}, {"diagonal_scatter", "self src"}, {"fill_diagonal", "fill_value"},
    {"as_strided_scatter", "self src"}, {"constant_pad_nd", "value"}, {"pad", "value"}, {"empty"}, {"empty_like"}, {"new_empty"}, {"empty_strided"},
    {"new_empty_strided"}, {"empty_permuted"}, {"full", "fill_value"}, {"full_like", "fill_value"}, {"new_full", "fill_value"}, {"fill", "value"},
    {"scalar_tensor", "s"}, {"_assert_tensor_metadata"}, {"index_select"}, {"embedding"}, {"index"}, {"_unsafe_index"}, {"where", "self other"},
};
// clang-format on

}  // namespace

std::span<const MovingRow> moving_rows() { return kMovingRows; }

void add_moving_rows(Table& table, const Table& rows, std::span<const MovingRow> moving) {
  std::map<std::string_view, const MovingRow*> listed;
  for (const MovingRow& m : moving) listed[m.packet] = &m;
  for (const auto& [target, row] : rows) {
    const auto found = listed.find(packet(target));
    if (found == listed.end()) continue;
    table[target] = [row = row, values = found->second->values](Op& op) {
      if (*values) op.promote(values, op.out().dtype);
      return row(op);
    };
  }
}

}  // namespace coil::lowering
