// Views: the arithmetic of coordinates that the families share.
#include <algorithm>

#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {

bool is_const(Expr e, int64_t value) { return e->is_constant() ? e->as_int() == value : value == 1 && e->pool->is_one(e); }

std::optional<int64_t> const_int(Expr e) { return e->is_constant() ? std::optional<int64_t>(e->as_int()) : std::nullopt; }

size_t wrap_dim(int64_t dim, size_t rank) {
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(rank), 1);  // a tensor of rank 0 accepts dimension 0 and -1
  if (dim < -n || dim >= n) fail(ErrorCode::bad_program, "a dimension argument is out of range");
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

std::vector<size_t> wrap_dims(const std::vector<int64_t>& dims, size_t rank) {
  std::vector<size_t> result;
  if (dims.empty()) {
    for (size_t i = 0; i < rank; ++i) result.push_back(i);
    return result;
  }
  for (int64_t d : dims) {
    const size_t w = wrap_dim(d, rank);
    if (rank > 0) result.push_back(w);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Expr count(ExprPool& pool, const Sizes& sizes) {
  Expr n = pool.index(1);
  for (Expr s : sizes) n = n * s;
  return n;
}

Expr row_major(ExprPool& pool, Coordinates c, const Sizes& sizes) {
  Expr linear = pool.index(0);
  for (size_t i = 0; i < sizes.size(); ++i) linear = linear * sizes[i] + c[i];
  return linear;
}

Sizes from_row_major(Expr linear, const Sizes& sizes) {
  ExprPool& pool = *linear->pool;
  Sizes coordinates(sizes.size(), pool.index(0));
  // Nothing to find coordinates for.
  if (std::any_of(sizes.begin(), sizes.end(), [](Expr size) { return is_const(size, 0); })) return coordinates;
  size_t first = 0;
  while (first < sizes.size() && is_const(sizes[first], 1)) ++first;
  for (size_t i = sizes.size(); i-- > first;) {
    if (is_const(sizes[i], 1)) continue;
    // The first dimension takes what is left: no remainder is needed.
    coordinates[i] = i == first ? linear : floor_mod(linear, sizes[i]);
    if (i > first) linear = floor_div(linear, sizes[i]);
  }
  return coordinates;
}

namespace {

// Dimensions [from_begin, from_end) of the source hold the same elements as [to_begin, to_end) of the result.
struct Group {
  size_t from_begin, from_end, to_begin, to_end;
};

// Splits both shapes at their equal prefix products, so that divisions appear only where dimensions are really merged or cut.
std::vector<Group> match_dims(ExprPool& pool, const Sizes& from, const Sizes& to) {
  std::vector<Group> groups;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    // The smallest (di + dj) with equal products, each side non-empty unless the other is all ones.
    Group best{i, from.size(), j, to.size()};
    bool found = false;
    for (size_t total = 2; !found && total <= from.size() - i + to.size() - j; ++total) {
      for (size_t di = 1; !found && di < total; ++di) {
        const size_t dj = total - di;
        if (i + di > from.size() || j + dj > to.size()) continue;
        Sizes a(from.begin() + static_cast<long>(i), from.begin() + static_cast<long>(i + di));
        Sizes b(to.begin() + static_cast<long>(j), to.begin() + static_cast<long>(j + dj));
        if (count(pool, a) == count(pool, b)) {
          best = {i, i + di, j, j + dj};
          found = true;
        }
      }
    }
    // Ones at the end join the last group.
    auto all_ones = [](const Sizes& s, size_t k) { return std::all_of(s.begin() + static_cast<long>(k), s.end(), [](Expr e) { return is_const(e, 1); }); };
    if (found && all_ones(from, best.from_end) && all_ones(to, best.to_end)) {
      best.from_end = from.size();
      best.to_end = to.size();
    }
    groups.push_back(best);
    i = best.from_end;
    j = best.to_end;
  }
  return groups;
}

// Remembers that the first dimension of `flat` stands for the leading dimensions of `source`.
void remember_flattening(Op& op, const View& source, const View& flat, const std::vector<Group>& groups) {
  if (groups.empty() || groups[0].to_end != 1 || groups[0].from_end < 2 || flat.rank() < 2) return;
  const size_t kept = flat.rank() - 1;
  if (source.rank() != groups[0].from_end + kept) return;
  if (!std::equal(flat.sizes.begin() + 1, flat.sizes.end(), source.sizes.begin() + static_cast<long>(groups[0].from_end))) return;
  op.session.unflattened.insert_or_assign(flat.body.node(), source);
}

}  // namespace

View reshaped(Op& op, const View& v, const Sizes& sizes) {
  if (v.sizes == sizes) return v;
  if (Expr from = count(op.pool, v.sizes), to = count(op.pool, sizes); from->is_constant() && to->is_constant() && from != to) {
    fail(ErrorCode::bad_program, fmt::format("{}: {} elements are seen as {}", op.node.target, to_string(from), to_string(to)));
  }
  if (auto it = op.session.unflattened.find(v.body.node()); it != op.session.unflattened.end() && it->second.sizes == sizes && it->second.dtype == v.dtype)
    return it->second;
  const std::vector<Group> groups = match_dims(op.pool, v.sizes, sizes);
  View result = op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(v.rank(), op.pool.index(0));
    for (const Group& g : groups) {
      Sizes from(v.sizes.begin() + static_cast<long>(g.from_begin), v.sizes.begin() + static_cast<long>(g.from_end));
      Sizes to(sizes.begin() + static_cast<long>(g.to_begin), sizes.begin() + static_cast<long>(g.to_end));
      Expr linear = row_major(op.pool, c.subspan(g.to_begin, to.size()), to);
      // Divisions are resolved within the group, where the ranges are known.
      linear = simplify_index(linear, VarRanges{sizes});
      Sizes part = from_row_major(linear, from);
      std::copy(part.begin(), part.end(), at.begin() + static_cast<long>(g.from_begin));
    }
    return at;
  });
  remember_flattening(op, v, result, groups);
  return result;
}

View permuted(Op& op, const View& v, const std::vector<size_t>& order) {
  Sizes sizes;
  for (size_t d : order) sizes.push_back(v.sizes[d]);
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(v.rank());
    for (size_t i = 0; i < order.size(); ++i) at[order[i]] = c[i];
    return at;
  });
}

View squeezed(Op& op, const View& v, size_t dim) {
  Sizes sizes = v.sizes;
  sizes.erase(sizes.begin() + static_cast<long>(dim));
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at.insert(at.begin() + static_cast<long>(dim), op.pool.index(0));
    return at;
  });
}

View unsqueezed(Op& op, const View& v, size_t dim) {
  Sizes sizes = v.sizes;
  sizes.insert(sizes.begin() + static_cast<long>(dim), op.pool.index(1));
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at.erase(at.begin() + static_cast<long>(dim));
    return at;
  });
}

View sliced(Op& op, const View& v, size_t dim, Expr start, Expr size, int64_t step) {
  Sizes sizes = v.sizes;
  sizes[dim] = size;
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = start + at[dim] * step;
    return at;
  });
}

View reduced(Op& op, const std::string& name, ReduceOp reduce, DType dtype, const View& v, const std::vector<size_t>& dims, bool keep,
             FunctionRef<Expr(Expr, Coordinates)> body) {
  Sizes sizes, domain;
  for (size_t i = 0; i < v.rank(); ++i) {
    const bool gone = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (gone) domain.push_back(v.sizes[i]);
    if (!gone) sizes.push_back(v.sizes[i]);
    if (gone && keep) sizes.push_back(op.pool.index(1));
  }
  return op.rec.reduce(name, reduce, dtype, sizes, domain, [&](Coordinates c, Coordinates r) {
    std::vector<Expr> at;
    size_t next_out = 0, next_reduced = 0;
    for (size_t i = 0; i < v.rank(); ++i) {
      const bool gone = next_reduced < dims.size() && dims[next_reduced] == i;
      at.push_back(gone ? r[next_reduced] : c[next_out]);
      next_reduced += gone;
      next_out += !gone || keep;
    }
    Expr value = op.rec.at(v, at);
    return body ? body(value, at) : value;
  });
}

}  // namespace coil::lowering
