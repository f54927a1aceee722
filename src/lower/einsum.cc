// einsum of one or two operands: a product with the batch, m, n and k that the letters say.
#include <algorithm>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

// An ellipsis stands for the dimensions that have no letter, aligned at the right: digits name them.
std::string spelled_out(const std::string& letters, size_t rank, size_t longest) {
  const size_t dots = letters.find("...");
  if (dots == letters.npos) return letters;
  const size_t named = letters.size() - 3, count = rank >= named ? rank - named : 0;
  std::string digits;
  for (size_t i = longest - std::min(count, longest); i < longest; ++i) digits += static_cast<char>('0' + i);
  return letters.substr(0, dots) + digits + letters.substr(dots + 3);
}

Equation parse(std::string text) {
  std::erase(text, ' ');
  Equation e;
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  for (size_t begin = 0; begin <= left.size();) {
    const size_t comma = std::min(left.find(',', begin), left.size());
    e.inputs.push_back(left.substr(begin, comma - begin));
    begin = comma + 1;
  }
  if (arrow != text.npos) {
    e.output = text.substr(arrow + 2);
    return e;
  }
  // Implicit: the letters that occur once, in order, after an ellipsis.
  std::string letters = left;
  if (left.find('.') != left.npos) e.output = "...";
  std::erase(letters, '.');
  std::sort(letters.begin(), letters.end());
  for (char c : letters) {
    if (c != ',' && std::count(letters.begin(), letters.end(), c) == 1) e.output += c;
  }
  return e;
}

bool has(const std::string& s, char c) { return s.find(c) != s.npos; }

// v with dimensions in the order of `to`; letters that occur twice take the diagonal.
View arranged(Op& op, const View& v, const std::string& from, const std::string& to) {
  Sizes sizes;
  for (char c : to) sizes.push_back(v.sizes[from.find(c)]);
  return op.rec.view(v, sizes, [&](Coordinates at) {
    std::vector<Expr> result;
    for (char c : from) result.push_back(at[to.find(c)]);
    return result;
  });
}

std::string distinct(const std::string& s) {
  std::string r;
  for (char c : s) {
    if (!has(r, c)) r += c;
  }
  return r;
}

// Sums away the letters that `needed` lacks.
View reduced_to(Op& op, const View& v, std::string& letters, const std::string& needed) {
  const std::string own = distinct(letters);
  View x = arranged(op, v, letters, own);
  std::vector<size_t> dims;
  std::string left;
  for (size_t i = 0; i < own.size(); ++i) {
    if (has(needed, own[i])) left += own[i];
    else dims.push_back(i);
  }
  letters = left;
  if (dims.empty()) return x;
  return reduced(op, "einsum.sum", is_bool(x.dtype) ? ReduceOp::any : ReduceOp::sum, x.dtype, x, dims, false);
}

// One product, with the result's letters in `letters`.
View multiply(Op& op, const View& a_in, const View& b_in, std::string la, std::string lb, const std::string& needed, std::string& letters) {
  View a = reduced_to(op, a_in, la, lb + needed), b = reduced_to(op, b_in, lb, la + needed);
  std::string batch, m, n, k;
  for (char c : la) {
    if (!has(lb, c)) m += c;
    else if (has(needed, c)) batch += c;
    else k += c;
  }
  for (char c : lb) {
    if (!has(la, c)) n += c;
  }
  // Eager adds up no booleans: where letters of one element, or of none, are summed over there is nothing to add.
  const auto summed = [&](auto holds) {
    return std::count_if(k.begin(), k.end(), [&](char c) { return holds(a.sizes[la.find(c)]) || holds(b.sizes[lb.find(c)]); });
  };
  const auto nothing = [](const View& v) { return std::any_of(v.sizes.begin(), v.sizes.end(), [](Expr n) { return is_const(n, 0); }); };
  const bool single = summed([](Expr n) { return is_const(n, 1); }) == std::ssize(k);
  if (is_bool(a.dtype) && !single && !nothing(a) && !nothing(b))
    fail(ErrorCode::unsupported_dtype, "aten.einsum.default takes no products of booleans with a sum over them", "convert the tensors in the model");
  letters = batch + m + n;
  View x = arranged(op, a, la, batch + m + k), y = arranged(op, b, lb, batch + k + n);
  auto size_of = [&](const std::string& s, const View& v, const std::string& order) {
    Sizes sizes;
    for (char c : s) sizes.push_back(v.sizes[order.find(c)]);
    return sizes;
  };
  Sizes kn = size_of(k, x, batch + m + k), nn = size_of(n, y, batch + k + n), mm = size_of(m, x, batch + m + k);
  Sizes sizes = size_of(batch, x, batch + m + k), xs = sizes, ys = sizes;
  for (Expr s : mm) xs.push_back(s);
  xs.push_back(count(op.pool, kn));
  ys.push_back(count(op.pool, kn));
  ys.push_back(count(op.pool, nn));
  View product = matrix_product(op, "einsum", a.dtype, reshaped(op, x, xs), reshaped(op, y, ys), batch.size());
  sizes.insert(sizes.end(), mm.begin(), mm.end());
  sizes.insert(sizes.end(), nn.begin(), nn.end());
  return reshaped(op, product, sizes);
}

// A dimension of size 1 that another operand has in full is one that this operand lacks.
void squeeze_ones(Op& op, Views& operands, Equation& e) {
  auto full = [&](char letter) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const size_t at = e.inputs[i].find(letter);
      if (at < operands[i].rank() && at != std::string::npos && !is_const(operands[i].sizes[at], 1)) return true;
    }
    return false;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t k = std::min(e.inputs[i].size(), operands[i].rank()); k-- > 0;) {
      if (!is_const(operands[i].sizes[k], 1) || !full(e.inputs[i][k])) continue;
      operands[i] = squeezed(op, operands[i], k);
      e.inputs[i].erase(k, 1);
    }
  }
}

Views einsum(Op& op) {
  Equation e = parse(op.text("equation"));
  Views operands = op.tensors("tensors");
  if (operands.size() != e.inputs.size() || operands.empty()) fail(ErrorCode::bad_program, "einsum: operands and equation do not match");
  size_t longest = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t named = e.inputs[i].find('.') == std::string::npos ? operands[i].rank() : e.inputs[i].size() - 3;
    if (named <= operands[i].rank()) longest = std::max(longest, operands[i].rank() - named);
  }
  if (longest > 9) fail(ErrorCode::unsupported_feature, "einsum: an ellipsis for more than nine dimensions");
  for (size_t i = 0; i < operands.size(); ++i) {
    e.inputs[i] = spelled_out(e.inputs[i], operands[i].rank(), longest);
    operands[i] = converted(op, operands[i], op.out().dtype);
  }
  e.output = spelled_out(e.output, e.output.size() - (e.output.find('.') == std::string::npos ? 0 : 3) + longest, longest);
  squeeze_ones(op, operands, e);
  View result = operands[0];
  std::string letters = e.inputs[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].rank() != e.inputs[i].size()) fail(ErrorCode::bad_program, "einsum: operands and equation do not match");
  }
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string needed = e.output;
    for (size_t j = i + 1; j < operands.size(); ++j) needed += e.inputs[j];
    result = multiply(op, result, operands[i], letters, e.inputs[i], needed, letters);
  }
  result = reduced_to(op, result, letters, e.output);
  return {reshaped(op, arranged(op, result, letters, e.output), op.out().sizes)};
}

}  // namespace

void add_einsum(Table& table) { table["aten.einsum.default"] = einsum; }

}  // namespace coil::lowering
