#include "frontend/program_reader.h"

#include "base/without_memory.h"

#include <fmt/format.h>

#include "base/text.h"
#include "frontend/archive.h"
#include "frontend/dim_names.h"
#include "frontend/graph_reader.h"
#include "frontend/guards.h"
#include "frontend/program_names.h"
#include "frontend/signature.h"
#include "frontend/user_kernels.h"
#include "frontend/weights.h"

namespace coil {
namespace {

constexpr std::string_view kSupported = "coil reads schema 7.x and 8.x (PyTorch 2.5 and later)";

bool is_read(int64_t major) { return major == 7 || major == 8; }

Error unsupported_archive(std::string message, std::string hint) { return Error{ErrorCode::unsupported_archive, std::move(message), {}, std::move(hint)}; }

// "models/model.json" -> "model"
std::vector<std::string> models_of(const ProgramArchive& archive) {
  std::vector<std::string> models;
  for (std::string_view entry : archive.list("models/")) {
    std::string_view stem = entry.substr(7);
    if (!stem.ends_with(".json") || stem.find('/') != std::string_view::npos) continue;
    models.emplace_back(stem.substr(0, stem.size() - 5));
  }
  return models;
}

Result<std::string> choose_model(const ProgramArchive& archive, const std::string& wanted) {
  const std::vector<std::string> models = models_of(archive);
  for (const std::string& m : models) {
    if (m == (wanted.empty() ? "model" : wanted)) return m;
  }
  if (wanted.empty() && models.size() == 1) return models[0];
  if (models.empty())
    return unsupported_archive("the archive holds no exported program (models/*.json)",
                               "make one with torch.export.save(torch.export.export(model, args), path)");
  std::vector<std::string> names;
  for (const std::string& m : models) names.push_back(shown(m));
  if (!wanted.empty())
    return Error{ErrorCode::bad_option, fmt::format("there is no program '{}' in the archive", shown(wanted)), archive.file_name(),
                 models.size() == 1 ? "it holds a single program: leave --program out" : fmt::format("its programs: {}", fmt::join(names, ", "))};
  return unsupported_archive(fmt::format("the archive holds the programs {}; which one is meant?", fmt::join(names, ", ")),
                             "name one of them: --program " + names[0]);
}

// The layout before PyTorch 2.8: everything at the top, weights pickled.
constexpr std::string_view kOldProgram = "serialized_exported_program.json";

// Archives that are something else get told so.
Status check_layout(const ProgramArchive& archive) {
  if (archive.has(kOldProgram)) return ok_status();
  if (!archive.list("models/").empty()) {
    if (archive.has("archive_format")) {
      TRY(std::string format, archive.text("archive_format", 64));
      if (format != "pt2") return unsupported_archive(fmt::format("the archive's format is '{}', not pt2", format), "");
    }
    if (archive.has("archive_version")) {
      TRY(std::string version, archive.text("archive_version", 64));
      if (version != "0") return unsupported_archive(fmt::format("the archive's version is '{}'; coil reads version 0", version), "");
    }
    if (archive.has("byteorder")) {
      TRY(std::string order, archive.text("byteorder", 64));
      if (order != "little") return unsupported_archive(fmt::format("the archive's byte order is '{}'; coil reads little", order), "");
    }
    return ok_status();
  }
  if (!archive.list("data/aotinductor/").empty())
    return unsupported_archive("this is a compiled package, not an exported program", "run it, or compile the program it was made from");
  if (archive.has("constants.pkl")) return unsupported_archive("this is a TorchScript archive", "export the model with torch.export");
  if (archive.has("data.pkl"))
    return unsupported_archive("this is a file of torch.save (pickled objects), not an exported program",
                               "export the model with torch.export.export and torch.export.save");
  return ok_status();
}

// The entry "version" ("7.3") comes before the program, whose form depends on it.
Status check_old_version(const ProgramArchive& archive) {
  if (!archive.has("version")) return ok_status();
  TRY(std::string version, archive.text("version", 64));
  if (version.starts_with("7.") || version.starts_with("8.")) return ok_status();
  return Error{ErrorCode::unsupported_schema,
               fmt::format("the program was saved by an older PyTorch with schema {}; {}", version, kSupported),
               {},
               "export it again with PyTorch 2.9 or later"};
}

Status check_version(JsonValue program, Graph& graph) {
  graph.torch_version = clipped(text_or_empty(program, "torch_version"), 100);
  TRY(JsonValue version, program.get("schema_version"));
  TRY(int64_t major, version.get_int("major"));
  TRY(int64_t minor, version.get_int("minor"));
  graph.schema_version = fmt::format("{}.{}", major, minor);
  if (is_read(major)) return ok_status();
  return Error{ErrorCode::unsupported_schema,
               fmt::format("the program was saved by PyTorch {} with schema {}; {}", graph.torch_version.empty() ? "of unknown version" : graph.torch_version,
                           graph.schema_version, kSupported),
               {},
               major < 7 ? "export it again with PyTorch 2.9 or later" : "use a newer coil, or export with an older PyTorch"};
}

Status name_dimensions(Graph& graph, const ProgramArchive& archive) {
  if (constexpr std::string_view kEntry = "extra/coil_dims.json"; archive.has(kEntry)) {
    TRY(JsonDoc doc, archive.json(kEntry));
    TRY(JsonObject object, doc.root().as_object());
    std::map<std::string, std::string> names;
    for (auto [key, label] : object) {
      TRY(std::string_view text, label.as_string());
      names.emplace(std::string(key), std::string(text));
    }
    TRY_STATUS(apply_dim_names(graph, names, false));
  }
  return ok_status();
}

Result<Graph> read_document(JsonValue program, WeightStore& weights, const UserKernels& kernels) {
  Graph versions;
  TRY_STATUS(check_version(program, versions));
  TRY_STATUS(check_names(kernels));
  ReaderContext context(std::make_shared<ExprPool>());
  context.kernels = &kernels;
  if (auto ranges = program.find("range_constraints")) TRY_STATUS(context.symbols.read_ranges(*ranges));
  TRY(JsonValue module, program.get("graph_module"));
  TRY(JsonValue graph_json, module.get("graph"));
  TRY(JsonValue signature, module.get("signature"));
  GraphReader reader(context, graph_json, 0);
  TRY_STATUS(reader.read_values());
  TRY_STATUS(read_input_specs(reader, signature, weights));
  TRY_STATUS(reader.read_nodes());
  TRY_STATUS(read_output_specs(reader, signature));
  TRY_STATUS(reader.settle_data_sizes());
  Graph graph = std::move(reader.graph());
  graph.torch_version = versions.torch_version;
  graph.schema_version = versions.schema_version;
  TRY_STATUS(read_call_spec(graph, module));
  if (auto guards = program.find("guards_code")) TRY_STATUS(read_guards(graph, *guards));
  return graph;
}

constexpr uint64_t kMostRegistrations = uint64_t{1} << 30;  // bytes; they hold machine code

// Those that the caller gives, and those that are in the file: Python's coil.triton.save puts them there.
Result<UserKernels> kernels_of(const ProgramArchive& archive, const UserKernels& given) {
  UserKernels kernels = given;
  constexpr std::string_view kEntry = "extra/coil_kernels.json";
  if (!archive.has(kEntry)) return kernels;
  TRY(const std::string text, archive.text(kEntry, kMostRegistrations));
  const auto nothing = [](const std::string& file) -> Result<std::string> {
    return Error{ErrorCode::user_kernel, fmt::format("'{}': a registration inside of a program names no files", file), "", "give the text as \"text\""};
  };
  TRY(const UserKernels inside, parse_user_kernels(text, std::string(kEntry), nothing));
  kernels.insert(kernels.end(), inside.begin(), inside.end());
  return kernels;
}

}  // namespace

std::vector<std::string> programs_in(const ZipReader& zip) { return models_of(ProgramArchive(zip)); }

static Result<Graph> read_archive(const ZipReader& zip, const ReadOptions& options) {
  ProgramArchive archive(zip);
  TRY_STATUS(check_layout(archive));
  std::string model, entry(kOldProgram);
  if (archive.has(kOldProgram)) {
    TRY_STATUS(check_old_version(archive));
  } else {
    TRY(model, choose_model(archive, options.model_name));
    entry = "models/" + model + ".json";
  }
  TRY(JsonDoc doc, archive.json(entry));
  Graph versions;
  TRY_STATUS(check_version(doc.root(), versions));  // before the weights, whose form depends on it
  TRY(WeightStore weights, WeightStore::open(archive, model, options.check_weights));
  TRY(const UserKernels kernels, kernels_of(archive, options.kernels));
  TRY(Graph graph, read_document(doc.root(), weights, kernels));
  TRY_STATUS(name_dimensions(graph, archive));
  TRY_STATUS(apply_dim_names(graph, options.dim_names, true));
  TRY_STATUS(verify(graph));
  return graph;
}

Result<Graph> read_program(const ZipReader& zip, const ReadOptions& options) {
  return or_no_memory([&] { return read_archive(zip, options); });
}

Result<Graph> read_program_json(std::string_view json, std::map<std::string, TensorData, std::less<>> weights, const ReadOptions& options) {
  return or_no_memory([&]() -> Result<Graph> {
    TRY(JsonDoc doc, JsonDoc::parse(json, "the program"));
    WeightStore store(std::move(weights));
    TRY(Graph graph, read_document(doc.root(), store, options.kernels));
    TRY_STATUS(apply_dim_names(graph, options.dim_names, true));
    TRY_STATUS(verify(graph));
    return graph;
  });
}

Result<Graph> read_program_file(const std::string& path, const ReadOptions& options) {
  return or_no_memory([&]() -> Result<Graph> {
    TRY(ZipReader zip, ZipReader::open(path));
    Result<Graph> graph = read_archive(zip, options);
    if (!graph.ok() && graph.error().where.empty()) graph.error().where = path;
    return graph;
  });
}

}  // namespace coil
