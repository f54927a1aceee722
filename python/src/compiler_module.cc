// coil._compiler: programs compiled to packages, in the process. Holds clang, lld and LLVM; loaded at the first compilation.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <memory>
#include <tuple>

#include "compiler/options.h"
#include "errors.h"
#include "frontend/block_rows.h"
#include "frontend/program_reader.h"
#include "interruptible.h"
#include "lower/lower.h"
#include "package/package_writer.h"
#include "path.h"

namespace coil::python {
namespace {

namespace nb = nanobind;

// A package in memory; Python reads it through the buffer protocol.
struct Package {
  std::vector<uint8_t> bytes;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Package* package = nb::inst_ptr<Package>(self);
  return PyBuffer_FillInfo(view, self, package->bytes.data(), static_cast<Py_ssize_t>(package->bytes.size()), 1, flags);
}
PyType_Slot package_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

// A tensor in the caller's memory: address, bytes of the storage from there on, dtype by PyTorch's name, sizes, strides; and what its bytes are read from
// in place of the memory, or none.
using Weight = std::tuple<uintptr_t, uint64_t, std::string, std::vector<int64_t>, std::vector<int64_t>, std::shared_ptr<ByteSource>>;

// The parts of a matrix in a GGUF file's blocks, which lie in the caller's memory: numbers, scale, and zero or None.
nb::tuple block_parts(const std::string& type, uintptr_t address, uint64_t bytes, bool mapped, int64_t columns, std::vector<int64_t> order) {
  const BlockRows rows = value_or_throw(BlockRows::over(type, {reinterpret_cast<const uint8_t*>(address), bytes}, mapped, columns, std::move(order)));
  const auto given = [](const std::shared_ptr<const ByteSource>& part) { return nb::cast(std::const_pointer_cast<ByteSource>(part)); };
  return nb::make_tuple(given(rows.numbers()), given(rows.scale()), given(rows.zero()));
}

nb::bytes read_source(const ByteSource& source, uint64_t begin, uint64_t count) {
  if (begin > source.size() || count > source.size() - begin) throw nb::index_error("beyond the bytes");
  std::vector<uint8_t> bytes(count);
  source.read(begin, bytes);
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

struct Settings {
  CompileSettings compile;
  ReadOptions read;
  std::string name;
};

Settings settings_of(const nb::dict& d) {
  Settings s;
#define TEXT(field, ...) s.compile.field = nb::cast<std::string>(d[#field]);
#define NUMBER(field, ...) s.compile.field = nb::cast<int>(d[#field]);
#define WITHOUT(field, ...) s.compile.field = nb::cast<bool>(d[#field]);
#define LIST(field, ...) s.compile.field = nb::cast<std::vector<std::string>>(d[#field]);
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
  s.read.dim_names = nb::cast<std::map<std::string, std::string>>(d["dims"]);
  s.name = nb::cast<std::string>(d["name"]);
  s.read.kernels = value_or_throw(user_kernels(nb::cast<std::vector<std::string>>(d["kernels"]), nb::cast<std::vector<std::string>>(d["kernel_files"])));
  return s;
}

// The options of the table by their names, with their defaults.
nb::dict option_defaults() {
  const CompileSettings defaults;
  nb::dict d;
#define TEXT(field, ...) d[#field] = defaults.field;
#define NUMBER(field, ...) d[#field] = defaults.field;
#define WITHOUT(field, ...) d[#field] = defaults.field;
#define LIST(field, ...) d[#field] = defaults.field;
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
  return d;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A program to compile: a path, an archive in memory, or the JSON text of a program with its tensors.
class Source {
 public:
  static Source file(const std::string& path, const ReadOptions& options) {
    Source s;
    s.graph_ = value_or_throw(read_program_file(path, options));
    return s;
  }
  static Source archive(std::span<const uint8_t> bytes, const ReadOptions& options) {
    Source s;
    const ZipReader zip = value_or_throw(ZipReader::from_bytes(bytes, "the program"));
    s.graph_ = value_or_throw(read_program(zip, options));
    return s;
  }
  static Source json(std::string_view text, const std::map<std::string, Weight>& weights, const ReadOptions& options) {
    Source s;
    std::map<std::string, TensorData, std::less<>> tensors;
    for (const auto& [name, w] : weights) {
      TensorData data;
      const auto& [address, bytes, dtype, sizes, strides, source] = w;
      const std::optional<DType> known = dtype_from_name(dtype);
      if (!known) throw PythonError{Error{ErrorCode::unsupported_dtype, "weight '" + name + "' is " + dtype + ", a dtype that coil does not support", "", ""}};
      data.dtype = *known;
      if (source) data.bytes = std::shared_ptr<const ByteSource>(source);
      else data.bytes = {reinterpret_cast<const uint8_t*>(address), bytes};
      data.sizes = sizes;
      data.strides = strides;
      tensors.emplace(name, std::move(data));
    }
    s.graph_ = value_or_throw(read_program_json(text, std::move(tensors), options));
    return s;
  }
  const Graph& graph() const { return graph_; }

 private:
  Graph graph_;
};

nb::dict report_of(const CompileReport& r, double read_seconds) {
  nb::dict stages;
  stages["read"] = read_seconds;
  for (const StageTime& s : r.stages) stages[s.stage.c_str()] = s.seconds;
  nb::dict d;
  d["stages"] = stages;
  d["graph_nodes"] = r.graph_nodes;
  d["loops"] = r.loops;
  d["kernels"] = r.kernels;
  d["functions"] = r.functions;
  d["code_bytes"] = r.code_bytes;
  d["constants_bytes"] = r.constants_bytes;
  d["shared_bytes"] = r.shared_bytes;
  d["arena_bytes"] = r.arena_formula;
  d["hints"] = nb::cast(r.hints);
  d["tuning"] = r.tuning ? nb::module_::import_("json").attr("loads")(tune::record_text(*r.tuning)) : nb::object(nb::none());
  return d;
}

// (package or None, report). `make_sources` runs without the interpreter's lock, as everything that takes time, and Ctrl-C ends it. names: of a package
// of several programs; empty for one of a single program.
template <class F>
nb::tuple compile_sources(F make_sources, const std::vector<std::string>& names, const std::optional<Path>& output, const nb::dict& settings) {
  const Settings s = settings_of(settings);
  const auto once = settings.contains("batch") ? nb::cast<std::shared_ptr<toolchain::MadeOnce>>(settings["batch"]) : nullptr;
  auto package = std::make_unique<Package>();
  CompileReport report;
  double read_seconds = 0;
  std::string cache_note;
  Interruptible process;
  process.run([&] {
    CompileOptions options = value_or_throw(compile_options(s.compile));
    options.name = s.name;
    options.once = once;
    options.checkpoint = [&process] { process.checkpoint(); };
    options.tune.progress = [&process](double) { process.checkpoint(); };
    const double start = now();
    const std::vector<Source> sources = make_sources(s.read);
    read_seconds = now() - start;
    process.checkpoint();
    std::vector<NamedProgram> programs;
    for (size_t i = 0; i < names.size(); ++i) programs.push_back({names[i], &sources[i].graph()});
    if (output) {
      report = value_or_throw(names.empty() ? compile_to_file(sources[0].graph(), output->name, options)
                                            : compile_programs_to_file(programs, output->name, options));
    } else {
      package->bytes =
          value_or_throw(names.empty() ? compile_to_memory(sources[0].graph(), options, &report) : compile_programs_to_memory(programs, options, &report));
    }
    if (report.tuning && !s.compile.record.empty()) throw_if(save_record(s.compile.record, *report.tuning));
    for (const tune::Record& more : report.more_tunings) {
      if (!s.compile.record.empty()) throw_if(save_record(s.compile.record, more));
    }
    if (options.cache) cache_note = options.cache->distrust();
  });
  if (!cache_note.empty() && PyErr_WarnEx(PyExc_RuntimeWarning, ("coil: " + cache_note).c_str(), 1) < 0) throw nb::python_error();
  const nb::object result = output ? nb::none() : nb::cast(package.release(), nb::rv_policy::take_ownership);
  return nb::make_tuple(result, report_of(report, read_seconds));
}

template <class F>
nb::tuple compile_with(F make_source, const std::optional<Path>& output, const nb::dict& settings) {
  return compile_sources([&](const ReadOptions& o) { return std::vector<Source>{make_source(o)}; }, {}, output, settings);
}

nb::tuple compile_file(const Path& path, const std::optional<Path>& output, const nb::dict& settings) {
  return compile_with([&](const ReadOptions& o) { return Source::file(path.name, o); }, output, settings);
}

nb::tuple compile_archive(nb::handle archive, const std::optional<Path>& output, const nb::dict& settings) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(archive.ptr(), &buffer, PyBUF_SIMPLE)) throw nb::python_error();
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> guard(&buffer, PyBuffer_Release);
  return compile_with([&](const ReadOptions& o) { return Source::archive({static_cast<const uint8_t*>(buffer.buf), static_cast<size_t>(buffer.len)}, o); },
                      output, settings);
}

nb::tuple compile_json(const std::string& json, const std::map<std::string, Weight>& weights, const std::optional<Path>& output, const nb::dict& settings) {
  return compile_with([&](const ReadOptions& o) { return Source::json(json, weights, o); }, output, settings);
}

// A source that is read later, without the interpreter's lock; what it is read from is kept by the caller.
struct LaterSource {
  std::string path;
  std::span<const uint8_t> archive;
  std::string json;
  std::map<std::string, Weight> weights;

  Source read(const ReadOptions& options) const {
    if (!path.empty()) return Source::file(path, options);
    return json.empty() ? Source::archive(archive, options) : Source::json(json, weights, options);
  }
};

// [(name, path, the bytes of a .pt2, or (JSON text, weights))]
nb::tuple compile_programs(const std::vector<std::pair<std::string, nb::object>>& programs, const std::optional<Path>& output, const nb::dict& settings) {
  std::vector<std::string> names;
  std::vector<LaterSource> sources;
  std::vector<Py_buffer> buffers(programs.size());
  const auto release = [&buffers](void*) {
    for (Py_buffer& b : buffers) PyBuffer_Release(&b);
  };
  const std::unique_ptr<void, decltype(release)> guard(buffers.data(), release);
  for (size_t i = 0; i < programs.size(); ++i) {
    const auto& [name, source] = programs[i];
    names.push_back(name);
    LaterSource& later = sources.emplace_back();
    if (nb::isinstance<nb::str>(source)) {
      later.path = nb::cast<Path>(source).name;
    } else if (nb::isinstance<nb::tuple>(source)) {
      std::tie(later.json, later.weights) = nb::cast<std::tuple<std::string, std::map<std::string, Weight>>>(source);
    } else {
      if (PyObject_GetBuffer(source.ptr(), &buffers[i], PyBUF_SIMPLE)) throw nb::python_error();
      later.archive = {static_cast<const uint8_t*>(buffers[i].buf), static_cast<size_t>(buffers[i].len)};
    }
  }
  throw_if(check_program_names(names));
  const auto read = [&](const ReadOptions& o) {
    std::vector<Source> all;
    for (const LaterSource& later : sources) all.push_back(later.read(o));
    return all;
  };
  return compile_sources(read, names, output, settings);
}

// [(node, operator, problem, whether coil has no code for the operator at all)] of the nodes that cannot be compiled.
nb::list unsupported(const std::string& json, const nb::dict& settings) {
  const Settings s = settings_of(settings);
  std::vector<NodeProblem> problems;
  Interruptible process;
  process.run([&] {
    CompileOptions options = value_or_throw(compile_options(s.compile));
    options.checkpoint = [&process] { process.checkpoint(); };
    const Source source = Source::json(json, {}, s.read);
    problems = value_or_throw(node_problems(source.graph(), options));
  });
  nb::list rows;
  for (const NodeProblem& p : problems) rows.append(nb::make_tuple(p.node, p.target, p.problem, p.unknown_operator));
  return rows;
}

}  // namespace
}  // namespace coil::python

NB_MODULE(_compiler, m) {
  namespace nb = nanobind;
  using namespace nb::literals;
  using coil::python::Package;
  nb::set_leak_warnings(false);  // what Dynamo holds until the process ends is no leak
  coil::python::translate_errors();
  nb::class_<Package>(m, "Package", nb::type_slots(coil::python::package_slots)).def("__len__", [](const Package& p) { return p.bytes.size(); });
  nb::class_<coil::toolchain::MadeOnce>(m, "Batch").def(nb::init<>());
  nb::class_<coil::ByteSource>(m, "ByteSource").def("__len__", &coil::ByteSource::size).def("read", &coil::python::read_source, "begin"_a, "count"_a);
  m.def("has_block_form", [](const std::string& type) { return coil::block_form(type) != nullptr; }, "type"_a);
  m.def("block_parts", &coil::python::block_parts, "type"_a, "address"_a, "bytes"_a, "mapped"_a, "columns"_a, "order"_a);
  m.def("compile_file", &coil::python::compile_file, "path"_a, "output"_a.none(), "settings"_a);
  m.def("compile_archive", &coil::python::compile_archive, "archive"_a, "output"_a.none(), "settings"_a);
  m.def("compile_json", &coil::python::compile_json, "json"_a, "weights"_a, "output"_a.none(), "settings"_a);
  m.def("compile_programs", &coil::python::compile_programs, "programs"_a, "output"_a.none(), "settings"_a);
  m.def("unsupported", &coil::python::unsupported, "json"_a, "settings"_a);
  m.def("check_kernel", [](const std::string& registration) { coil::python::value_or_throw(coil::user_kernels({registration}, {})); }, "registration"_a);
  m.def("option_defaults", &coil::python::option_defaults);
  m.def("has_lowering", [](const std::string& target) { return coil::has_lowering(target); }, "target"_a);
}
