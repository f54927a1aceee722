// A node's arguments, checked.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {

void fail(ErrorCode code, std::string message, std::string hint) { throw LowerError{{code, std::move(message), {}, std::move(hint)}}; }

Op::Op(Session& s, Scope& c, const Node& n)
    : session(s), scope(c), rec(s.recorder), pool(s.recorder.pool()), graph(c.graph), node(n), name(short_name(n.target)) {}

void Op::wrong(std::string_view arg, std::string_view wanted) const {
  fail(ErrorCode::bad_program, fmt::format("{}: argument '{}' is not {}", node.target, arg, wanted));
}

const Argument& Op::argument(std::string_view arg) const {
  const Argument* found = node.find(arg);
  if (!found) fail(ErrorCode::bad_program, fmt::format("{} has no argument '{}'", node.target, arg));
  return *found;
}

const TensorType& Op::out(size_t i) const {
  if (i < outs_.size()) return outs_[i];
  if (i >= node.outputs.size() || !graph.value(node.outputs[i]).is_tensor()) {
    fail(ErrorCode::bad_program, fmt::format("{}: result {} is not a tensor", node.target, i));
  }
  return graph.value(node.outputs[i]).tensor();
}

bool Op::has(std::string_view arg) const {
  const Argument* found = node.find(arg);
  return found && !std::holds_alternative<NoneArg>(*found);
}

View Op::value(ValueId id) const {
  const ValueInfo& info = graph.value(id);
  if (const Expr* e = std::get_if<Expr>(&info.type)) return {DType::i64, {}, pool.cast(*e, DType::i64)};
  const View& v = scope.values[static_cast<size_t>(id.index)];
  if (v.body) return seen_ ? seen_(v) : v;
  std::string producer = info.producer.valid() ? graph.node(info.producer).target : "an input";
  fail(ErrorCode::unsupported_op, fmt::format("{} uses a result of {} that coil does not compute ('{}')", node.target, producer, info.name));
}

View Op::promoted(std::string_view arg, View v) const {
  for (std::string_view names = promoted_; !names.empty();) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == arg) {
      if (v.dtype == promoted_type_) return v;
      if (is_complex(promoted_type_)) return as_complex(v, promoted_type_);
      if (is_float8(promoted_type_)) return encoded(v, promoted_type_);
      if (is_wide_unsigned(promoted_type_)) return as_unsigned(v, promoted_type_);
      return {promoted_type_, v.sizes, as(parts_of(v.body).re, promoted_type_)};
    }
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return v;
}

View Op::tensor(std::string_view arg) const {
  const Argument& a = argument(arg);
  const ValueId* id = std::get_if<ValueId>(&a);
  if (!id || !id->valid()) wrong(arg, "a tensor");
  return promoted(arg, value(*id));
}

std::optional<View> Op::maybe_tensor(std::string_view arg) const {
  const Argument* a = node.find(arg);
  if (!a || std::holds_alternative<NoneArg>(*a)) return std::nullopt;
  if (const ValueId* id = std::get_if<ValueId>(a); id && !id->valid()) return std::nullopt;
  return tensor(arg);
}

Views Op::tensors(std::string_view arg) const {
  Views result;
  for (std::optional<View>& v : maybe_tensors(arg)) {
    if (!v) wrong(arg, "a list of tensors");
    result.push_back(std::move(*v));
  }
  return result;
}

std::vector<std::optional<View>> Op::maybe_tensors(std::string_view arg) const {
  const Argument& a = argument(arg);
  std::vector<std::optional<View>> result;
  if (const auto* sizes = std::get_if<std::vector<Expr>>(&a); sizes && sizes->empty()) return result;
  const auto* list = std::get_if<std::vector<ValueId>>(&a);
  if (!list) wrong(arg, "a list of tensors");
  for (ValueId id : *list) result.push_back(id.valid() ? std::optional<View>(value(id)) : std::nullopt);
  return result;
}

bool Op::is_scalar(std::string_view arg) const {
  const Argument& a = argument(arg);
  const ValueId* id = std::get_if<ValueId>(&a);
  return !id || (id->valid() && !graph.value(*id).is_tensor());
}

View Op::operand(std::string_view arg) const {
  const Argument& a = argument(arg);
  if (const ValueId* id = std::get_if<ValueId>(&a); id && id->valid()) return promoted(arg, value(*id));
  if (const Expr* e = std::get_if<Expr>(&a)) {
    const View v{DType::i64, {}, pool.cast(*e, DType::i64)};
    return promoted(arg, number_seen_ ? number_seen_(v) : v);
  }
  // A Python float keeps its double value until the result's type is known.
  if (const double* d = std::get_if<double>(&a)) return promoted(arg, {DType::f32, {}, pool.constant(*d, DType::f64)});
  if (const bool* b = std::get_if<bool>(&a)) return promoted(arg, {DType::boolean, {}, pool.boolean(*b)});
  if (const auto* z = std::get_if<std::complex<double>>(&a)) {
    return promoted(arg, {DType::c64, {}, joined(Complex{pool.constant(z->real(), DType::f64), pool.constant(z->imag(), DType::f64)})});
  }
  wrong(arg, "a tensor or a number");
}

std::optional<Expr> Op::index_of(const Argument& a) const {
  if (const Expr* e = std::get_if<Expr>(&a)) return *e;
  if (const ValueId* id = std::get_if<ValueId>(&a); id && id->valid()) {
    if (const Expr* e = std::get_if<Expr>(&graph.value(*id).type)) return *e;
  }
  return std::nullopt;
}

bool Op::is_number(std::string_view arg, double value) const {
  const Argument* a = node.find(arg);
  if (!a) return false;
  if (const double* d = std::get_if<double>(a)) return *d == value;
  if (const Expr* e = std::get_if<Expr>(a)) return (*e)->is_constant() && static_cast<double>((*e)->as_int()) == value;
  if (const bool* b = std::get_if<bool>(a)) return static_cast<double>(*b) == value;
  if (const auto* z = std::get_if<std::complex<double>>(a)) return *z == value;
  return false;
}

Expr Op::index(std::string_view arg) const {
  std::optional<Expr> e = index_of(argument(arg));
  if (!e && std::holds_alternative<ValueId>(argument(arg)))
    fail(ErrorCode::unsupported_feature, fmt::format("{}: argument '{}' depends on the values of a tensor", node.target, arg),
         "compute it outside of the model and pass it as an input");
  if (!e) wrong(arg, "an integer");
  return *e;
}

int64_t Op::integer(std::string_view arg) const {
  Expr e = index(arg);
  if (!e->is_constant()) {
    fail(ErrorCode::unsupported_feature, fmt::format("{}: argument '{}' is {}, which is not constant", node.target, arg, to_string(e)));
  }
  return e->as_int();
}

Sizes Op::indices(std::string_view arg) const {
  const Argument& a = argument(arg);
  if (const auto* list = std::get_if<std::vector<Expr>>(&a)) return *list;
  if (const auto* ids = std::get_if<std::vector<ValueId>>(&a); ids && ids->empty()) return {};
  if (std::optional<Expr> e = index_of(a)) return {*e};  // int[1] may be written as one integer
  wrong(arg, "a list of integers");
}

CheckedList<int64_t> Op::integers(std::string_view arg) const {
  std::vector<int64_t> result;
  for (Expr e : indices(arg)) {
    if (!e->is_constant()) {
      fail(ErrorCode::unsupported_feature, fmt::format("{}: argument '{}' holds {}, which is not constant", node.target, arg, to_string(e)));
    }
    result.push_back(e->as_int());
  }
  return result;
}

double Op::number(std::string_view arg) const {
  const Argument& a = argument(arg);
  if (const double* d = std::get_if<double>(&a)) return *d;
  if (const bool* b = std::get_if<bool>(&a)) return *b ? 1.0 : 0.0;
  return static_cast<double>(integer(arg));
}

bool Op::flag(std::string_view arg) const {
  const Argument& a = argument(arg);
  if (const bool* b = std::get_if<bool>(&a)) return *b;
  if (std::holds_alternative<NoneArg>(a)) return false;
  return integer(arg) != 0;
}

std::string Op::text(std::string_view arg) const {
  const std::string* s = std::get_if<std::string>(&argument(arg));
  if (!s) wrong(arg, "a string");
  return *s;
}

std::optional<DType> Op::dtype(std::string_view arg) const {
  const Argument* a = node.find(arg);
  const DType* d = a ? std::get_if<DType>(a) : nullptr;
  if (!d) return std::nullopt;
  return !outs_.empty() && is_wide_unsigned(*d) ? DType::i64 : *d;
}

Views Op::tensors_at(size_t i) const {
  Views result;
  if (const ValueId* id = std::get_if<ValueId>(&node.args.at(i)); id && id->valid()) result.push_back(value(*id));
  if (const auto* list = std::get_if<std::vector<ValueId>>(&node.args.at(i))) {
    for (ValueId id : *list) result.push_back(value(id));
  }
  return result;
}

Expr Op::scalar(std::string_view arg, DType type) const {
  const View v = operand(arg);
  if (is_complex(v.dtype)) fail(ErrorCode::unsupported_feature, fmt::format("{}: argument '{}' is a complex number", node.target, arg));
  return as(v.body, type);
}

}  // namespace coil::lowering
