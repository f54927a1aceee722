#include "sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expr/estimate.h"
#include "expr/parse.h"
#include "expr/sum.h"

namespace coil::tool {
namespace {

constexpr int64_t kTypicalSize = 8;

Error bad(std::string message) { return Error{ErrorCode::bad_package, "data/coil/manifest.json: " + std::move(message), "", "compile the program again"}; }

// The expression code trusts its input, but a package's text may divide by zero: its CHECKs are the package's fault here.
template <class F>
auto guarded(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const InternalError& e) {
    return bad(fmt::format("a size cannot be evaluated ({})", e.what()));
  }
}

}  // namespace

bool is_internal(const Json& symbol) { return symbol.value("export_name", "").starts_with("coil."); }

Result<Sizes> Sizes::read(const Json& manifest) {
  Sizes sizes;
  for (const Json& row : manifest.value("symbols", Json::array())) {
    DynamicSize s;
    s.name = row.at("name").get<std::string>();
    if (row.contains("min")) s.min = integer(row["min"]);
    if (row.contains("max") && !row["max"].is_null()) s.max = integer(row["max"]);
    s.from_data = row.value("from_data", false);
    s.internal = is_internal(row);
    sizes.pool_->add_symbol({s.name, s.name, s.min, s.max});
    sizes.symbols_.push_back(std::move(s));
  }
  sizes.pool_->add_symbol({"workers", "workers", 1, INT64_MAX});
  for (const DynamicSize& s : sizes.symbols_) sizes.values_.push_back(s.internal ? std::max<int64_t>(s.min, 0) : -1);
  return sizes;
}

int Sizes::index_of(const std::string& name) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Status Sizes::set(const std::string& name, int64_t value) {
  const int i = index_of(name);
  if (i < 0 || symbols_[static_cast<size_t>(i)].internal) {
    std::string known;
    for (const DynamicSize& s : symbols_) known += s.internal ? "" : (known.empty() ? "" : ", ") + s.name;
    return Error{ErrorCode::bad_dimension, fmt::format("the model has no dynamic dimension '{}'", name), "",
                 known.empty() ? "all of its sizes are fixed" : "its dynamic dimensions: " + known};
  }
  const DynamicSize& s = symbols_[static_cast<size_t>(i)];
  if (value < s.min || value > s.max) {
    const std::string range = s.max == INT64_MAX ? fmt::format("at least {}", s.min) : fmt::format("from {} to {}", s.min, s.max);
    return Error{ErrorCode::input_size, fmt::format("{} = {} is out of range: it must be {}", name, value, range), "", ""};
  }
  values_[static_cast<size_t>(i)] = value;
  return ok_status();
}

void Sizes::learn(const Json& shape, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < std::min(shape.size(), sizes.size()); ++d) {
    if (!shape[d].is_string()) continue;
    if (const int i = index_of(shape[d].get<std::string>()); i >= 0) values_[static_cast<size_t>(i)] = sizes[d];
  }
}

std::map<std::string, int64_t> Sizes::fill_defaults() {
  std::map<std::string, int64_t> filled;
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (values_[i] >= 0) continue;
    values_[i] = std::max(std::min(symbols_[i].max, kTypicalSize), symbols_[i].min);
    if (symbols_[i].of_inputs()) filled[symbols_[i].name] = values_[i];
  }
  return filled;
}

Result<Expr> Sizes::parse(const Json& size) {
  if (size.is_number_integer()) return pool_->index(size.get<int64_t>());
  if (!size.is_string()) return bad("a size is neither a number nor an expression");
  const std::string text = size.get<std::string>();
  TRY(const Expr e, parse_expr(*pool_, text));
  if (e->dtype != DType::index) return bad(fmt::format("'{}' is no size", text));
  return e;
}

Result<int64_t> Sizes::evaluate(const Json& size) {
  if (size.is_number_integer()) return size.get<int64_t>();
  return guarded([&]() -> Result<int64_t> {
    TRY(const Expr e, parse(size));
    std::string unknown;
    const auto symbol = [&](SymbolId id) {
      const size_t i = static_cast<size_t>(id.index);
      if (i == values_.size()) return workers_;
      if (values_[i] < 0) unknown = symbols_[i].name;
      return values_[i];
    };
    const double about = estimate_index(e, [&](SymbolId id) { return static_cast<double>(symbol(id)); });
    if (unknown.empty() && !(std::abs(about) < 0x1p62))
      return Error{ErrorCode::out_of_memory, fmt::format("{} is about {:.3g}, more than any memory holds", size.get<std::string>(), about), "",
                   "choose smaller sizes"};
    const int64_t value = evaluate_index(e, symbol);
    if (!unknown.empty()) return bad(fmt::format("'{}' depends on '{}', which is not known", size.get<std::string>(), unknown));
    return value;
  });
}

Result<Expr> Sizes::bytes_of(const Json& tensors) {
  std::vector<Expr> all;
  for (const Json& t : tensors) {
    const std::optional<DType> dtype = dtype_from_name(t.at("dtype").get<std::string>());
    if (!dtype) return bad("unknown dtype");
    Expr bytes = pool_->index(byte_size(*dtype));
    for (const Json& size : t.at("shape")) {
      TRY(const Expr e, parse(size));
      bytes = bytes * e;
    }
    all.push_back(bytes);
  }
  return sum(*pool_, std::move(all));
}

Result<std::string> Sizes::bytes_text(const Json& tensors) {
  return guarded([&]() -> Result<std::string> {
    TRY(const Expr e, bytes_of(tensors));
    return to_string(e);
  });
}

Result<std::string> Sizes::sum_text(const std::vector<Json>& sizes) {
  return guarded([&]() -> Result<std::string> {
    std::vector<Expr> all;
    for (const Json& size : sizes) {
      TRY(const Expr e, parse(size));
      all.push_back(e);
    }
    return to_string(sum(*pool_, std::move(all)));
  });
}

Result<std::vector<int64_t>> Sizes::evaluate_all(const Json& sizes) {
  std::vector<int64_t> values;
  for (const Json& size : sizes) {
    TRY(const int64_t value, evaluate(size));
    values.push_back(value);
  }
  return values;
}

}  // namespace coil::tool
