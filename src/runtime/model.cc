// See model.h.
#include "runtime/model.h"

#include <map>
#include <tuple>

#include "base/cpu_limits.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/host_machine.h"
#include "device/model_call.h"
#include "runtime/kernel_table.h"
#include "runtime/perf_dump.h"
#include "runtime/profile.h"
#include "runtime/programs.h"

namespace coil::runtime {
namespace {

constexpr int kMostThreads = 4096;

Status check_tensors(const char* kind, const CoilTensorDesc* code, int32_t count, const std::vector<ManifestTensor>& manifest) {
  const std::string what = std::string("the manifest and the code disagree about the ") + kind;
  if (static_cast<size_t>(count) != manifest.size())
    return Error{ErrorCode::bad_package, what + ": " + std::to_string(manifest.size()) + " against " + std::to_string(count)};
  for (int32_t i = 0; i < count; i++) {
    const ManifestTensor& tensor = manifest[static_cast<size_t>(i)];
    if (code[i].ndim < 0 || code[i].ndim > COIL_MAX_RANK)
      return Error{ErrorCode::bad_package, std::string("the code has an impossible rank among its ") + kind};
    if (code[i].dtype != tensor.dtype || static_cast<size_t>(code[i].ndim) != tensor.dims.size() || tensor.name != code[i].name)
      return Error{ErrorCode::bad_package, what + ": '" + tensor.name + "' (" + std::to_string(i) + ") differs in name, dtype or rank"};
  }
  return ok_status();
}

// A blob of several programs: long enough, and one of the trailers at its end is this program's.
Status check_shared_constants(const CoilModel& code, std::span<const uint8_t> blob) {
  if (code.constants_bytes == 0) return ok_status();
  if (blob.size() < code.constants_bytes)
    return Error{ErrorCode::bad_package,
                 "the programs' constants have " + std::to_string(blob.size()) + " bytes, the code expects at least " + std::to_string(code.constants_bytes)};
  if (cd::has_trailer(code, blob.data(), blob.size())) return ok_status();
  return Error{ErrorCode::bad_package, "the constants belong to another compile of the program", "", "compile the programs again"};
}

// Weights on a device; those that several programs of a package have in common are there once.
Result<std::shared_ptr<const Buffer>> upload_constants(const std::shared_ptr<const CudaDevice>& cuda, std::span<const uint8_t> blob, bool shared) {
  struct Uploaded {
    std::shared_ptr<const CudaDevice> device;  // outlives the memory
    Buffer memory;
  };
  using Key = std::tuple<const uint8_t*, size_t, int32_t>;
  static std::mutex mutex;
  static auto* const known = new std::map<Key, std::weak_ptr<const Buffer>>;
  const std::lock_guard lock(mutex);  // two that open programs of one package at a time upload once
  const Key key{blob.data(), blob.size(), cuda->id().index};
  if (shared) {
    std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = known->find(key); found != known->end()) {
      if (auto uploaded = found->second.lock()) return uploaded;
    }
  }
  auto made = std::make_shared<Uploaded>(Uploaded{cuda, Buffer(*cuda)});
  const auto bytes = static_cast<int64_t>(blob.size());
  CoilError error{};
  if (!made->memory.reserve(bytes, &error)) return error_of(error).with_context("no memory for " + std::to_string(bytes) + " bytes of weights");
  if (cuda->upload(made->memory.data(), blob.data(), bytes, &error)) return error_of(error);
  std::shared_ptr<const Buffer> buffer(made, &made->memory);
  if (shared) (*known)[key] = buffer;
  return buffer;
}

// The blob is exactly what the code expects, with or without the trailer that names its compile.
Status check_constants(const CoilModel& code, std::span<const uint8_t> blob) {
  const bool trailer = blob.size() == code.constants_bytes + sizeof(CoilConstantsTrailer);
  if (!trailer && blob.size() != code.constants_bytes)
    return Error{ErrorCode::bad_package,
                 "the constants have " + std::to_string(blob.size()) + " bytes, the code expects " + std::to_string(code.constants_bytes)};
  if (trailer && !cd::has_trailer(code, blob.data(), blob.size()))
    return Error{ErrorCode::bad_package, "the constants belong to another compile of the model", "", "compile the program again"};
  return ok_status();
}

std::string target_text(const Target& target) {
  std::string list;
  for (const std::string& name : target.architectures) list += (list.empty() ? "" : ", ") + name;
  const std::string kind = target.device_type != COIL_CPU ? "cuda" : target.machine == "x86-64" ? "cpu" : target.machine;
  return kind + (list.empty() ? "" : " (" + list + ")");
}

// Another target of the package may do.
bool is_about_machine(ErrorCode code) {
  return code == ErrorCode::wrong_machine || code == ErrorCode::no_cuda_driver || code == ErrorCode::no_cuda_device || code == ErrorCode::load_failed;
}

void serial_loop(void*, int64_t count, int64_t, CoilChunkFn body, void* context) {
  if (count > 0) body(context, 0, count, 0);
}

}  // namespace

Result<std::shared_ptr<Model>> Model::open(const std::string& path, const ModelOptions& options) {
  TRY(Package package, open_package(path, options.program));
  auto model = make(std::move(package), options);
  if (!model.ok() && model.error().where.empty()) model.error().where = path;
  return model;
}

Result<std::shared_ptr<Model>> Model::open_memory(std::span<const uint8_t> bytes, const ModelOptions& options) {
  TRY(Package package, read_package(bytes, options.program));
  return make(std::move(package), options);
}

Result<std::shared_ptr<Model>> Model::open_program(const std::string& program) const {
  TRY(Package package, read_package(package_.zip, program));
  ModelOptions options = options_;
  options.program = package.program;
  options.device = device_->id().type == COIL_CUDA ? "cuda:" + std::to_string(device_->id().index) : "cpu";
  if (pool_ && options.num_threads > 1) {  // the same threads
    options.num_threads = pool_->num_threads();
    options.parallel_for = ThreadPool::run_loop;
    options.pool = pool_.get();
  }
  TRY(std::shared_ptr<Model> model, make(std::move(package), options));
  model->pool_ = pool_;
  return model;
}

Status Model::takes_states_of(const Model& other) const {
  if (this == &other) return ok_status();
  const bool package = package_.several && package_.zip == other.package_.zip;
  if (!package) return Error{ErrorCode::state_mismatch, "the state belongs to another model", "", "make it with coil_state_create of the context's model"};
  if (device_->id().type != other.device_->id().type || device_->id().index != other.device_->id().index)
    return Error{ErrorCode::state_mismatch, "the state is on " + other.device_->text() + ", the program on " + device_->text(), "", "open both on one device"};
  return same_states(package_.program, target_.states, other.package_.program, other.target_.states);
}

// The targets are tried in the package's order; those of another kind of device than the wished one, and of other machines, are left out. When none
// can run here, the error is that of the first that was tried, with the others' beside it.
Result<std::shared_ptr<Model>> Model::make(Package package, const ModelOptions& options) {
  TRY_STATUS(start_profile_of_environment());
  std::optional<DeviceId> wish;
  if (!options.device.empty()) {
    TRY(wish, parse_device(options.device));
  }
  std::optional<Error> failure;
  std::string held;
  bool for_others = false;
  for (const Target& target : package.manifest.targets) {
    held += (held.empty() ? "" : ", ") + target_text(target);
    if (wish && wish->type != target.device_type) continue;
    if (target.device_type == COIL_CPU && target.machine != this_machine().name) {
      for_others = true;
      continue;
    }
    auto model = make_for(package, target, wish.value_or(DeviceId{target.device_type, 0}), options);
    if (model.ok() || !is_about_machine(model.error().code)) return model;
    if (!failure) {
      failure = std::move(model).error();
    } else {
      failure->message += "; " + target_text(target) + ": " + model.error().message;
    }
  }
  if (failure) return *std::move(failure);
  const std::string machine(this_machine().name), cpu = machine == "x86-64" ? "cpu" : machine;
  const bool gpu = wish && wish->type == COIL_CUDA;
  return Error{ErrorCode::wrong_machine,
               "the package holds code for " + held + ", not for " + (for_others ? "this machine, which is " + machine : options.device), "",
               "compile the program with --target " + (gpu ? "cuda:sm_90" : cpu)};
}

Result<std::shared_ptr<Model>> Model::make_for(const Package& package, const Target& target, DeviceId device, const ModelOptions& options) {
  TRY(PackagePart part, package.part(target, options.verify));
  TRY(Code code, Code::load(part.code, "coil:" + package.name));
  if (code.model().device_type != target.device_type)
    return Error{ErrorCode::bad_package, "the manifest and the code of " + target.model + " disagree about its kind of device"};
  std::shared_ptr<const CudaDevice> cuda;
  if (device.type == COIL_CUDA) {
    TRY(cuda, CudaDevice::open(device.index));
  }
  std::shared_ptr<Model> model(new Model(package, target, std::move(part), std::move(code), std::move(cuda)));
  model->options_ = options;
  TRY_STATUS(model->check());
  TRY_STATUS(model->load_on_device());
  TRY_STATUS(model->init_state());
  TRY_STATUS(model->init_threads(options));
  TRY_STATUS(tell_perf(*model));
  return model;
}

Model::Model(Package package, Target target, PackagePart part, Code code, std::shared_ptr<const CudaDevice> cuda)
    : package_(std::move(package)),
      target_(std::move(target)),
      part_(std::move(part)),
      code_(std::move(code)),
      cuda_(std::move(cuda)),
      device_(cuda_ ? static_cast<const Device*>(cuda_.get()) : &cpu_device()),
      isa_(cuda_ ? cuda_->architecture() : code_.isa()) {}

Model::~Model() {
  if (!cuda_) return;
  const cd::CudaScope scope(&cuda_->driver(), cuda_->context());
  cuda_->driver().synchronise();  // kernels may still run; a failure of theirs was, or will be, told to who waits for it
  state_.reset();
  if (loaded_) code().unload_device(loaded_);
}

// Constants in the device's memory, code on the device.
Status Model::load_on_device() {
  constants_ = part_.constants.data();
  if (!cuda_) return ok_status();
  const CoilModel& code = this->code();
  CoilError error{};
  if (code.load_device(cuda_->id().index, &loaded_, &error)) return error_of(error);
  if (!code.constants_bytes) return ok_status();
  TRY(uploaded_, upload_constants(cuda_, package_.several ? part_.constants : part_.constants.first(code.constants_bytes), package_.several));
  constants_ = uploaded_->data();
  return ok_status();
}

Status Model::check() const {
  const CoilModel& code = this->code();
  TRY_STATUS(check_tensors("inputs", code.inputs, code.num_inputs, manifest().inputs));
  TRY_STATUS(check_tensors("outputs", code.outputs, code.num_outputs, manifest().outputs));
  return package_.several ? check_shared_constants(code, part_.constants) : check_constants(code, part_.constants);
}

Status Model::init_state() {
  if (!code().state_bytes) return ok_status();
  TRY(state_, State::make(*this, false));
  return ok_status();
}

uint64_t Model::identity() const {
  if (package_.several) {  // one for all programs that go on with each other's states
    std::string text = std::to_string(package_.identity()) + " " + std::to_string(target_.device_type);
    for (const ManifestState& s : target_.states) {
      text += "\n" + s.name + " " + std::to_string(s.dtype) + " " + std::to_string(s.offset);
      for (const int64_t size : s.sizes) text += " " + std::to_string(size);
    }
    return hash64(text);
  }
  const uint64_t parts[] = {code().constants_hash, hash64(part_.code)};
  return hash64(std::span(reinterpret_cast<const uint8_t*>(parts), sizeof parts));
}

std::shared_ptr<const KernelTable> Model::kernel_table() const {
  std::call_once(table_read_, [&] { table_ = read_kernel_table(*this); });
  return table_;
}

Status Model::init_threads(const ModelOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMostThreads)
    return Error{ErrorCode::bad_option,
                 "num_threads is " + std::to_string(options.num_threads) + ", expected 0 (automatic) to " + std::to_string(kMostThreads)};
  if (cuda_) {
    host_ = {1, nullptr, serial_loop};
    return ok_status();
  }
  if (options.parallel_for) {
    if (options.num_threads < 1) return Error{ErrorCode::bad_option, "parallel_for needs num_threads: how many threads it uses at most, at least 1"};
    host_ = {options.num_threads, options.pool, options.parallel_for};
    return ok_status();
  }
  if (options.num_threads == 0) {
    TRY(const int64_t wish, env_int("COIL_THREADS", 1, kMostThreads, 0));
    pool_ = ThreadPool::shared(wish ? static_cast<int>(wish) : allowed_cpus());
  } else if (options.num_threads > 1) {
    pool_ = std::make_shared<ThreadPool>(options.num_threads);
  }
  if (!pool_ || pool_->num_threads() == 1) host_ = {1, nullptr, serial_loop};
  else host_ = {pool_->num_threads(), pool_.get(), ThreadPool::run_loop};
  return ok_status();
}

}  // namespace coil::runtime
