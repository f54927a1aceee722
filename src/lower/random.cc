// Random numbers: Philox4x32-10, a function of (element, operator, call, seed). The seed and the number of the call are a state of
// the model, written back by each call; so results differ from call to call, repeat after a reset, and need no order of evaluation.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lower/constant_table.h"
#include "lower/data_checks.h"
#include "lower/formula.h"
#include "lower/regions.h"

namespace coil::lowering {
namespace {

constexpr int64_t kSeed = 0x5eed0fc0175eed;  // until somebody writes another to the state

Val bits_and(Val a, Val b) { return apply(ScalarOp::bit_and, a, b); }
Val right(Val a, int64_t bits) { return apply(ScalarOp::shr, a, a.like(static_cast<double>(bits))); }
Val low_word(Val a) { return bits_and(a, a.like(4294967295.0)); }

// Words of 32 bits, each in an i64.
using Words = std::array<Val, 4>;

Words philox(Val key, Val counter, Val stream) {
  const std::vector<Expr> operands = {key.e, counter.e, stream.e};
  const Val low(key.e->pool->op(ScalarOp::philox_low, operands)), high(key.e->pool->op(ScalarOp::philox_high, operands));
  return {low_word(low), low_word(right(low, 32)), low_word(high), low_word(right(high, 32))};
}

// The numbers of one operator.
class Random {
 public:
  explicit Random(Op& op) : op_(op) {
    Session* first = &op.session;
    for (; first->around; first = &first->around->outer()) {
      if (first->in_loop) fail(ErrorCode::unsupported_feature, op.node.target + ": random numbers inside of a loop", "draw them before the loop");
    }
    stream_ = stream(op.session, first->random_operators++);
    find_state(op.session);
  }

  // The operator's number is read from a constant: the kernels of a program's operators (a model's dropouts) then have the same text, and compile once.
  static View stream(Session& session, int64_t number) {
    if (session.around) return session.around->capture(stream(session.around->outer(), number));
    return session.recorder.constant(fmt::format("coil.random.operator_{}", number), table_data<int64_t>({1}, {number}));
  }

  static void find_state(Session& session) {
    View& state = session.random_state;
    if (state.body) return;
    if (session.around) {
      Session& outer = session.around->outer();
      find_state(outer);
      state = session.around->capture(outer.random_state);
      return;
    }
    state = session.recorder.state("coil.random", table_data<int64_t>({2}, {kSeed, 0}));
  }

  Words words(Coordinates c, const Sizes& sizes) const {
    ExprPool& p = op_.pool;
    auto value = [&](const View& v, int64_t i) { return Val(op_.rec.at(v, std::vector<Expr>{p.index(i)})); };
    const View& state = op_.session.random_state;
    const Val element = p.cast(row_major(p, c, sizes), DType::i64), number = value(stream_, 0);
    return philox(value(state, 0), element, apply(ScalarOp::bit_or, low_word(value(state, 1)), apply(ScalarOp::shl, number, number.like(32))));
  }

  // In [0, 1), with as many bits as the type holds.
  Val uniform(Coordinates c, const Sizes& sizes, DType type) const {
    const Words w = words(c, sizes);
    if (type == DType::f64) return Val(as((w[0] * 2097152.0 + right(w[1], 11)).e, DType::f64)) * std::ldexp(1.0, -53);
    const int drop = type == DType::f32 ? 8 : type == DType::f16 ? 21 : 24;
    return Val(as(right(w[0], drop).e, DType::f32)) * std::ldexp(1.0, drop - 32);
  }

  // In (0, 1), never an end.
  Val inner(Coordinates c, const Sizes& sizes, size_t word = 0) const { return (Val(as(words(c, sizes)[word].e, DType::f64)) + 0.5) * std::ldexp(1.0, -32); }

  // By Box and Muller.
  Val normal(Coordinates c, const Sizes& sizes, DType type) const {
    const Words w = words(c, sizes);
    if (type == DType::f64) {
      auto fraction = [](Val high, Val low) { return (Val(as((high * 2097152.0 + right(low, 11)).e, DType::f64)) + 0.5) * std::ldexp(1.0, -53); };
      return sqrt(-2.0 * log(fraction(w[0], w[1]))) * cos(fraction(w[2], w[3]) * (2 * kPi));
    }
    Val radius = (Val(as(w[0].e, DType::f32)) + 1.0) * std::ldexp(1.0, -32), turn = Val(as(w[1].e, DType::f32)) * std::ldexp(1.0, -32);
    return sqrt(-2.0 * log(min(radius, 1.0))) * cos(turn * (2 * kPi));
  }

  // Whole numbers in [0, range)
  Val whole(Coordinates c, const Sizes& sizes, Val range) const { return remainder(large(c, sizes), range); }
  // 63 bits
  Val large(Coordinates c, const Sizes& sizes) const {
    const Words w = words(c, sizes);
    return w[0] * 2147483648.0 + right(w[1], 1);
  }

 private:
  Op& op_;
  View stream_;
};

DType accurate(DType type) { return is_complex(type) ? part_type(type) : is_float(type) ? type : DType::f32; }

using Element = std::function<Val(const Random&, Coordinates, const Sizes&)>;

// A tensor like the node's result, a formula for each element.
Views filled(Op& op, const Element& element) {
  const Random random(op);
  const TensorType& out = op.out();
  Sizes sizes = out.sizes;
  if (is_complex(out.dtype)) sizes.push_back(op.pool.index(2));  // a number of its own for each part
  const DType type = is_complex(out.dtype) ? part_type(out.dtype) : out.dtype;
  const View numbers = op.rec.pointwise(op.name, type, sizes, [&](Coordinates c) { return as(element(random, c, sizes).e, type); });
  return {is_complex(out.dtype) ? complex_of_pairs(numbers) : numbers};
}

Views uniform_between(Op& op, double from, double to) {
  const DType type = accurate(op.out().dtype);
  return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return r.uniform(c, s, type) * (to - from) + from; });
}

// mean + std * a normal number; both may be tensors. Of complex numbers both parts vary, half as much each, around the same mean.
Views normal(Op& op, std::string_view mean, std::string_view deviation, bool exponential = false) {
  const DType type = accurate(op.out().dtype);
  if (!deviation.empty() && !op.is_scalar(deviation)) {
    const View spread = op.tensor(deviation);
    require(op, spread.sizes, "normal expects all elements of std >= 0.0", [&](Coordinates c) { return (Val(as(op.rec.at(spread, c), type)) >= 0.0).e; });
  }
  auto value = [&](std::string_view arg, double otherwise, Coordinates c) {
    return arg.empty() ? Val(op.constant(otherwise, type)) : Val(as(read(op.operand(arg), c), type));
  };
  return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) {
    if (is_complex(op.out().dtype)) {
      return r.normal(c, s, type) * value(deviation, 1, {}) * std::sqrt(0.5) + value(mean, 0, {});
    }
    Val n = r.normal(c, s, type) * value(deviation, 1, c) + value(mean, 0, c);
    return exponential ? exp(n) : n;
  });
}

Views whole_numbers(Op& op) {
  ExprPool& p = op.pool;
  auto bound = [&](const char* arg) { return as(reshaped(op, op.operand(arg), {}).body, DType::i64); };
  Val low = op.has("low") ? bound("low") : p.constant_int(0, DType::i64), range = Val(bound("high")) - low;
  return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return r.whole(c, s, range) + low; });
}

// random_(from, to): without ends, up to the largest number that the type holds without gaps.
Views any_numbers(Op& op) {
  const DType type = op.out().dtype;
  const int digits = type == DType::f64    ? 53
                     : type == DType::f32  ? 24
                     : type == DType::f16  ? 11
                     : type == DType::bf16 ? 8
                     : is_bool(type)       ? 1
                                           : byte_size(type) * 8 - (type == DType::u8 ? 0 : 1);
  const int64_t low = op.node.find("from") ? op.integer("from") : 0;
  ExprPool& p = op.pool;
  return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) {
    if (op.has("to")) return r.whole(c, s, p.constant_int(op.integer("to") - low, DType::i64)) + Val(p.constant_int(low, DType::i64));
    if (digits >= 63) return r.large(c, s);
    return r.whole(c, s, p.constant_int((int64_t{1} << digits) + is_float(type), DType::i64)) + Val(p.constant_int(low, DType::i64));
  });
}

Views bernoulli(Op& op) {
  const View x = op.tensor("self");
  const View share = op.node.find("p") ? op.operand("p") : x;
  const Expr known = as(share.body, DType::f64);
  if (!known->is_constant() || !(known->as_double() >= 0 && known->as_double() <= 1)) {
    require(op, share.sizes, "expected probabilities between 0 and 1", [&](Coordinates c) {
      const Val p = as(op.rec.at(share, c), DType::f64);
      return both(p >= 0.0, p <= 1.0).e;
    });
  }
  return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return r.inner(c, s) < Val(as(read(share, c), DType::f64)); });
}

bool is_training(const Op& op) {
  const char* arg = op.node.find("train") ? "train" : "training";
  return !op.has(arg) ? op.name == "native_dropout" : op.flag(arg);
}

// Keeps an element with probability 1 - p; where `channels`, those of a channel share their fate; alpha: keeps mean and variance.
Views dropout(Op& op, bool channels, bool alpha) {
  View x = op.tensor(op.has("input") ? "input" : "self");
  const double p = op.number("p");
  const bool two = op.node.outputs.size() > 1;
  if (p < 0 || p > 1) fail(ErrorCode::bad_program, op.node.target + ": the probability is not in [0, 1]");
  if (p == 0 || !is_training(op)) {
    if (two) return {x, View{op.out(1).dtype, x.sizes, as(op.pool.boolean(true), op.out(1).dtype)}};
    return {x};
  }
  const DType type = compute_type(op.out().dtype);
  Sizes fate = x.sizes;
  if (channels) fate.resize(std::min<size_t>(fate.size(), 2));
  View kept = dropout_mask(op, fate, p);
  View y = op.rec.pointwise(op.name, op.out().dtype, x.sizes, [&](Coordinates c) {
    Val v = as(op.rec.at(x, c), type), keep = as(op.rec.at(kept, c.first(fate.size())), type);
    if (p == 1) return (v * 0.0).e;
    if (!alpha) return (v * (keep * (1 / (1 - p)))).e;
    const double scale = 1.7580993408473766, a = 1 / std::sqrt((scale * scale * p + 1) * (1 - p));
    return (v * (keep * a) + ((keep - 1.0) * (scale * a) + scale * a * p)).e;
  });
  if (two) return {y, converted(op, kept, op.out(1).dtype)};
  return {y};
}

// Negative elements times a random slope in training, else the mean slope.
Views rrelu(Op& op, bool with_noise) {
  View x = op.tensor("self");
  const double lower = op.number("lower"), upper = op.number("upper");
  const DType type = compute_type(op.out().dtype);
  const bool training = op.flag("training");
  View slope{op.out().dtype, x.sizes, op.constant((lower + upper) / 2, type)};
  if (training) {
    const Random random(op);
    slope = op.rec.pointwise("rrelu.slope", op.out().dtype, x.sizes, [&](Coordinates c) {
      Val v = as(op.rec.at(x, c), type);
      return select(v <= 0.0, Val(as((random.inner(c, x.sizes) * (upper - lower) + lower).e, type)), v.like(1)).e;
    });
  }
  View y = op.rec.pointwise("rrelu", op.out().dtype, x.sizes, [&](Coordinates c) {
    Val v = as(op.rec.at(x, c), type);
    return select(training ? v <= 0.0 : v < 0.0, v * Val(op.rec.at(slope, c)), v).e;
  });
  if (with_noise) return {y, slope};
  return {y};
}

// With replacement by the running sum of the weights; without: the largest weight / exponential number first.
Views multinomial(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const bool single = x.rank() == 1;
  if (single) x = unsqueezed(op, x, 0);
  Expr n = x.sizes[1], samples = out.sizes.back();
  ExprPool& p = op.pool;
  const auto weight = [&](Coordinates c) { return Val(as(op.rec.at(x, c), DType::f64)); };
  require(op, x.sizes, "probability tensor contains either `inf`, `nan` or element < 0",
          [&](Coordinates c) { return both(weight(c) >= 0.0, weight(c) < std::numeric_limits<double>::infinity()).e; });
  const View total = op.rec.reduce("multinomial.total", ReduceOp::sum, DType::f64, {x.sizes[0]}, {n},
                                   [&](Coordinates c, Coordinates k) { return weight(std::vector<Expr>{c[0], k[0]}).e; });
  require(op, {x.sizes[0]}, "invalid multinomial distribution (sum of probabilities <= 0)", [&](Coordinates c) { return (Val(op.rec.at(total, c)) > 0.0).e; });
  const Random random(op);
  View result;
  if (op.flag("replacement")) {
    View sums = op.rec.scan("multinomial.sums", ScanOp::sum, DType::f64, x.sizes, 1, [&](Coordinates c) { return as(op.rec.at(x, c), DType::f64); });
    const Sizes sizes{x.sizes[0], samples};
    View before = op.rec.reduce("multinomial.count", ReduceOp::sum, DType::i64, sizes, {n}, [&](Coordinates c, Coordinates k) {
      Val mark = random.inner(c, sizes) * Val(op.rec.at(sums, std::vector<Expr>{c[0], n - 1}));
      return p.cast((Val(op.rec.at(sums, std::vector<Expr>{c[0], k[0]})) <= mark).e, DType::i64);
    });
    result = op.rec.pointwise("multinomial", out.dtype, sizes, [&](Coordinates c) { return min(Val(op.rec.at(before, c)), Val(p.cast(n - 1, DType::i64))).e; });
  } else {
    View keys = op.rec.pointwise("multinomial.keys", DType::f64, x.sizes,
                                 [&](Coordinates c) { return (Val(as(op.rec.at(x, c), DType::f64)) / -log(random.inner(c, x.sizes))).e; });
    result = op.rec.sort("multinomial", keys, 1, samples, true).second;
  }
  return {single ? squeezed(op, result, 0) : result};
}

Views randperm(Op& op) {
  const TensorType& out = op.out();
  const Random random(op);
  View keys = op.rec.pointwise("randperm.keys", DType::i64, out.sizes, [&](Coordinates c) { return random.large(c, out.sizes).e; });
  return {converted(op, op.rec.sort("randperm", keys, 0, out.sizes.at(0), false).second, out.dtype)};
}

void add_distributions(Table& table) {
  table["aten.exponential.default"] = [](Op& op) {
    const double rate = op.number("lambd");
    return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return -log(r.inner(c, s)) / rate; });
  };
  table["aten.cauchy.default"] = [](Op& op) {
    const double median = op.number("median"), sigma = op.number("sigma");
    return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return tan((r.inner(c, s) - 0.5) * kPi) * sigma + median; });
  };
  table["aten.geometric.default"] = [](Op& op) {
    const double p = op.number("p");
    return filled(op, [&](const Random& r, Coordinates c, const Sizes& s) { return ceil(log(r.inner(c, s)) * (1 / std::log1p(-p))); });
  };
  table["aten.log_normal.default"] = [](Op& op) { return normal(op, "mean", "std", true); };
  for (const char* overload : {"normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "normal.float_float", "normal_functional.default"}) {
    table[std::string("aten.") + overload] = [](Op& op) { return normal(op, "mean", "std"); };
  }
  table["aten.uniform.default"] = [](Op& op) { return uniform_between(op, op.number("from"), op.number("to")); };
  for (const char* overload : {"default", "from", "to"}) table[std::string("aten.random.") + overload] = any_numbers;
  for (const char* overload : {"default", "p", "Tensor"}) table[std::string("aten.bernoulli.") + overload] = bernoulli;
  table["aten.multinomial.default"] = multinomial;
}

}  // namespace

void add_random(Table& table) {
  for (const char* name : {"rand.default", "rand.generator", "rand_like.default", "rand_like.generator"}) {
    table[std::string("aten.") + name] = [](Op& op) { return uniform_between(op, 0, 1); };
  }
  for (const char* name : {"randn.default", "randn.generator", "randn_like.default", "randn_like.generator"}) {
    table[std::string("aten.") + name] = [](Op& op) { return normal(op, "", ""); };
  }
  for (const char* name : {"randint.default", "randint.low", "randint.generator", "randint.low_generator", "randint_like.default", "randint_like.low_dtype",
                           "randint_like.Tensor", "randint_like.generator", "randint_like.low_generator_dtype"}) {
    table[std::string("aten.") + name] = whole_numbers;
  }
  for (const char* name : {"randperm.default", "randperm.generator"}) table[std::string("aten.") + name] = randperm;
  for (const char* target : {"aten.dropout.default", "aten.native_dropout.default"}) table[target] = [](Op& op) { return dropout(op, false, false); };
  table["aten.feature_dropout.default"] = [](Op& op) { return dropout(op, true, false); };
  table["aten.alpha_dropout.default"] = [](Op& op) { return dropout(op, false, true); };
  table["aten.feature_alpha_dropout.default"] = [](Op& op) { return dropout(op, true, true); };
  table["aten.rrelu.default"] = [](Op& op) { return rrelu(op, false); };
  table["aten.rrelu_with_noise_functional.default"] = [](Op& op) { return rrelu(op, true); };
  add_distributions(table);
}

View dropout_mask(Op& op, const Sizes& sizes, double p) {
  const Random random(op);
  return op.rec.pointwise(op.name + ".mask", DType::boolean, sizes, [&](Coordinates c) { return (random.inner(c, sizes) >= p).e; });
}

void add_random_update(Session& session) {
  if (!static_cast<bool>(session.random_state.body)) return;
  Recorder& rec = session.recorder;
  const View& state = session.random_state;
  View next = rec.pointwise("random.next", DType::i64, state.sizes, [&](Coordinates c) {
    Expr is_call = rec.pool().op(ScalarOp::eq, {c[0], rec.pool().index(1)});
    return rec.pool().op(ScalarOp::add, {rec.at(state, c), rec.pool().cast(is_call, DType::i64)});
  });
  LoopOutput write;
  write.kind = LoopOutput::Kind::state_write;
  write.name = "coil.random";
  write.source = BufferId(next.body->id);
  write.target = BufferId(state.body->id);
  rec.program().outputs.push_back(std::move(write));
}

}  // namespace coil::lowering
