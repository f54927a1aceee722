#include "frontend/program_document.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>
#include "base/json.h"

#include "base/zip_writer.h"
#include "frontend/archive.h"
#include "frontend/program_contents.h"

namespace coil {

void names_in(const Json& json, std::vector<std::string>& out) {
  if (json.is_array()) {
    for (const Json& item : json) names_in(item, out);
  }
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (key == "as_graph") continue;
    if ((key == "name" || key == "as_name") && value.is_string()) out.push_back(value.get<std::string>());
    else names_in(value, out);
  }
}

namespace {

constexpr uint64_t kMostText = uint64_t{1} << 30;

Json leaf() { return {{"type", nullptr}, {"context", nullptr}, {"children_spec", Json::array()}}; }

std::string tree_text(const Json& tree) { return Json::array({1, tree}).dump(); }

Json tuple_of(size_t n) {
  Json children = Json::array();
  for (size_t i = 0; i < n; ++i) children.push_back(leaf());
  return {{"type", "builtins.tuple"}, {"context", "null"}, {"children_spec", children}};
}

Json as_tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

// "aten.relu_.default" writes to its first operand.
bool is_in_place(const std::string& target) {
  const size_t dot = target.rfind('.');
  return dot != std::string::npos && dot > 0 && target[dot - 1] == '_' && !target.ends_with("__");
}

}  // namespace

ProgramDocument::ProgramDocument() : contents_(std::make_unique<Contents>()) {}
ProgramDocument::ProgramDocument(const ProgramDocument& other) : contents_(std::make_unique<Contents>(*other.contents_)) {}
ProgramDocument& ProgramDocument::operator=(const ProgramDocument& other) {
  *contents_ = *other.contents_;
  return *this;
}
ProgramDocument::ProgramDocument(ProgramDocument&&) noexcept = default;
ProgramDocument& ProgramDocument::operator=(ProgramDocument&&) noexcept = default;
ProgramDocument::~ProgramDocument() = default;

Result<ProgramDocument> ProgramDocument::open(const ZipReader& zip, const Graph& graph, const std::string& program) {
  const ProgramArchive archive(zip);
  std::string entry = "serialized_exported_program.json";
  for (std::string_view name : archive.list("models/")) {
    if (!name.ends_with(".json")) continue;
    // As the reader chooses: "model" or the only one where nobody says which.
    if (program.empty() ? entry != "models/model.json" : name == "models/" + program + ".json") entry = std::string(name);
  }
  TRY(const std::string text, archive.text(entry, kMostText));
  ProgramDocument document;
  Contents& c = *document.contents_;
  c.program = Json::try_parse(text).value_or(Json());
  if (!c.program.contains("graph_module")) return Error{ErrorCode::bad_json, "the program's entry is no JSON object of a program", entry, ""};
  const auto kind_of = [](GraphInput::Kind kind) {
    return kind == GraphInput::Kind::parameter ? "parameter" : kind == GraphInput::Kind::buffer ? "buffer" : "tensor_constant";
  };
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::parameter && in.kind != GraphInput::Kind::buffer && in.kind != GraphInput::Kind::constant) continue;
    c.weights[in.name] = in.data;
    c.kinds[in.name] = kind_of(in.kind);
    c.weight_of[graph.value(in.value).name] = in.name;
  }
  return document;
}

size_t ProgramDocument::num_nodes() const { return contents_->graph().at("nodes").size(); }

std::vector<std::string> ProgramDocument::outputs() const {
  std::vector<std::string> out, all;
  const Json& specs = contents_->program.at("graph_module").at("signature").at("output_specs");
  for (const Json& spec : specs) {
    if (spec.contains("user_output")) names_in(spec.at("user_output"), all);
  }
  for (const std::string& name : all) {
    if (contents_->is_tensor(name) && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

std::vector<std::string> ProgramDocument::inputs() const {
  std::vector<std::string> out;
  for (const Json& spec : contents_->program.at("graph_module").at("signature").at("input_specs")) {
    if (spec.contains("user_input")) names_in(spec.at("user_input"), out);
  }
  return out;
}

std::vector<std::string> ProgramDocument::values() const {
  std::vector<std::string> out;
  for (const Json& node : contents_->graph().at("nodes")) {
    for (std::string& name : contents_->defined_by(node)) {
      if (contents_->is_tensor(name)) out.push_back(std::move(name));
    }
  }
  return out;
}

std::vector<std::string> ProgramDocument::operands(const std::string& value) const {
  std::vector<std::string> out;
  for (const Json& node : contents_->graph().at("nodes")) {
    const std::vector<std::string> made = contents_->defined_by(node);
    if (std::find(made.begin(), made.end(), value) == made.end()) continue;
    for (std::string& name : contents_->used_by(node)) {
      if (contents_->is_tensor(name) && !contents_->weight_of.contains(name)) out.push_back(std::move(name));
    }
  }
  return out;
}

bool ProgramDocument::has(const std::string& value) const { return contents_->is_tensor(value); }

// The rows of the nodes that some values need.
struct ProgramDocument::Contents::Slice {
  std::set<size_t> rows;
  std::set<std::string> taken;  // values that no kept node defines
};

// From the outputs upwards; a tensor that is given ends the search, unless it is an output itself.
Result<ProgramDocument::Contents::Slice> ProgramDocument::Contents::slice_of(const std::vector<std::string>& outputs,
                                                                             const std::set<std::string>& given) const {
  const Json& nodes = graph().at("nodes");
  std::map<std::string, size_t> row_of;
  std::map<std::string, std::vector<size_t>> writers;  // nodes that change a value in place
  std::vector<std::vector<std::string>> used;
  for (size_t row = 0; row < nodes.size(); ++row) {
    for (const std::string& name : defined_by(nodes[row])) row_of[name] = row;
    used.push_back(used_by(nodes[row]));
    if (is_in_place(nodes[row].value("target", "")) && !used.back().empty()) writers[used.back()[0]].push_back(row);
  }
  Slice slice;
  std::vector<std::pair<std::string, size_t>> open;  // a value, and the row of who reads it
  for (const std::string& name : outputs) {
    if (!row_of.contains(name)) return Error{ErrorCode::bad_option, fmt::format("no node of the program gives '{}'", name), "", ""};
    open.emplace_back(name, nodes.size());
  }
  std::set<std::string> wanted(outputs.begin(), outputs.end());
  while (!open.empty()) {
    const auto [name, reader] = open.back();
    open.pop_back();
    std::vector<size_t> rows;
    for (size_t row : writers[name]) {
      if (row < reader) rows.push_back(row);
    }
    const bool cut_here = given.contains(name) && !wanted.contains(name) && is_tensor(name);
    if (const auto found = row_of.find(name); found != row_of.end() && !cut_here) rows.push_back(found->second);
    else slice.taken.insert(name);
    for (size_t row : rows) {
      if (!slice.rows.insert(row).second) continue;
      for (const std::string& operand : used[row]) open.emplace_back(operand, row);
    }
  }
  return slice;
}

// What the slice takes as inputs: the weights first, which come along; then the inputs that the program has anyway, in its order, then what was cut. The
// names of those that the caller brings.
std::vector<std::string> ProgramDocument::Contents::take_inputs(const Contents& from, const Slice& slice, const std::vector<std::string>& before) {
  Json inputs = Json::array(), specs = Json::array();
  for (const auto& [value, weight] : from.weight_of) {
    if (!slice.taken.contains(value)) continue;
    weights[weight] = from.weights.at(weight);
    kinds[weight] = from.kinds.at(weight);
    weight_of[value] = weight;
    inputs.push_back(as_tensor(value));
    Json spec = {{"arg", {{"name", value}}}, {from.kinds.at(weight) + "_name", weight}};
    if (from.kinds.at(weight) == "buffer") spec["persistent"] = true;
    specs.push_back({{from.kinds.at(weight), spec}});
  }
  std::vector<std::string> callers;
  for (const std::string& name : before) {
    if (slice.taken.contains(name)) callers.push_back(name);
  }
  for (const std::string& name : slice.taken) {
    if (!from.weight_of.contains(name) && std::find(before.begin(), before.end(), name) == before.end()) callers.push_back(name);
  }
  for (const std::string& name : callers) {
    const Json arg = from.is_tensor(name) ? as_tensor(name) : Json{{"as_sym_int", {{"as_name", name}}}};
    inputs.push_back(arg);
    specs.push_back({{"user_input", {{"arg", arg}}}});
  }
  graph()["inputs"] = std::move(inputs);
  program["graph_module"]["signature"]["input_specs"] = std::move(specs);
  return callers;
}

void ProgramDocument::Contents::set_outputs(const std::vector<std::string>& names) {
  Json outputs = Json::array(), specs = Json::array();
  for (const std::string& name : names) {
    outputs.push_back(as_tensor(name));
    specs.push_back({{"user_output", {{"arg", as_tensor(name)}}}});
  }
  graph()["outputs"] = std::move(outputs);
  program["graph_module"]["signature"]["output_specs"] = std::move(specs);
}

// The Python call: positional arguments, one result or a tuple of them.
void ProgramDocument::Contents::set_call(const std::vector<std::string>& callers, size_t results) {
  Json none = {{"type", "builtins.dict"}, {"context", "[]"}, {"children_spec", Json::array()}};
  Json call = {{"type", "builtins.tuple"}, {"context", "null"}, {"children_spec", Json::array({tuple_of(callers.size()), none})}};
  Json& module = program["graph_module"];
  module["module_call_graph"] = Json::array();
  module["module_call_graph"].push_back({{"fqn", ""},
                                         {"signature",
                                          {{"inputs", Json::array()},
                                           {"outputs", Json::array()},
                                           {"in_spec", tree_text(call)},
                                           {"out_spec", tree_text(results == 1 ? leaf() : tuple_of(results))},
                                           {"forward_arg_names", callers}}}});
}

// Types of values that are gone.
void ProgramDocument::Contents::forget_types(const std::set<std::string>& alive) {
  for (const char* table : {"tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"}) {
    if (!graph().contains(table)) continue;
    Json left = Json::object();
    for (const auto& [name, value] : graph()[table].items()) {
      if (alive.contains(name)) left[name] = value;
    }
    graph()[table] = std::move(left);
  }
}

Result<ProgramDocument> ProgramDocument::cut(const std::vector<std::string>& outputs, const std::set<std::string>& given) const {
  const Contents& c = *contents_;
  TRY(const Contents::Slice slice, c.slice_of(outputs, given));
  ProgramDocument out;
  Contents& to = *out.contents_;
  to.program = c.program;
  to.weights = {};
  const Json& nodes = c.graph().at("nodes");
  Json kept = Json::array();
  std::set<std::string> alive = slice.taken;
  for (size_t row : slice.rows) {
    kept.push_back(nodes[row]);
    for (const std::string& name : c.defined_by(nodes[row])) alive.insert(name);
  }
  to.graph()["nodes"] = std::move(kept);
  const std::vector<std::string> callers = to.take_inputs(c, slice, inputs());
  to.set_outputs(outputs);
  to.program["guards_code"] = Json::array();
  to.set_call(callers, outputs.size());
  to.forget_types(alive);
  return out;
}

void ProgramDocument::make_anonymous(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (auto& [name, w] : contents_->weights) {
    if (w.dtype != DType::f32 && w.dtype != DType::f64) continue;  // what whole numbers and packed bits mean is the program's business
    const bool wide = w.dtype == DType::f64;
    const auto bytes = std::make_shared<std::vector<uint8_t>>(w.bytes.begin(), w.bytes.end());
    const size_t n = bytes->size() / (wide ? 8 : 4);
    const auto at = [&](size_t i) -> double {
      if (wide) {
        double v;
        std::memcpy(&v, bytes->data() + i * 8, 8);
        return v;
      }
      float v;
      std::memcpy(&v, bytes->data() + i * 4, 4);
      return static_cast<double>(v);
    };
    double sum = 0, squares = 0;
    bool positive = true;
    for (size_t i = 0; i < n; ++i) sum += at(i), positive = positive && at(i) >= 0;
    const double mean = n ? sum / static_cast<double>(n) : 0;
    for (size_t i = 0; i < n; ++i) squares += (at(i) - mean) * (at(i) - mean);
    std::normal_distribution<double> normal(mean, n ? std::sqrt(squares / static_cast<double>(n)) : 0);
    for (size_t i = 0; i < n; ++i) {
      const double v = positive ? std::fabs(normal(random)) : normal(random);  // variances stay what they are
      const float narrow = static_cast<float>(v);
      if (wide) std::memcpy(bytes->data() + i * 8, &v, 8);
      else std::memcpy(bytes->data() + i * 4, &narrow, 4);
    }
    w.bytes = *bytes;
    w.owner = bytes;
  }
  for (Json& node : contents_->graph()["nodes"]) {
    if (node.contains("metadata")) node["metadata"] = Json::object();
  }
}

namespace {

// Dense bytes of a weight.
std::vector<uint8_t> dense(const TensorData& w) {
  const auto size = static_cast<size_t>(byte_size(w.dtype));
  int64_t n = 1;
  for (int64_t s : w.sizes) n *= s;
  std::vector<uint8_t> out(static_cast<size_t>(n) * size);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, offset = w.offset;
    for (size_t d = w.sizes.size(); d-- > 0; rest /= w.sizes[d]) offset += rest % w.sizes[d] * w.strides[d];
    std::memcpy(out.data() + static_cast<size_t>(i) * size, w.bytes.data() + static_cast<size_t>(offset) * size, size);
  }
  return out;
}

Json sym_ints(const std::vector<int64_t>& values) {
  Json out = Json::array();
  for (int64_t v : values) out.push_back({{"as_int", v}});
  return out;
}

}  // namespace

Status ProgramDocument::write(const std::string& path) const {
  const Contents& c = *contents_;
  TRY(ZipWriter zip, ZipWriter::create(path));
  std::string root = path.substr(path.find_last_of('/') + 1);
  root = root.substr(0, root.find('.'));
  const bool plain =
      !root.empty() && std::all_of(root.begin(), root.end(), [](char ch) { return std::isalnum(static_cast<unsigned char>(ch)) || ch == '_' || ch == '-'; });
  if (!plain) root = "model";
  const auto add = [&](const std::string& name, std::string_view content) { return zip.add(root + "/" + name, content); };
  TRY_STATUS(add("archive_format", "pt2"));
  TRY_STATUS(add("archive_version", "0"));
  TRY_STATUS(add("byteorder", "little"));
  TRY_STATUS(add(".data/version", "3\n"));
  Json weights = Json::object(), constants = Json::object();
  size_t number[2] = {0, 0};
  for (const auto& [name, w] : c.weights) {
    const bool constant = c.kinds.at(name) == "tensor_constant";
    const std::string file = fmt::format("{}_{}", constant ? "tensor" : "weight", number[constant]++);
    std::vector<int64_t> strides(w.sizes.size());
    int64_t step = 1;
    for (size_t d = strides.size(); d-- > 0; step *= w.sizes[d]) strides[d] = step;
    (constant ? constants : weights)[name] = {{"path_name", file},
                                              {"is_param", c.kinds.at(name) == "parameter"},
                                              {"use_pickle", false},
                                              {"tensor_meta",
                                               {{"dtype", info(w.dtype).export_number},
                                                {"sizes", sym_ints(w.sizes)},
                                                {"requires_grad", false},
                                                {"device", {{"type", "cpu"}, {"index", nullptr}}},
                                                {"strides", sym_ints(strides)},
                                                {"storage_offset", {{"as_int", 0}}},
                                                {"layout", 7}}}};
    const std::vector<uint8_t> bytes = dense(w);
    TRY_STATUS(zip.add(fmt::format("{}/data/{}/{}", root, constant ? "constants" : "weights", file), std::span<const uint8_t>(bytes)));
  }
  const auto text = [](const Json& json) { return json.dump(); };
  TRY_STATUS(add("data/weights/model_weights_config.json", text({{"config", weights}})));
  TRY_STATUS(add("data/constants/model_constants_config.json", text({{"config", constants}})));
  TRY_STATUS(add("data/sample_inputs/model.pt", ""));  // none
  TRY_STATUS(add("models/model.json", text(c.program)));
  return zip.finish();
}

}  // namespace coil
