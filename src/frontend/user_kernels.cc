// Checks of a registration, and its JSON form.
#include "frontend/user_kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/json_read.h"
#include "expr/formula.h"
#include "frontend/schema.h"
#include "frontend/user_images.h"

namespace coil {
namespace {

constexpr int kMostConfigs = 1000;
constexpr uint64_t kMostBytes = uint64_t{1} << 24;  // of a source or a registration
constexpr std::string_view kReserved[] = {"aten", "prim", "prims", "coil", "higher_order", "quantized_decomposed", "torchvision"};
// What the text around a source needs.
constexpr std::string_view kNotForConstants[] = {
    "coil", "cd",  "a",     "begin",  "end",    "context",  "worker", "float", "double", "int",    "long",      "short", "char",   "bool",     "void",  "const",
    "if",   "for", "while", "return", "struct", "template", "class",  "auto",  "static", "inline", "namespace", "using", "extern", "unsigned", "signed"};

bool is_identifier(std::string_view s) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !s.empty() && letter(s[0]) && std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

Error wrong_kernel(const std::string& name, const std::string& problem, const std::string& hint = "") {
  return {ErrorCode::user_kernel, fmt::format("user kernel '{}': {}", name, problem), "", hint};
}

template <class Range>
bool among(std::string_view word, const Range& words) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

class Checker {
 public:
  explicit Checker(UserKernel& k) : k_(k) {}

  Status run() {
    TRY_STATUS(read_name());
    TRY_STATUS(read_signature());
    TRY_STATUS(check_configs());
    if (!k_.cpu && !k_.cuda) return wrong_kernel(k_.name, "there is no source", "give \"cpu\" or \"cuda\", or both");
    if (k_.cpu) TRY_STATUS(check_cpu(*k_.cpu));
    if (k_.cuda) TRY_STATUS(check_cuda(*k_.cuda));
    if (!k_.key.empty()) TRY_STATUS(check_formula("key", k_.key, nullptr, true));
    return ok_status();
  }

 private:
  Status read_name() {
    const size_t colons = k_.name.find("::");
    const std::string space = k_.name.substr(0, colons), op = colons == std::string::npos ? "" : k_.name.substr(colons + 2);
    if (!is_identifier(space) || !is_identifier(op)) return wrong_kernel(k_.name, "the name is not of the form namespace::operator");
    if (among(space, kReserved)) return wrong_kernel(k_.name, fmt::format("the namespace '{}' is not the user's", space), "choose a namespace of your own");
    k_.target = fmt::format("{}.{}.default", space, op);
    for (auto* code : {&k_.cpu, &k_.cuda}) {
      if (*code && (*code)->entry.empty()) (*code)->entry = op;
    }
    return ok_status();
  }

  Status read_signature() {
    const std::string hint = "e.g. \"(Tensor x, Tensor? bias, float alpha=1.0, int n=2, bool flag=False, int[] sizes=[]) -> Tensor\"";
    const std::string given = k_.schema;
    if (!given.starts_with("(")) return wrong_kernel(k_.name, fmt::format("the signature '{}' does not begin with '('", given), hint);
    k_.schema = k_.target + given;
    const std::optional<Schema> schema = parse_schema(k_.schema);
    if (!schema) return wrong_kernel(k_.name, fmt::format("the signature '{}' cannot be read", given), hint);
    k_.args.clear();
    std::set<std::string_view> names;
    for (const SchemaArg& a : schema->args) {
      if (!is_identifier(a.name) || !names.insert(a.name).second || is_result_name(a.name))
        return wrong_kernel(k_.name, fmt::format("the argument '{}' of the signature has no name of its own", a.name), hint);
      TRY(UserKernelArg arg, read_arg(a));
      k_.args.push_back(std::move(arg));
    }
    for (const SchemaArg& r : schema->returns) {
      if (r.type != SchemaType::tensor || r.list || r.optional) return wrong_kernel(k_.name, "a result is something else than a Tensor", hint);
      if (r.written)
        return wrong_kernel(k_.name, "a result is an argument that is written to", "return nothing or new tensors; Tensor(a!) arguments change in place");
    }
    k_.returns = static_cast<int>(schema->returns.size());
    if (given.find("->") != std::string::npos && k_.returns == 0 && given.substr(given.find("->")).find("()") == std::string::npos)
      return wrong_kernel(k_.name, "the signature's results cannot be read", hint);
    if (k_.returns == 0 && k_.num_written() == 0) return wrong_kernel(k_.name, "it gives no result and writes to no argument", hint);
    return ok_status();
  }

  static bool is_result_name(std::string_view name) {
    return name == "out" || (name.starts_with("out") && std::all_of(name.begin() + 3, name.end(), [](char c) { return c >= '0' && c <= '9'; }));
  }

  Result<UserKernelArg> read_arg(const SchemaArg& a) const {
    using Kind = UserKernelArg::Kind;
    UserKernelArg arg;
    arg.name = a.name;
    arg.optional = a.optional;
    arg.written = a.written;
    const std::string what = fmt::format("the argument '{}'", a.name);
    switch (a.type) {
      case SchemaType::tensor: arg.kind = Kind::tensor; break;
      case SchemaType::integer: arg.kind = a.list ? Kind::integers : Kind::integer; break;
      case SchemaType::floating: arg.kind = Kind::number; break;
      case SchemaType::boolean: arg.kind = Kind::boolean; break;
      default:
        return wrong_kernel(k_.name, what + " has a type that user kernels do not take",
                            "Tensor, Tensor?, int, int[], float, bool; make a dtype or a string an operator of its own");
    }
    if (a.list && arg.kind != Kind::integers) return wrong_kernel(k_.name, what + " is a list of something else than integers", "pass tensors one by one");
    if (a.optional && arg.kind != Kind::tensor) return wrong_kernel(k_.name, what + " is optional and no tensor", "give it a default instead");
    if (a.written && (arg.kind != Kind::tensor || a.optional)) return wrong_kernel(k_.name, what + " is written to: it must be a Tensor that is always there");
    return arg;
  }

  Status check_configs() {
    if (k_.configs.empty()) k_.configs.emplace_back();
    if (!k_.initial.empty() && (!k_.cuda || k_.cuda->images.empty())) return wrong_kernel(k_.name, "\"initial\" is for images");
    if (k_.configs.size() > kMostConfigs) return wrong_kernel(k_.name, fmt::format("{} configurations are too many", k_.configs.size()));
    for (const UserKernel::Config& c : k_.configs) {
      const auto same_name = [](const auto& x, const auto& y) { return x.first == y.first; };
      if (!std::equal(c.begin(), c.end(), k_.configs[0].begin(), k_.configs[0].end(), same_name))
        return wrong_kernel(k_.name, fmt::format("the configuration {} has other constants than {}", config_text(c), config_text(k_.configs[0])),
                            "every configuration gives all constants a value");
      if (std::count(k_.configs.begin(), k_.configs.end(), c) > 1)
        return wrong_kernel(k_.name, fmt::format("the configuration {} is there twice", config_text(c)));
    }
    for (const auto& [name, value] : k_.configs[0]) {
      const bool taken = std::any_of(k_.args.begin(), k_.args.end(), [&, &n = name](const UserKernelArg& a) { return a.name == n; }) || is_result_name(name);
      const bool entry = (k_.cpu && k_.cpu->entry == name) || (k_.cuda && k_.cuda->entry == name);
      if (!is_identifier(name) || taken || entry || among(name, kNotForConstants) || name.find("__") != std::string::npos)
        return wrong_kernel(k_.name, fmt::format("'{}' cannot be the name of a constant", name),
                            "an identifier that is neither an argument's name nor a word of C++, e.g. BLOCK");
    }
    return ok_status();
  }

  // constants: whose values may be used; null: of all configurations in turn is the caller's business.
  Status check_formula(const char* field, const std::string& text, const UserKernel::Config* constants, bool sizes) const {
    ExprPool pool;
    FormulaNames names;
    names.any_dimension = true;
    if (constants) {
      for (const auto& [name, value] : *constants) names.numbers.emplace(name, pool.index(value));
    }
    const Expr any = pool.symbol(pool.add_symbol({"any", "any", 0, INT64_MAX, false}));
    if (sizes) {
      for (const UserKernelArg& a : k_.args) {
        if (a.kind == UserKernelArg::Kind::integer) names.numbers.emplace(a.name, any);
        if (a.kind == UserKernelArg::Kind::tensor) names.tensors[a.name] = {any};
      }
      for (int i = 0; i < k_.returns; ++i) names.tensors[k_.result_name(i)] = {any};
    }
    Result<Expr> e = parse_formula(pool, text, names);
    if (!e.ok()) return std::move(e).error().with_context(fmt::format("user kernel '{}', {}", k_.name, field));
    if (!sizes && (!e.value()->is_constant() || e.value()->as_int() < 0 || e.value()->as_int() > (1 << 30)))
      return wrong_kernel(k_.name, fmt::format("{} is {} with {}", field, to_string(e.value()), constants ? config_text(*constants) : ""));
    return ok_status();
  }

  Status check_everywhere(const char* field, const std::string& text, bool sizes) const {
    for (const UserKernel::Config& c : k_.configs) TRY_STATUS(check_formula(field, text, &c, sizes));
    return ok_status();
  }

  Status check_source(const char* target, const UserKernelCode& c) const {
    if (c.source.find_first_not_of(" \n\t\r") == std::string::npos) return wrong_kernel(k_.name, fmt::format("the source for {} is empty", target));
    if (c.source.find('\0') != std::string::npos) return wrong_kernel(k_.name, fmt::format("the source for {} is no text", target));
    if (!is_identifier(c.entry)) return wrong_kernel(k_.name, fmt::format("'{}' cannot be the name of a function", c.entry));
    return ok_status();
  }

  Status check_cpu(const UserKernelCode& c) const {
    TRY_STATUS(check_source("the CPU", c));
    if (c.range.empty()) return wrong_kernel(k_.name, "cpu.range is missing", "the number of items that threads share, e.g. \"out.numel()\" or \"x.size(0)\"");
    TRY_STATUS(check_everywhere("cpu.range", c.range, true));
    return c.work.empty() ? ok_status() : check_everywhere("cpu.work", c.work, true);
  }

  Status check_cuda(const UserKernelCode& c) const {
    if (!c.images.empty()) {
      TRY_STATUS(check_images(k_));
      for (size_t i = 0; i < c.grids.size(); ++i) {
        for (const std::string& g : c.grids[i]) TRY_STATUS(check_formula("cuda.grids", g, &k_.configs[i], true));
      }
      return ok_status();
    }
    TRY_STATUS(check_source("CUDA", c));
    if (c.grid.empty() || c.grid.size() > 3)
      return wrong_kernel(k_.name, "cuda.grid is missing", "blocks along one to three axes, e.g. [\"cdiv(out.numel(), BLOCK)\"]");
    for (const std::string& g : c.grid) TRY_STATUS(check_everywhere("cuda.grid", g, true));
    if (c.block.empty()) return wrong_kernel(k_.name, "cuda.block is missing", "the threads of a block, e.g. \"BLOCK\" or \"256\"");
    TRY_STATUS(check_everywhere("cuda.block", c.block, false));
    for (const UserKernel::Config& config : k_.configs) {
      ExprPool pool;
      FormulaNames names;
      for (const auto& [name, value] : config) names.numbers.emplace(name, pool.index(value));
      TRY(const Expr threads, parse_formula(pool, c.block, names));
      if (threads->as_int() < 1 || threads->as_int() > 1024)
        return wrong_kernel(k_.name, fmt::format("cuda.block is {} with {}", threads->as_int(), config_text(config)), "a block has 1 to 1024 threads");
    }
    return c.shared.empty() ? ok_status() : check_everywhere("cuda.shared", c.shared, false);
  }

  UserKernel& k_;
};

}  // namespace

Result<std::shared_ptr<const UserKernel>> make_user_kernel(UserKernel registration) {
  auto k = std::make_shared<UserKernel>(std::move(registration));
  TRY_STATUS(Checker(*k).run());
  return std::shared_ptr<const UserKernel>(std::move(k));
}

Status check_names(const UserKernels& kernels) {
  std::set<std::string> names;
  for (const auto& k : kernels) {
    if (!names.insert(k->name).second) return wrong_kernel(k->name, "two registrations have this name", "one registration holds the sources for all targets");
  }
  return ok_status();
}

// --- JSON
namespace {

Result<std::string> text_field(JsonValue object, std::string_view key) {
  if (auto v = object.find(key)) {
    if (v->is_int()) {  // a formula that is a plain number
      TRY(const int64_t n, v->as_int());
      return std::to_string(n);
    }
    TRY(const std::string_view text, v->as_string());
    return std::string(text);
  }
  return std::string();
}

// Every key that is not known is refused: a misspelt one would be ignored otherwise.
Status check_keys(JsonValue object, const std::vector<std::string_view>& known, const std::string& name, const std::string& what) {
  TRY(auto members, object.as_object());
  for (auto [key, value] : members) {
    if (!among(key, known)) return wrong_kernel(name, fmt::format("{} has no field '{}'", what, key), fmt::format("fields: {}", fmt::join(known, ", ")));
  }
  return ok_status();
}

Result<UserKernelCode> parse_code(JsonValue json, const std::string& name, const char* target, const ReadSource& read) {
  UserKernelCode c;
  const bool cuda = std::string_view(target) == "cuda";
  std::vector<std::string_view> known = {"source", "text", "file", "entry", "headers", "range", "work"};
  if (cuda) known = {"source", "text", "file", "entry", "headers", "grid", "block", "shared", "images", "grids"};
  TRY_STATUS(check_keys(json, known, name, fmt::format("\"{}\"", target)));
  TRY(const std::string source, text_field(json, "source"));
  TRY(c.source, text_field(json, "text"));
  TRY(c.file, text_field(json, "file"));
  if (!source.empty()) {
    if (!c.source.empty())
      return wrong_kernel(name, fmt::format("\"{}\" has a \"source\" and a \"text\"", target), "\"source\" names a file, \"text\" is the text itself");
    TRY(c.source, read(source));
    if (c.file.empty()) c.file = source;
  }
  if (c.file.empty()) c.file = cuda ? "kernel.cu" : "kernel.cc";
  TRY(c.entry, text_field(json, "entry"));
  if (auto headers = json.find("headers")) {
    if (headers->is_array()) {
      TRY(auto list, headers->as_array());
      for (JsonValue item : list) {
        TRY(const std::string_view file, item.as_string());
        TRY(std::string text, read(std::string(file)));
        c.headers.emplace_back(file, std::move(text));
      }
    } else {
      TRY(auto table, headers->as_object());
      for (auto [file, text] : table) {
        TRY(const std::string_view t, text.as_string());
        c.headers.emplace_back(file, t);
      }
    }
  }
  TRY(c.range, text_field(json, "range"));
  TRY(c.work, text_field(json, "work"));
  TRY(c.block, text_field(json, "block"));
  TRY(c.shared, text_field(json, "shared"));
  if (cuda) TRY_STATUS(parse_images(json, name, c));
  if (auto grid = json.find("grid"); grid && grid->is_array()) {
    TRY(auto list, grid->as_array());
    for (JsonValue item : list) {
      if (item.is_int()) {
        TRY(const int64_t n, item.as_int());
        c.grid.push_back(std::to_string(n));
        continue;
      }
      TRY(const std::string_view text, item.as_string());
      c.grid.emplace_back(text);
    }
  } else if (grid) {
    TRY(std::string text, text_field(json, "grid"));
    c.grid.push_back(std::move(text));
  }
  return c;
}

Result<std::shared_ptr<const UserKernel>> parse_one(JsonValue json, const ReadSource& read) {
  UserKernel k;
  TRY(k.name, text_field(json, "name"));
  TRY_STATUS(check_keys(json, {"name", "signature", "cpu", "cuda", "configs", "key", "contiguous", "initial"}, k.name, "the registration"));
  TRY(k.schema, text_field(json, "signature"));
  TRY(k.key, text_field(json, "key"));
  if (auto v = json.find("contiguous")) {
    TRY(k.contiguous, v->as_bool());
  }
  if (auto v = json.find("initial")) {
    TRY(auto list, v->as_array());
    for (JsonValue item : list) {
      TRY(const std::string_view argument, item.as_string());
      k.initial.emplace_back(argument);
    }
  }
  if (auto code = json.find("cpu"); code && !code->is_null()) {
    TRY(k.cpu, parse_code(*code, k.name, "cpu", read));
  }
  if (auto code = json.find("cuda"); code && !code->is_null()) {
    TRY(k.cuda, parse_code(*code, k.name, "cuda", read));
  }
  if (auto configs = json.find("configs")) {
    TRY(auto list, configs->as_array());
    for (JsonValue item : list) {
      UserKernel::Config config;
      TRY(auto members, item.as_object());
      for (auto [constant, value] : members) {
        const bool number = value.is_int() || value.is_bool();
        if (!number)
          return wrong_kernel(k.name, fmt::format("the constant '{}' of a configuration is no whole number", constant),
                              "constants are whole numbers or booleans");
        if (value.is_bool()) {
          TRY(const bool b, value.as_bool());
          config[std::string(constant)] = b;
        } else {
          TRY(config[std::string(constant)], value.as_int());
        }
      }
      k.configs.push_back(std::move(config));
    }
  }
  return make_user_kernel(std::move(k));
}

}  // namespace

Result<UserKernels> parse_user_kernels(std::string_view json, const std::string& place, const ReadSource& read) {
  TRY(const JsonDoc doc, JsonDoc::parse(json, place));
  UserKernels out;
  if (!doc.root().is_array()) {
    TRY(auto k, parse_one(doc.root(), read));
    out.push_back(std::move(k));
    return out;
  }
  TRY(auto list, doc.root().as_array());
  for (JsonValue item : list) {
    TRY(auto k, parse_one(item, read));
    out.push_back(std::move(k));
  }
  return out;
}

Result<UserKernels> read_user_kernels(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code problem;
  std::vector<std::string> files;
  if (fs::is_directory(path, problem)) {
    for (auto it = fs::directory_iterator(path, problem); !problem && it != fs::directory_iterator(); it.increment(problem)) {
      if (it->path().extension() == ".json") files.push_back(it->path().string());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) return Error{ErrorCode::user_kernel, fmt::format("the folder '{}' holds no registration of a user kernel (*.json)", path), "", ""};
  } else {
    files = {path};
  }
  UserKernels out;
  for (const std::string& file : files) {
    TRY(const std::string text, read_text_file(file, kMostBytes));
    const auto beside = [&](const std::string& name) { return read_text_file((fs::path(file).parent_path() / name).string(), kMostBytes); };
    TRY(const UserKernels found, parse_user_kernels(text, file, beside));
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

}  // namespace coil
