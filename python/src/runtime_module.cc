// coil._runtime: packages opened and run. Needs neither the compiler nor any other library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/host_machine.h"
#include "base/env.h"
#include "base/files.h"
#include "call.h"
#include "coil/coil.h"
#include "errors.h"
#include "generation.h"
#include "path.h"
#include "report/report.h"
#include "runtime/profile.h"

namespace coil::python {
namespace {

// A package in memory that somebody else owns, seen through the buffer protocol.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE)) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::span<const uint8_t> span() const { return {static_cast<const uint8_t*>(buffer_.buf), static_cast<size_t>(buffer_.len)}; }

 private:
  Py_buffer buffer_{};
};

using Options = runtime::ModelOptions;

std::unique_ptr<CallableModel> open_file(const Path& path, const std::string& device, int threads, bool verify, const std::string& program) {
  Options options;
  if (verify) options.verify = runtime::Verify::all;
  options.num_threads = threads;
  options.device = device;
  options.program = program;
  std::shared_ptr<runtime::Model> model;
  {
    nb::gil_scoped_release release;
    model = value_or_throw(runtime::Model::open(path.name, options));
  }
  return std::make_unique<CallableModel>(std::move(model), nb::none());
}

std::unique_ptr<CallableModel> open_memory(nb::object package, const std::string& device, int threads) {
  Options options;
  options.num_threads = threads;
  options.device = device;
  auto bytes = std::make_unique<Bytes>(package);
  std::shared_ptr<runtime::Model> model;
  {
    nb::gil_scoped_release release;
    model = value_or_throw(runtime::Model::open_memory(bytes->span(), options));
  }
  Bytes* kept = bytes.release();
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Bytes*>(p); });
  return std::make_unique<CallableModel>(std::move(model), owner);
}

std::unique_ptr<CallableModel> open_program(const CallableModel& c, const std::string& name) {
  std::shared_ptr<runtime::Model> model;
  {
    nb::gil_scoped_release release;
    model = value_or_throw(c.model().open_program(name));
  }
  return std::make_unique<CallableModel>(std::move(model), nb::none());
}

void save(const CallableModel& c, const Path& path) {
  nb::gil_scoped_release release;
  throw_if(write_file(path.name, c.model().archive().bytes()));
}

void write_bytes(const Path& path, nb::object content) {
  const Bytes bytes(content);
  nb::gil_scoped_release release;
  throw_if(write_file(path.name, bytes.span()));
}

OwnedState fork(const OwnedState& s) {
  nb::gil_scoped_release release;
  return {s.model, value_or_throw(s.state->fork())};
}

void reset(const OwnedState& s) {
  nb::gil_scoped_release release;
  throw_if(s.state->reset());
}

nb::bytes save_state(const OwnedState& s) {
  std::vector<uint8_t> saved;
  {
    nb::gil_scoped_release release;
    saved = value_or_throw(s.state->save());
  }
  return nb::bytes(reinterpret_cast<const char*>(saved.data()), saved.size());
}

void restore_state(const OwnedState& s, nb::object saved) {
  const Bytes bytes(saved);
  nb::gil_scoped_release release;
  throw_if(s.state->restore(bytes.span().data(), bytes.span().size()));
}

// [(name, dtype, [(symbol or None, min, max or None, hint or None)], number or None, mutated, whole storage, exact strides)]
nb::list tensors(const std::vector<runtime::ManifestTensor>& list) {
  nb::list rows;
  for (const runtime::ManifestTensor& t : list) {
    nb::list dims;
    for (const runtime::ManifestDim& d : t.dims) {
      const nb::object symbol = d.symbol.empty() ? nb::none() : nb::object(nb::str(d.symbol.c_str()));
      dims.append(
          nb::make_tuple(symbol, d.min, d.max == INT64_MAX ? nb::none() : nb::object(nb::int_(d.max)), d.hint < 0 ? nb::none() : nb::object(nb::int_(d.hint))));
    }
    const std::string number = t.scalar ? "int" : t.number;
    rows.append(nb::make_tuple(t.name, coil_dtype_name(t.dtype), dims, number.empty() ? nb::none() : nb::object(nb::str(number.c_str())), t.mutated,
                               t.whole_storage, t.exact_strides));
  }
  return rows;
}

nb::dict fixed_inputs(const runtime::Manifest& manifest) {
  nb::dict rows;
  for (const runtime::FixedInput& f : manifest.fixed_inputs) {
    const nb::object value = std::visit(
        [](const auto& v) -> nb::object {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
            return nb::none();
          } else {
            return nb::cast(v);
          }
        },
        f.value);
    rows[nb::int_(f.position)] = nb::make_tuple(f.name, value);
  }
  return rows;
}

// Stops when its object goes.
struct WatchedProfile {
  explicit WatchedProfile(std::shared_ptr<runtime::Profile> started) : profile(std::move(started)) {}
  ~WatchedProfile() { profile->stop(); }
  WatchedProfile(const WatchedProfile&) = delete;
  WatchedProfile& operator=(const WatchedProfile&) = delete;
  const std::shared_ptr<runtime::Profile> profile;
};

std::unique_ptr<WatchedProfile> start_profile(const CallableModel* model, int64_t calls, bool counters, bool all_calls) {
  if (calls < 0) throw PythonError{Error{ErrorCode::bad_option, "calls is " + std::to_string(calls) + ", expected 0 (until the end) or more"}};
  return std::make_unique<WatchedProfile>(runtime::Profile::start(model ? &model->model() : nullptr, {calls, counters, all_calls}));
}

void write_trace(const WatchedProfile& p, const Path& path) {
  nb::gil_scoped_release release;
  const std::string text = p.profile->trace_json();
  throw_if(write_file(path.name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

std::string profile_table(const WatchedProfile& p) {
  nb::gil_scoped_release release;
  return p.profile->table_json();
}

// A report of calls that a profile has; the page of one or two.
std::string report_json(const CallableModel& c, const WatchedProfile& p, const std::string& title, const std::string& record) {
  nb::gil_scoped_release release;
  return value_or_throw(report::report_json(c.model(), *p.profile, report::measure_limits(c.model()), {title, record}));
}

// What identifies an open model.
uintptr_t key_of(const runtime::Model& model) { return reinterpret_cast<uintptr_t>(&model); }

// A report for each model of the recorded calls that is still open, with the model's key.
std::vector<std::pair<uintptr_t, std::string>> report_all(const WatchedProfile& p) {
  nb::gil_scoped_release release;
  std::vector<std::pair<uintptr_t, std::string>> reports;
  report::Limits limits;
  for (const auto& model : p.profile->models()) {
    if (reports.empty()) limits = report::measure_limits(*model);
    reports.emplace_back(key_of(*model), value_or_throw(report::report_json(*model, *p.profile, limits, {model->name(), ""})));
  }
  return reports;
}

std::string report_page(const std::vector<std::string>& reports) {
  nb::gil_scoped_release release;
  return value_or_throw(report::report_page(reports));
}

// The level of this machine that a package's code would be chosen for here; COIL_ISA lowers it.
std::string host_isa() {
  std::vector<std::string> all;
  for (const HostLevel& level : this_machine().levels) all.emplace_back(level.name);
  return std::string(level_here(all).full_name);
}

nb::list cuda_devices() {
  nb::list devices;
  const runtime::CudaInfo info = value_or_throw(runtime::cuda_info());
  for (const auto& d : info.devices) devices.append(nb::make_tuple(d.name, d.major * 10 + d.minor, d.memory_bytes));
  return devices;
}

}  // namespace
}  // namespace coil::python

NB_MODULE(_runtime, m) {
  namespace nb = nanobind;
  using namespace nb::literals;
  using coil::python::CallableModel;
  nb::set_leak_warnings(false);  // what Dynamo holds until the process ends is no leak
  coil::python::translate_errors();
  m.attr("__version__") = COIL_VERSION;
  coil::python::add_generation(m);
  m.def("host_isa", &coil::python::host_isa);
  m.def("cuda_devices", &coil::python::cuda_devices);
  m.def("write_file", &coil::python::write_bytes, "path"_a, "content"_a);
  nb::class_<coil::python::WatchedProfile>(m, "Profile")
      .def("stop", [](const coil::python::WatchedProfile& p) { p.profile->stop(); })
      .def("write", &coil::python::write_trace, "path"_a)
      .def("table", &coil::python::profile_table)
      .def("reports", &coil::python::report_all)
      .def_prop_ro("num_calls", [](const coil::python::WatchedProfile& p) { return p.profile->calls().size(); });
  m.def("report_page", &coil::python::report_page, "reports"_a);
  m.def("start_profile", &coil::python::start_profile, "model"_a.none(), "calls"_a = 0, "counters"_a = false, "all_calls"_a = false, nb::keep_alive<0, 1>());
  nb::class_<coil::python::OwnedState>(m, "State")
      .def("fork", &coil::python::fork)
      .def("reset", &coil::python::reset)
      .def("save", &coil::python::save_state)
      .def("restore", &coil::python::restore_state, "saved"_a);
  m.def("report_json", &coil::python::report_json, "model"_a, "profile"_a, "title"_a, "record"_a = "");
  nb::class_<CallableModel>(m, "Model", nb::is_weak_referenceable())
      .def_static("open", &coil::python::open_file, "path"_a, "device"_a = "", "threads"_a = 0, "verify"_a = false, "program"_a = "")
      .def_static("open_memory", &coil::python::open_memory, "package"_a, "device"_a = "", "threads"_a = 0)
      .def("open_program", &coil::python::open_program, "name"_a, nb::keep_alive<0, 1>())
      .def_prop_ro("programs", [](const CallableModel& c) { return c.model().package().programs; })
      .def_prop_ro("program", [](const CallableModel& c) { return c.model().package().program; })
      .def("run", &CallableModel::run, "flat"_a, "state"_a.none() = nb::none())
      .def("new_state", &CallableModel::new_state)
      .def_prop_ro("state_bytes", [](const CallableModel& c) { return c.model().code().state_bytes; })
      .def("save", &coil::python::save, "path"_a)
      .def("synchronize", &CallableModel::synchronize)
      .def("check", &CallableModel::check)
      .def("reset_state", &CallableModel::reset_state)
      .def_prop_ro("name", [](const CallableModel& c) { return c.model().name(); })
      .def_prop_ro("key", [](const CallableModel& c) { return coil::python::key_of(c.model()); })
      .def_prop_ro("isa", [](const CallableModel& c) { return c.model().isa(); })
      .def_prop_ro("device", [](const CallableModel& c) { return c.model().device().text(); })
      .def_prop_ro("threads", [](const CallableModel& c) { return c.model().host().num_workers; })
      .def_prop_ro("has_constants", [](const CallableModel& c) { return c.model().archive().find(c.model().name() + "/data/coil/constants.json") != nullptr; })
      .def_prop_ro("in_spec", [](const CallableModel& c) { return std::string(c.model().code().in_spec); })
      .def_prop_ro("out_spec", [](const CallableModel& c) { return std::string(c.model().code().out_spec); })
      .def_prop_ro("argument_names", [](const CallableModel& c) { return c.model().manifest().argument_names; })
      .def_prop_ro("inputs", [](const CallableModel& c) { return coil::python::tensors(c.model().manifest().inputs); })
      .def_prop_ro("outputs", [](const CallableModel& c) { return coil::python::tensors(c.model().manifest().outputs); })
      .def_prop_ro("output_places", [](const CallableModel& c) { return c.model().manifest().output_places; })
      .def_prop_ro("fixed_inputs", [](const CallableModel& c) { return coil::python::fixed_inputs(c.model().manifest()); });
}
