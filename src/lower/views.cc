// Views that keep or reorder dimensions: permute, slice, select, expand and their kin. No loops: coordinates are substituted.
#include <algorithm>
#include <numeric>

#include "lower/families.h"
#include "lower/storage.h"

namespace coil::lowering {
namespace {

Views permute(Op& op) {
  View x = op.tensor("self");
  std::vector<size_t> order;
  for (int64_t d : op.integers("dims")) order.push_back(wrap_dim(d, x.rank()));
  return {permuted(op, x, order)};
}

View swapped(Op& op, const View& x, int64_t a, int64_t b) {
  if (x.rank() == 0) return x;
  std::vector<size_t> order(x.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  std::swap(order[wrap_dim(a, x.rank())], order[wrap_dim(b, x.rank())]);
  return permuted(op, x, order);
}

Views movedim(Op& op) {
  View x = op.tensor("self");
  const CheckedList<int64_t> from = op.integers("source"), to = op.integers("destination");
  constexpr size_t kFree = SIZE_MAX;
  std::vector<size_t> order(x.rank(), kFree);
  std::vector<char> used(x.rank(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t s = wrap_dim(from[i], x.rank());
    order[wrap_dim(to[i], x.rank())] = s;
    used[s] = 1;
  }
  size_t next = 0;
  for (size_t& o : order) {
    if (o != kFree) continue;
    while (used[next]) ++next;
    o = next++;
  }
  return {permuted(op, x, order)};
}

Views reverse_dims(Op& op) {
  View x = op.tensor("self");
  std::vector<size_t> order(x.rank());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return {permuted(op, x, order)};
}

Views expand(Op& op) { return {broadcast(op, op.tensor("self"), op.out().sizes)}; }

// A start that counts from the end, or lies before it, as ATen clamps it. An end is not needed: the result's size says it.
Expr wrapped_start(Expr start, Expr size) {
  Expr zero = start->pool->index(0);
  if (!provably_less(start, zero)) return start;
  Expr from_end = size + start;
  return provably_nonnegative(from_end) ? from_end : index_max(from_end, zero);
}

Views slice(Op& op) {
  if (!op.node.binds.empty()) return {slice_at_data(op)};
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  Expr start = op.has("start") ? wrapped_start(op.index("start"), x.sizes[dim]) : op.pool.index(0);
  Expr size = op.out().sizes[dim];
  const int64_t step = op.has("step") ? op.integer("step") : 1;
  if (size == x.sizes[dim] && step == 1) return {x};
  return {sliced(op, x, dim, start, size, step)};
}

Views narrow(Op& op) {
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  return {sliced(op, x, dim, wrapped_start(op.index("start"), x.sizes[dim]), op.index("length"))};
}

View selected(Op& op, const View& x, size_t dim, Expr index) {
  return squeezed(op, sliced(op, x, dim, wrapped_start(index, x.sizes[dim]), op.pool.index(1)), dim);
}

Views select_index(Op& op) {
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (!op.is_scalar("index")) {  // a number that is read from data
    const Expr position = position_from_data(op, "index", x.sizes.at(dim));
    const TensorType& out = op.out();
    return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      std::vector<Expr> at(c.begin(), c.end());
      at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), position);
      return op.rec.at(x, at);
    })};
  }
  return {selected(op, x, dim, op.index("index"))};
}

// split, chunk and the like: the results' sizes say where to cut.
Views split(Op& op) {
  View x = op.tensor("self");
  size_t dim = wrap_dim(op.has("dim") ? op.integer("dim") : 0, x.rank());
  if (op.name == "hsplit") dim = x.rank() == 1 ? 0 : 1;
  if (op.name == "dsplit") dim = 2;
  Views parts;
  Expr start = op.pool.index(0);
  const bool places = op.node.find("indices") != nullptr;  // they need not ascend
  for (size_t i = 0; i < op.node.outputs.size(); ++i) {
    Expr size = op.out(i).sizes[dim];
    parts.push_back(sliced(op, x, dim, start, size));
    start = start + size;
    if (places && i < op.indices("indices").size()) start = index_min(wrapped_start(op.indices("indices")[i], x.sizes[dim]), x.sizes[dim]);
  }
  return parts;
}

Views unbind(Op& op) {
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.has("dim") ? op.integer("dim") : 0, x.rank());
  Views parts;
  for (size_t i = 0; i < op.node.outputs.size(); ++i) parts.push_back(selected(op, x, dim, op.pool.index(static_cast<int64_t>(i))));
  return parts;
}

View flipped(Op& op, View x, const std::vector<size_t>& dims) {
  return op.rec.view(x, x.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    for (size_t d : dims) at[d] = x.sizes[d] - at[d] - 1;
    return at;
  });
}

Views flip(Op& op) {
  View x = op.tensor("self");
  CheckedList<int64_t> dims = op.integers("dims");
  if (dims.empty() || x.rank() == 0) return {x};
  return {flipped(op, x, wrap_dims(dims, x.rank()))};
}

// Along the last dimension two pieces that each lie in a row: a remainder's places would be gathered one by one.
View rolled_along_vectors(Op& op, const View& x, Expr start) {
  if (is_const(start, 0)) return x;
  const auto read_from = [&](Coordinates c, Expr last) {
    std::vector<Expr> at(c.begin(), c.end());
    at.back() = last;
    return op.rec.at(x, at);
  };
  std::vector<Expr> c;
  for (size_t d = 0; d < x.rank(); ++d) c.push_back(op.pool.var(static_cast<int32_t>(d)));
  const Expr size = x.sizes.back(), first = c.back() + start;
  if (byte_size(x.dtype) < 4) {  // whose lanes a processor does not mask
    const size_t last = x.rank() - 1;
    return op.rec.concat(op.name + ".rolled", x.dtype, x.sizes, static_cast<int>(last),
                         {sliced(op, x, last, start, size - start), sliced(op, x, last, op.pool.index(0), start)});
  }
  const Expr rest = masked(inside(first - size, size), read_from(c, first - size), op.constant(0, x.dtype));
  return {x.dtype, x.sizes, masked(inside(first, size), read_from(c, first), rest)};
}

View rolled(Op& op, const View& x, size_t dim, Expr shift) {
  Expr start = floor_mod(shift * -1, x.sizes[dim]);
  if (!op.session.options.gathers && dim + 1 == x.rank() && start->is_constant() && x.sizes[dim]->is_constant()) return rolled_along_vectors(op, x, start);
  return op.rec.view(x, x.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = floor_mod(at[dim] + start, x.sizes[dim]);
    return at;
  });
}

Views roll(Op& op) {
  View x = op.tensor("self");
  const Sizes shifts = op.indices("shifts");
  const CheckedList<int64_t> dims = op.integers("dims");
  if (x.rank() == 0 || std::any_of(x.sizes.begin(), x.sizes.end(), [](Expr size) { return is_const(size, 0); })) return {x};
  if (dims.empty()) {
    View flat = reshaped(op, x, {count(op.pool, x.sizes)});
    return {reshaped(op, rolled(op, flat, 0, shifts.at(0)), x.sizes)};
  }
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(op, x, wrap_dim(dims[i], x.rank()), shifts.at(i));
  return {x};
}

Views rot90(Op& op) {
  View x = op.tensor("self");
  const CheckedList<int64_t> dims = op.integers("dims");
  const size_t a = wrap_dim(dims.at(0), x.rank()), b = wrap_dim(dims.at(1), x.rank());
  const int64_t turns = ((op.integer("k") % 4) + 4) % 4;
  if (turns == 2) return {flipped(op, x, {a, b})};
  if (turns == 1) return {swapped(op, flipped(op, x, {b}), static_cast<int64_t>(a), static_cast<int64_t>(b))};
  if (turns == 3) return {flipped(op, swapped(op, x, static_cast<int64_t>(a), static_cast<int64_t>(b)), {b})};
  return {x};
}

Views unfold(Op& op) {
  View x = op.tensor("self");
  if (x.rank() == 0) return {reshaped(op, x, op.out().sizes)};
  const size_t dim = wrap_dim(op.integer("dimension"), x.rank());
  const int64_t step = op.integer("step");
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end() - 1);
    at[dim] = at[dim] * step + c.back();
    return at;
  })};
}

Views diagonal(Op& op) {
  View x = op.tensor(op.node.find("A") ? "A" : "self");
  const size_t a = wrap_dim(op.integer("dim1"), x.rank()), b = wrap_dim(op.integer("dim2"), x.rank());
  const int64_t offset = op.integer("offset");
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(x.rank());
    at[a] = c.back() + std::max<int64_t>(-offset, 0);
    at[b] = c.back() + std::max<int64_t>(offset, 0);
    size_t next = 0;
    for (size_t i = 0; i < x.rank(); ++i) {
      if (i != a && i != b) at[i] = c[next++];
    }
    return at;
  })};
}

Views as_strided(Op& op) {
  const Storage storage = storage_of_self(op);
  const Sizes strides = op.indices("stride");
  check_reach(op, storage, op.out().sizes, strides);
  return {op.rec.view(storage.elements, op.out().sizes, [&](Coordinates c) {
    Expr linear = storage.offset;
    for (size_t i = 0; i < c.size(); ++i) linear = linear + c[i] * strides[i];
    return from_row_major(simplify_index(linear, VarRanges{op.out().sizes}), storage.elements.sizes);
  })};
}

// The tensor's memory seen with other sizes, its elements in the order of the result's strides; what is beyond its end is 0 (in
// PyTorch: anything).
Views resize(Op& op) {
  const ValueId* id = std::get_if<ValueId>(op.node.find("self"));
  const Sizes& sizes = op.out().sizes;
  const View x = op.tensor("self");
  const std::vector<size_t> order = memory_order(op, op.out());
  if (op.graph.value(*id).tensor().sizes == sizes && (!op.has("memory_format") || order == memory_order(op, op.graph.value(*id).tensor()))) return {x};
  const View memory = storage_of_self(op).elements;
  const Expr have = count(op.pool, memory.sizes);
  Sizes ordered;
  for (size_t d : order) ordered.push_back(sizes[d]);
  return {op.rec.pointwise(op.name, x.dtype, sizes, [&](Coordinates c) {
    std::vector<Expr> place;
    for (size_t d : order) place.push_back(c[d]);
    const Expr linear = row_major(op.pool, place, ordered);
    return masked(index_less(linear, have, VarRanges{sizes}), op.rec.at(memory, from_row_major(linear, memory.sizes)),
                  as(op.pool.constant_int(0, DType::i64), x.dtype));
  })};
}

Views repeat(Op& op) {
  View x = op.tensor("self");
  const Sizes& sizes = op.out().sizes;
  return {op.rec.view(x, sizes, [&](Coordinates c) {
    std::vector<Expr> at;
    const size_t skip = c.size() - x.rank();
    for (size_t i = 0; i < x.rank(); ++i) {
      const bool once = x.sizes[i] == sizes[skip + i];
      at.push_back(once ? c[skip + i] : is_const(x.sizes[i], 1) ? op.pool.index(0) : floor_mod(c[skip + i], x.sizes[i]));
    }
    return at;
  })};
}

Views repeat_interleave(Op& op) {
  View x = op.tensor("self");
  Expr repeats = op.index("repeats");
  if (!op.has("dim")) x = reshaped(op, x, {count(op.pool, x.sizes)});
  const size_t dim = op.has("dim") ? wrap_dim(op.integer("dim"), x.rank()) : 0;
  return {op.rec.view(x, op.out().sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = floor_div(at[dim], repeats);
    return at;
  })};
}

// tril and triu: elements off the triangle become zero.
Views triangle(Op& op, bool lower) {
  View x = op.tensor("self");
  const int64_t diagonal = op.integer("diagonal");
  const TensorType& out = op.out();
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr row = c[c.size() - 2] + diagonal, column = c.back();
    Expr kept = lower ? index_at_least(row, column) : index_at_least(column, row);
    return op.pool.select(kept, op.rec.at(x, c), as(op.pool.constant_int(0, DType::i64), out.dtype));
  })};
}

Views broadcast_all(Op& op) {
  Views results = op.tensors("tensors");
  for (size_t i = 0; i < results.size(); ++i) results[i] = broadcast(op, results[i], op.out(i).sizes);
  return results;
}

Views meshgrid(Op& op) {
  Views results = op.tensors("tensors");
  const bool swap = op.has("indexing") && op.text("indexing") == "xy" && results.size() >= 2;
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t own = swap && i < 2 ? 1 - i : i;
    results[i] =
        op.rec.view(results[i], op.out(i).sizes, [&](Coordinates c) { return results[i].rank() == 0 ? std::vector<Expr>{} : std::vector<Expr>{c[own]}; });
  }
  return results;
}

}  // namespace

void add_views(Table& table) {
  for (const char* target : {"aten.permute.default", "aten.permute_copy.default"}) table[target] = permute;
  for (const char* target : {"aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default", "aten.swapdims.default"}) {
    table[target] = [](Op& op) {
      const bool axes = op.node.find("axis0") != nullptr;
      return Views{swapped(op, op.tensor("self"), op.integer(axes ? "axis0" : "dim0"), op.integer(axes ? "axis1" : "dim1"))};
    };
  }
  for (const char* target : {"aten.t.default", "aten.t_copy.default"}) {
    table[target] = [](Op& op) {
      View x = op.tensor("self");
      return Views{x.rank() < 2 ? x : swapped(op, x, 0, 1)};
    };
  }
  for (const char* target : {"aten.mT.default", "aten.adjoint.default", "aten.matrix_H.default", "aten.mH.default"}) {
    table[target] = [](Op& op) { return Views{swapped(op, op.tensor("self"), -2, -1)}; };
  }
  table["aten.numpy_T.default"] = reverse_dims;
  for (const char* target : {"aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist"}) table[target] = movedim;
  for (const char* target : {"aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", "aten.expand_copy.default"}) {
    table[target] = expand;
  }
  for (const char* target : {"aten.slice.Tensor", "aten.slice_copy.Tensor"}) table[target] = slice;
  for (const char* target : {"aten.narrow.default", "aten.narrow_copy.default"}) table[target] = narrow;
  for (const char* target : {"aten.select.int", "aten.select_copy.int"}) table[target] = select_index;
  for (const char* target :
       {"aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", "aten.split_copy.Tensor",
        "aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes.default", "aten.chunk.default", "aten.unsafe_chunk.default", "aten.tensor_split.sections",
        "aten.tensor_split.indices", "aten.hsplit.int", "aten.hsplit.array", "aten.vsplit.int", "aten.vsplit.array", "aten.dsplit.int", "aten.dsplit.array"}) {
    table[target] = split;
  }
  for (const char* target : {"aten.unbind.int", "aten.unbind_copy.int"}) table[target] = unbind;
  table["aten.flip.default"] = flip;
  table["aten.fliplr.default"] = [](Op& op) { return Views{flipped(op, op.tensor("self"), {1})}; };
  table["aten.flipud.default"] = [](Op& op) { return Views{flipped(op, op.tensor("self"), {0})}; };
  table["aten.roll.default"] = roll;
  table["aten.rot90.default"] = rot90;
  for (const char* target : {"aten.unfold.default", "aten.unfold_copy.default"}) table[target] = unfold;
  for (const char* target : {"aten.diagonal.default", "aten.diagonal_copy.default", "aten.linalg_diagonal.default"}) table[target] = diagonal;
  for (const char* target : {"aten.as_strided.default", "aten.as_strided_copy.default"}) table[target] = as_strided;
  for (const char* target : {"aten.repeat.default", "aten.tile.default"}) table[target] = repeat;
  for (const char* target : {"aten.resize.default", "aten.resize_as.default"}) table[target] = resize;
  table["aten.repeat_interleave.self_int"] = repeat_interleave;
  table["aten.tril.default"] = [](Op& op) { return triangle(op, true); };
  table["aten.triu.default"] = [](Op& op) { return triangle(op, false); };
  table["aten.broadcast_tensors.default"] = broadcast_all;
  for (const char* target : {"aten.meshgrid.default", "aten.meshgrid.indexing"}) table[target] = meshgrid;
}

}  // namespace coil::lowering
