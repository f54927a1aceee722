#include "codegen/cuda/images.h"

#include <set>

#include <fmt/format.h>

#include "codegen/foreign_text.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"

namespace coil::cuda {
namespace {

using Param = UserImage::Param;

struct Place {
  BufferId buffer;
  Expr begin;  // in elements
};

class Arguments {
 public:
  Arguments(const KernelPlan& plan, const UserCallKernel& k) : plan_(plan), k_(k) {}

  Place place(const Param& p) const {
    const UserKernel& kernel = *k_.def.kernel;
    Place found{{}, plan_.pool->index(0)};
    for (int i = 0; i < kernel.returns; ++i) {
      if (kernel.result_name(i) == p.name) found.buffer = k_.results[static_cast<size_t>(i)];
    }
    if (!found.buffer.valid()) {
      const size_t i = number(p.name);
      const size_t rank = std::get<UserCall::Tensor>(k_.def.args[i]).sizes.size();
      found.buffer = k_.operands[i].buffer;
      found.begin = substitute_vars(k_.operands[i].offset, std::vector<Expr>(rank, plan_.pool->index(0)));
    }
    if (!p.begin.empty()) found.begin = found.begin + integer(p.begin);
    return found;
  }

  // What the address is, given that of its buffer.
  std::string address(const Param& p, const std::function<std::string(BufferId)>& of) const {
    const Place x = place(p);
    const std::string base = of(x.buffer);
    if (x.begin == plan_.pool->index(0)) return fmt::format("(void*)({})", base);
    return fmt::format("(void*)((char*)({}) + {})", base, host_index(x.begin * byte_size(plan_.buffer(x.buffer).info.dtype)));
  }

  Expr integer(const std::string& name) const { return std::get<Expr>(k_.def.args[number(name)]); }

  std::string number_text(const Param& p) const {
    const UserCall::Argument& a = k_.def.args[number(p.name)];
    if (const auto* b = std::get_if<bool>(&a)) return *b ? "1" : "0";
    if (const auto* f = std::get_if<double>(&a)) return float_text(*f);
    return host_index(std::get<Expr>(a));
  }

 private:
  size_t number(const std::string& name) const {
    const auto& args = k_.def.kernel->args;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].name == name) return i;
    }
    CHECK(false, "an image's parameter that was not checked");
    return 0;
  }

  static std::string float_text(double v) {
    if (v != v) return "__builtin_nan(\"\")";
    if (v - v != 0) return v < 0 ? "-__builtin_inf()" : "__builtin_inf()";
    return fmt::format("(double){}", v);
  }

  const KernelPlan& plan_;
  const UserCallKernel& k_;
};

const char* type_of(Param::Kind kind) {
  switch (kind) {
    case Param::Kind::i1:
    case Param::Kind::i8: return "int8_t";
    case Param::Kind::i16: return "int16_t";
    case Param::Kind::i32: return "int32_t";
    case Param::Kind::i64: return "int64_t";
    case Param::Kind::f32: return "float";
    case Param::Kind::f64: return "double";
    default: return "void*";
  }
}

bool is_multiple_of(Expr e, int64_t divisor) { return floor_mod(e, e->pool->index(divisor)) == e->pool->index(0); }

int bits_of(Param::Kind kind) { return kind == Param::Kind::i8 ? 8 : kind == Param::Kind::i16 ? 16 : kind == Param::Kind::i32 ? 32 : 0; }

}  // namespace

std::string image_condition(const KernelPlan& plan, const UserCallKernel& kernel, const UserImage& image) {
  const Arguments arguments(plan, kernel);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " && ") + part; };
  for (const Param& p : image.params) {
    if (!image.aligned || p.kind != Param::Kind::pointer) continue;
    const Place x = arguments.place(p);
    const Placement::Kind where = plan.buffer(x.buffer).placement.kind;
    const Expr bytes = x.begin * byte_size(plan.buffer(x.buffer).info.dtype);
    const bool known = where == Placement::Kind::arena && is_multiple_of(bytes, 16);
    if (!known) add(fmt::format("aligned({}, 16)", arguments.address(p, [&](BufferId id) { return buffer_address(plan, id); })));
  }
  for (const std::string& name : image.divisible) {
    if (!is_multiple_of(arguments.integer(name), 16)) add(fmt::format("({}) % 16 == 0", host_index(arguments.integer(name))));
  }
  return text;
}

ImageParams image_params(const KernelPlan& plan, const UserCallKernel& kernel, const UserImage& image, const std::function<std::string(BufferId)>& address,
                         const std::string& indent) {
  const Arguments arguments(plan, kernel);
  ImageParams out;
  std::string list;
  for (const Param& p : image.params) {
    const std::string type = type_of(p.kind);
    const std::string value = p.kind == Param::Kind::null      ? "nullptr"
                              : p.kind == Param::Kind::pointer ? arguments.address(p, address)
                                                               : fmt::format("({})({})", type, arguments.number_text(p));
    out.text += fmt::format("{}const {} p{} = {};\n", indent, type == "void*" ? "void* const" : type, out.count, value);
    list += fmt::format("{}{{&p{}, sizeof p{}}}", out.count ? ", " : "", out.count, out.count);
    ++out.count;
  }
  if (out.count == 0) list = "{nullptr, 0}";
  out.text += fmt::format("{}const cd::CudaParam params[] = {{{}}};\n", indent, list);
  return out;
}

std::string image_checks(const UserCallKernel& kernel, const std::string& label) {
  const UserKernel& k = *kernel.def.kernel;
  std::set<std::pair<std::string, int>> seen;
  std::string text;
  for (const UserImage& image : k.cuda->images) {
    for (const Param& p : image.params) {
      const int bits = bits_of(p.kind);
      if (bits == 0 || !seen.insert({p.name, bits}).second) continue;
      for (size_t i = 0; i < k.args.size(); ++i) {
        const auto* e = std::get_if<Expr>(&kernel.def.args[i]);
        const int64_t most = (int64_t{1} << (bits - 1)) - 1;
        if (k.args[i].name != p.name || !e) continue;
        const auto low = lower_bound(*e), high = upper_bound(*e);
        if (low && high && *low >= -most - 1 && *high <= most) continue;
        text += fmt::format(
            "    if (({0}) != (int{1}_t)({0})) return cd::fail(error, {2}, \"%s\", {3});\n", host_index(*e), bits, static_cast<int>(ErrorCode::input_size),
            message_literal(fmt::format("kernel {} takes '{}' as a number of {} bits, which is not enough: the inputs are too large", label, p.name, bits)));
      }
    }
  }
  return text;
}

}  // namespace coil::cuda
