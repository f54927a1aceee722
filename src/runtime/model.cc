// See model.h.
#include "runtime/model.h"

#include <cstring>

#include "base/env.h"
#include "runtime/cpu_limits.h"

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
      return Error{ErrorCode::bad_package,
                   what + ": '" + tensor.name + "' (" + std::to_string(i) + ") differs in name, dtype or rank"};
  }
  return ok_status();
}

// The blob is exactly what the code expects, with or without the trailer that names its compile.
Status check_constants(const CoilModel& code, std::span<const uint8_t> blob) {
  const bool trailer = blob.size() == code.constants_bytes + sizeof(CoilConstantsTrailer);
  if (!trailer && blob.size() != code.constants_bytes)
    return Error{ErrorCode::bad_package, "the constants have " + std::to_string(blob.size()) + " bytes, the code expects " +
                                             std::to_string(code.constants_bytes)};
  if (!trailer) return ok_status();
  CoilConstantsTrailer t;
  std::memcpy(&t, blob.data() + code.constants_bytes, sizeof t);
  if (std::memcmp(t.magic, COIL_CONSTANTS_MAGIC, sizeof t.magic) != 0 || t.hash != code.constants_hash)
    return Error{ErrorCode::bad_package, "the constants belong to another compile of the model", "",
                 "compile the program again"};
  return ok_status();
}

void serial_loop(void*, int64_t count, int64_t, CoilChunkFn body, void* context) {
  if (count > 0) body(context, 0, count, 0);
}

}  // namespace

Result<std::shared_ptr<Model>> Model::open(const std::string& path, const ModelOptions& options) {
  TRY(Package package, open_package(path));
  auto model = make(std::move(package), options);
  if (!model.ok() && model.error().where.empty()) model.error().where = path;
  return model;
}

Result<std::shared_ptr<Model>> Model::open_memory(std::span<const uint8_t> bytes, const ModelOptions& options) {
  TRY(Package package, read_package(bytes));
  return make(std::move(package), options);
}

Result<std::shared_ptr<Model>> Model::make(Package package, const ModelOptions& options) {
  TRY(Code code, Code::load(package.code, "coil:" + package.name));
  std::shared_ptr<Model> model(new Model(std::move(package), std::move(code)));
  TRY_STATUS(model->check());
  TRY_STATUS(model->init_state());
  TRY_STATUS(model->init_threads(options));
  return model;
}

Status Model::check() const {
  const CoilModel& code = this->code();
  TRY_STATUS(check_tensors("inputs", code.inputs, code.num_inputs, manifest().inputs));
  TRY_STATUS(check_tensors("outputs", code.outputs, code.num_outputs, manifest().outputs));
  return check_constants(code, package_.constants);
}

Status Model::init_state() {
  const CoilModel& code = this->code();
  if (!code.state_bytes) return ok_status();
  if (code.state_offset > code.constants_bytes || code.state_bytes > code.constants_bytes - code.state_offset)
    return Error{ErrorCode::bad_package, "the initial state lies outside of the constants"};
  if (!state_.reserve(static_cast<int64_t>(code.state_bytes)))
    return Error{ErrorCode::out_of_memory, "no memory for the model's state of " + std::to_string(code.state_bytes) + " bytes"};
  reset_state();
  return ok_status();
}

void Model::reset_state() {
  if (!state_.data()) return;
  std::lock_guard lock(state_mutex_);
  std::memcpy(state_.data(), constants() + code().state_offset, code().state_bytes);
}

Status Model::init_threads(const ModelOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMostThreads)
    return Error{ErrorCode::bad_option, "num_threads is " + std::to_string(options.num_threads) +
                                            ", expected 0 (automatic) to " + std::to_string(kMostThreads)};
  if (options.parallel_for) {
    if (options.num_threads < 1)
      return Error{ErrorCode::bad_option, "parallel_for needs num_threads: how many threads it uses at most, at least 1"};
    host_ = {options.num_threads, options.pool, options.parallel_for};
    return ok_status();
  }
  if (options.num_threads == 0) {
    TRY(const int64_t wish, env_int("COIL_THREADS", 1, kMostThreads, 0));
    pool_ = ThreadPool::shared(wish ? static_cast<int>(wish) : allowed_cpus());
  } else if (options.num_threads > 1) {
    pool_ = std::make_shared<ThreadPool>(options.num_threads);
  }
  if (!pool_ || pool_->num_threads() == 1)
    host_ = {1, nullptr, serial_loop};
  else
    host_ = {pool_->num_threads(), pool_.get(), ThreadPool::run_loop};
  return ok_status();
}

}  // namespace coil::runtime
