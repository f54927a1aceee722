#include "codegen/user_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/hash.h"
#include "codegen/foreign_text.h"
#include "codegen/index_text.h"

namespace coil {
namespace {

std::string element_type(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "bool";
    case DType::f16: return "coil::float16";
    case DType::bf16: return "coil::bfloat16";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::u8: return "uint8_t";
    case DType::i8: return "int8_t";
    case DType::i16: return "int16_t";
    case DType::i32: return "int32_t";
    default: return "int64_t";
  }
}

std::string tensor_type(DType dtype, size_t rank, bool writes) {
  return fmt::format("coil::Tensor<{}{}, {}>", writes ? "" : "const ", element_type(dtype), rank);
}

std::string number_text(double v) {
  if (v != v) return "__builtin_nan(\"\")";
  if (v - v != 0) return v < 0 ? "(-__builtin_inf())" : "__builtin_inf()";
  const std::string text = fmt::format("{}", v);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

class Writer {
 public:
  Writer(const KernelPlan& plan, const UserCallKernel& k) : plan_(plan), k_(k) {}

  UserText run(const UserKernelCode& code, size_t config, const std::string& more) {
    for (const auto& [name, value] : kernel().configs[config]) {
      text_.constants += fmt::format("#define {} {}\n", name, value < 0 ? fmt::format("({})", value) : std::to_string(value));
      text_.undefine += fmt::format("#undef {}\n", name);
    }
    text_.source = line_directive(code.file) + code.source + "\n" + line_directive("coil's call of " + kernel().name);
    text_.call = "::" + code.entry + "(";
    size_t written = static_cast<size_t>(kernel().returns);
    for (size_t i = 0; i < kernel().args.size(); ++i) {
      const UserKernelArg& a = kernel().args[i];
      argument(a, k_.def.args[i], a.written ? PlanOperand{k_.results[written], Expr()} : k_.operands[i]);
      written += a.written;
    }
    for (int i = 0; i < kernel().returns; ++i) result(kernel().result_name(i), k_.results[static_cast<size_t>(i)]);
    text_.call += more + ")";
    return std::move(text_);
  }

 private:
  const UserKernel& kernel() const { return *k_.def.kernel; }

  void pass(const std::string& name) { text_.call += (text_.call.ends_with("(") ? "arg_" : ", arg_") + name; }

  void argument(const UserKernelArg& a, const UserCall::Argument& value, const PlanOperand& operand) {
    pass(a.name);
    std::string type, initial;
    if (const auto* t = std::get_if<UserCall::Tensor>(&value)) {
      if (a.written) return result(a.name, operand.buffer, false);
      return tensor(a.name, operand, t->sizes);
    }
    if (const auto* e = std::get_if<Expr>(&value)) type = "int64_t", initial = host_index(*e);
    if (const auto* f = std::get_if<double>(&value)) type = "double", initial = number_text(*f);
    if (const auto* b = std::get_if<bool>(&value)) type = "bool", initial = *b ? "true" : "false";
    if (const auto* list = std::get_if<std::vector<Expr>>(&value)) {
      type = fmt::format("coil::IntList<{}>", list->size());
      for (Expr e : *list) initial += (initial.empty() ? "" : ", ") + host_index(e);
      initial = "{{" + initial + "}}";
    }
    text_.arguments += fmt::format("  const {} arg_{} = {};\n", type, a.name, initial);
  }

  void tensor(const std::string& name, const PlanOperand& operand, const std::vector<Expr>& sizes) {
    if (!operand.buffer.valid()) {
      text_.arguments += fmt::format("  const coil::NoTensor arg_{};\n", name);
      return;
    }
    const std::vector<Expr> zeros(sizes.size(), plan_.pool->index(0));
    std::vector<Expr> strides;
    for (size_t d = 0; d < sizes.size(); ++d)
      strides.push_back(sizes[d] == plan_.pool->index(1) ? plan_.pool->index(1) : as_affine(operand.offset, static_cast<int>(d))->coefficient);
    define(name, operand.buffer, substitute_vars(operand.offset, zeros), sizes, strides, false);
  }

  void result(const std::string& name, BufferId buffer, bool passes = true) {
    if (passes) pass(name);
    const BufferInfo& b = plan_.buffer(buffer).info;
    define(name, buffer, plan_.pool->index(0), b.sizes, contiguous_strides(*plan_.pool, b.sizes), true);
  }

  void define(const std::string& name, BufferId buffer, Expr begin, const std::vector<Expr>& sizes, const std::vector<Expr>& strides, bool writes) {
    const DType dtype = plan_.buffer(buffer).info.dtype;
    auto it = std::find(text_.buffers.begin(), text_.buffers.end(), buffer);
    if (it == text_.buffers.end()) it = text_.buffers.insert(text_.buffers.end(), buffer);
    const auto number = it - text_.buffers.begin();
    text_.arguments += fmt::format("  {} arg_{};\n  arg_{}.data = ({}{}*)a.p[{}]", tensor_type(dtype, sizes.size(), writes), name, name, writes ? "" : "const ",
                                   element_type(dtype), number);
    text_.arguments += begin == plan_.pool->index(0) ? ";\n" : fmt::format(" + {};\n", host_index(begin));
    for (size_t d = 0; d < sizes.size(); ++d) {
      text_.arguments += fmt::format("  arg_{0}.sizes[{1}] = {2};\n  arg_{0}.strides[{1}] = {3};\n", name, d, host_index(sizes[d]), host_index(strides[d]));
    }
  }

  const KernelPlan& plan_;
  const UserCallKernel& k_;
  UserText text_;
};

std::string sizes_text(const std::vector<Expr>& sizes) {
  std::string text;
  for (Expr e : sizes) text += (text.empty() ? "" : ", ") + to_string(e);
  return "[" + text + "]";
}

}  // namespace

UserText user_text(const KernelPlan& plan, const UserCallKernel& kernel, const UserKernelCode& code, size_t config, const std::string& more) {
  return Writer(plan, kernel).run(code, config, more);
}

std::string user_call_text(const KernelPlan& plan, const UserCallKernel& k, const UserKernelCode& code, std::string_view more) {
  std::vector<std::string> parts;
  const UserKernel& kernel = *k.def.kernel;
  for (size_t i = 0; i < kernel.args.size(); ++i) {
    const UserKernelArg& a = kernel.args[i];
    std::string type = "int64_t";
    if (const auto* t = std::get_if<UserCall::Tensor>(&k.def.args[i]))
      type = k.operands[i].buffer.valid() ? tensor_type(plan.buffer(k.operands[i].buffer).info.dtype, t->sizes.size(), a.written) : "coil::NoTensor";
    if (std::holds_alternative<double>(k.def.args[i])) type = "double";
    if (std::holds_alternative<bool>(k.def.args[i])) type = "bool";
    if (const auto* list = std::get_if<std::vector<Expr>>(&k.def.args[i])) type = fmt::format("coil::IntList<{}>", list->size());
    parts.push_back(type + " " + a.name);
  }
  for (int i = 0; i < kernel.returns; ++i) {
    const BufferInfo& b = plan.buffer(k.results[static_cast<size_t>(i)]).info;
    parts.push_back(tensor_type(b.dtype, b.sizes.size(), true) + " " + kernel.result_name(i));
  }
  if (!more.empty()) parts.emplace_back(more);
  return fmt::format("{}({})", code.entry, fmt::join(parts, ", "));
}

std::string hoisted_includes(const UserKernelCode& code) {
  std::string out;
  for (size_t at = 0; at < code.source.size();) {
    const size_t end = std::min(code.source.find('\n', at), code.source.size());
    const std::string line = code.source.substr(at, end - at);
    at = end + 1;
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line.compare(begin, 8, "#include") != 0) continue;
    const bool own =
        std::any_of(code.headers.begin(), code.headers.end(), [&](const auto& h) { return line.find("\"" + h.first + "\"") != std::string::npos; });
    if (!own) out += line + "\n";
  }
  return out;
}

std::string user_problem_text(const KernelPlan& plan, const UserCallKernel& k, const std::string& function) {
  const UserKernel& kernel = *k.def.kernel;
  std::string text = "user " + kernel.name, all = kernel.schema;
  for (size_t i = 0; i < kernel.args.size(); ++i) {
    const UserCall::Argument& a = k.def.args[i];
    text += (i == 0 ? " " : ", ") + kernel.args[i].name;
    if (const auto* t = std::get_if<UserCall::Tensor>(&a)) {
      text += k.operands[i].buffer.valid() ? fmt::format(" {}{}", name(plan.buffer(k.operands[i].buffer).info.dtype), sizes_text(t->sizes)) : " None";
    }
    if (const auto* e = std::get_if<Expr>(&a)) text += " " + to_string(*e);
    if (const auto* f = std::get_if<double>(&a)) text += fmt::format(" {}", *f);
    if (const auto* b = std::get_if<bool>(&a)) text += *b ? " true" : " false";
    if (const auto* list = std::get_if<std::vector<Expr>>(&a)) text += " " + sizes_text(*list);
  }
  for (const UserKernel::Config& c : kernel.configs) all += "\n" + config_text(c);
  for (const auto* code : {&kernel.cpu, &kernel.cuda}) {
    if (!*code) continue;
    all += "\n" + (*code)->range + "\n" + (*code)->work + "\n" + (*code)->block + "\n" + (*code)->shared;
    for (const std::string& g : (*code)->grid) all += "\n" + g;
    for (const UserImage& image : (*code)->images) all += fmt::format("\n{:016x}", hash64(std::string_view(image.code)));
    for (const auto& [file, header] : (*code)->headers) all += "\n" + file + "\n" + header;
  }
  return fmt::format("{} ({} {:016x})", text, function, hash64(std::string_view(all + "\n" + kernel.key)));
}

Expr user_key(const UserCallKernel& k) { return k.def.key ? k.def.key : k.def.launches[0].range ? k.def.launches[0].range : k.def.launches[0].grid[0]; }

}  // namespace coil
