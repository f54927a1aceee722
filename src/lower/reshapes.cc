// Views that regroup elements: reshape, flatten, squeeze, pixel_shuffle.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// Every one of these keeps the row-major order, so the result's sizes say it all.
constexpr const char* kRowMajor[] = {
    "aten.view.default",       "aten.reshape.default",       "aten._unsafe_view.default",   "aten.view_copy.default",    "aten._reshape_alias.default",
    "aten.reshape_as.default", "aten.view_as.default",       "aten.flatten.using_ints",     "aten.unflatten.int",        "aten.ravel.default",
    "aten.squeeze.default",    "aten.squeeze.dim",           "aten.squeeze.dims",           "aten.squeeze_copy.default", "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",  "aten.unsqueeze.default",     "aten.unsqueeze_copy.default", "aten.atleast_1d.default",   "aten.atleast_2d.default",
    "aten.atleast_3d.default", "aten._reshape_copy.default",
};

Views pixel_shuffle(Op& op) {
  View x = op.tensor("self");
  const int64_t r = op.integer("upscale_factor");
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    const size_t n = at.size();
    Expr factor = op.pool.index(r), y = c[n - 2], z = c[n - 1];
    at[n - 3] = (c[n - 3] * r + floor_mod(y, factor)) * r + floor_mod(z, factor);
    at[n - 2] = floor_div(y, factor);
    at[n - 1] = floor_div(z, factor);
    return at;
  })};
}

Views pixel_unshuffle(Op& op) {
  View x = op.tensor("self");
  const int64_t r = op.integer("downscale_factor");
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    const size_t n = at.size();
    Expr factor = op.pool.index(r);
    at[n - 3] = floor_div(c[n - 3], op.pool.index(r * r));
    at[n - 2] = c[n - 2] * r + floor_mod(floor_div(c[n - 3], factor), factor);
    at[n - 1] = c[n - 1] * r + floor_mod(c[n - 3], factor);
    return at;
  })};
}

Views channel_shuffle(Op& op) {
  View x = op.tensor("self");
  const int64_t groups = op.integer("groups");
  Expr per_group = floor_div(x.sizes[1], op.pool.index(groups));
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[1] = floor_mod(c[1], op.pool.index(groups)) * per_group + floor_div(c[1], op.pool.index(groups));
    return at;
  })};
}

}  // namespace

void add_reshapes(Table& table) {
  for (const char* target : kRowMajor) table[target] = [](Op& op) { return Views{reshaped(op, op.tensor("self"), op.out().sizes)}; };
  for (const char* target : {"aten.atleast_1d.Sequence", "aten.atleast_2d.Sequence", "aten.atleast_3d.Sequence"}) {
    table[target] = [](Op& op) {
      Views results = op.tensors("tensors");
      for (size_t i = 0; i < results.size(); ++i) results[i] = reshaped(op, results[i], op.out(i).sizes);
      return results;
    };
  }
  table["aten.pixel_shuffle.default"] = pixel_shuffle;
  table["aten.pixel_unshuffle.default"] = pixel_unshuffle;
  for (const char* target : {"aten.channel_shuffle.default", "aten.native_channel_shuffle.default"}) table[target] = channel_shuffle;
}

}  // namespace coil::lowering
