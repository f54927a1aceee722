// coil's runtime in C++17: a thin, header-only wrapper of coil.h with owners, views and exceptions. Link libcoil_runtime.
//
//   coil::Model model("model.coil.pt2");
//   coil::Context context(model);
//   std::vector<float> x(2 * 16, 1.0f);
//   for (const coil::Tensor& y : context.run({coil::Tensor(x.data(), {2, 16})})) use(y.data<float>(), y.sizes());
//
// On CUDA (coil::Model model("model.coil.pt2", coil::Options().device("cuda:0"))) tensors hold device addresses, Context::run
// enqueues on a stream, and coil::DeviceMemory and the copies of Context move data:
//   coil::DeviceMemory x(model, bytes);
//   context.copy_to_device(x.data(), host_x, bytes);
//   auto outputs = context.run({coil::Tensor(x.data(), COIL_DTYPE_FLOAT32, {2, 16}).on(model)}, stream);
//   context.copy_from_device(host_y, outputs[0].data(), outputs[0].numel() * 4);
//
// Threads: share a Model, give each thread its own Context. Errors are coil::Exception, with the number of the COIL-Exxx code.
#ifndef COIL_COIL_HPP_
#define COIL_COIL_HPP_

#include <coil/coil.h>

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coil {

class Exception : public std::runtime_error {
 public:
  Exception(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }  // 204 for COIL-E204

 private:
  int code_;
};

inline void check(coil_status status) {
  if (status != COIL_OK) throw Exception(status, coil_last_error());
}

// The coil_dtype of a C++ type. 16-bit floats have none: construct their tensors with an explicit dtype.
template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr coil_dtype value = COIL_DTYPE_FLOAT32;
};
template <>
struct DtypeOf<double> {
  static constexpr coil_dtype value = COIL_DTYPE_FLOAT64;
};
template <>
struct DtypeOf<std::complex<float>> {
  static constexpr coil_dtype value = COIL_DTYPE_COMPLEX64;
};
template <>
struct DtypeOf<std::complex<double>> {
  static constexpr coil_dtype value = COIL_DTYPE_COMPLEX128;
};
template <>
struct DtypeOf<bool> {
  static constexpr coil_dtype value = COIL_DTYPE_BOOL;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr coil_dtype value = COIL_DTYPE_UINT8;
};
template <>
struct DtypeOf<std::int8_t> {
  static constexpr coil_dtype value = COIL_DTYPE_INT8;
};
template <>
struct DtypeOf<std::int16_t> {
  static constexpr coil_dtype value = COIL_DTYPE_INT16;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr coil_dtype value = COIL_DTYPE_INT32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr coil_dtype value = COIL_DTYPE_INT64;
};

class Model;

// A view of memory that somebody else owns, with sizes (and strides, in elements) of its own.
class Tensor {
 public:
  Tensor() = default;  // as an output: "give me memory"
  Tensor(void* data, coil_dtype dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {})
      : data_(data), dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {}
  // Contiguous when there are no strides. Inputs are only read.
  template <class T>
  Tensor(T* data, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {})
      : Tensor(const_cast<void*>(static_cast<const void*>(data)), DtypeOf<std::remove_const_t<T>>::value, std::move(sizes), std::move(strides)) {}
  // Copies the description, not the data.
  explicit Tensor(const coil_tensor& t)
      : data_(t.data), dtype_(static_cast<coil_dtype>(t.dtype)), device_type_(t.device_type), device_index_(t.device_index), sizes_(t.sizes, t.sizes + t.rank) {
    if (t.strides) strides_.assign(t.strides, t.strides + t.rank);
  }

  void* data() const { return data_; }
  // Throws when T is not the tensor's type.
  template <class T>
  T* data() const {
    if (DtypeOf<std::remove_const_t<T>>::value != dtype_)
      throw Exception(202,
                      std::string("COIL-E202: the tensor is ") + coil_dtype_name(dtype_) + ", not " + coil_dtype_name(DtypeOf<std::remove_const_t<T>>::value));
    return static_cast<T*>(data_);
  }
  coil_dtype dtype() const { return dtype_; }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }  // empty: contiguous
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t size : sizes_) n *= size;
    return n;
  }
  // The same tensor, on this device: its address is one of that device's memory.
  Tensor on(coil_device_type type, std::int32_t index = 0) const {
    Tensor t = *this;
    t.device_type_ = type;
    t.device_index_ = index;
    return t;
  }
  Tensor on(const Model& model) const;  // on the model's device
  bool on_cpu() const { return device_type_ == COIL_DEVICE_CPU; }
  std::int32_t device_index() const { return device_index_; }
  // Valid as long as this tensor is not changed.
  coil_tensor c_tensor() const {
    return {data_, sizes_.data(), strides_.empty() ? nullptr : strides_.data(), static_cast<std::int32_t>(sizes_.size()), dtype_, device_type_, device_index_};
  }

 private:
  void* data_ = nullptr;
  coil_dtype dtype_ = COIL_DTYPE_FLOAT32;
  std::int32_t device_type_ = COIL_DEVICE_CPU;
  std::int32_t device_index_ = 0;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

using TensorInfo = coil_tensor_info;  // the pointers inside live as long as the model

// How to open a model: Options().device("cuda:1").threads(4).
class Options {
 public:
  Options() { c_.struct_bytes = sizeof c_; }
  Options& device(std::string name) {
    device_ = std::move(name);
    return *this;
  }
  Options& threads(std::int32_t count) {
    c_.num_threads = count;
    return *this;
  }
  Options& verify(coil_verify which) {
    c_.verify = which;
    return *this;
  }
  // Of a package of several programs, by its name.
  Options& program(std::string name) {
    program_ = std::move(name);
    return *this;
  }
  // Valid as long as these options are not changed.
  coil_options c_options() const {
    coil_options c = c_;
    c.device = device_.empty() ? nullptr : device_.c_str();
    c.program = program_.empty() ? nullptr : program_.c_str();
    return c;
  }

 private:
  coil_options c_ = {};
  std::string device_, program_;
};

// An open package. Copies share it.
class Model {
 public:
  Model(const std::string& path, const Options& options) {
    const coil_options c = options.c_options();
    *this = Model(path, &c);
  }
  explicit Model(const std::string& path, const coil_options* options = nullptr) {
    coil_model* model = nullptr;
    check(coil_open(path.c_str(), options, &model));
    model_.reset(model, coil_close);
  }
  // `bytes` stay valid and unchanged as long as the model lives.
  Model(const void* bytes, std::size_t size, const coil_options* options = nullptr) {
    coil_model* model = nullptr;
    check(coil_open_memory(bytes, size, options, &model));
    model_.reset(model, coil_close);
  }

  std::vector<TensorInfo> inputs() const {
    std::vector<TensorInfo> list(static_cast<std::size_t>(coil_num_inputs(get())));
    for (std::size_t i = 0; i < list.size(); i++) check(coil_input_info(get(), static_cast<std::int32_t>(i), &list[i]));
    return list;
  }
  std::vector<TensorInfo> outputs() const {
    std::vector<TensorInfo> list(static_cast<std::size_t>(coil_num_outputs(get())));
    for (std::size_t i = 0; i < list.size(); i++) check(coil_output_info(get(), static_cast<std::int32_t>(i), &list[i]));
    return list;
  }
  // The programs of the package, and which of them this is.
  std::vector<std::string> programs() const {
    std::vector<std::string> names(static_cast<std::size_t>(coil_num_programs(get())));
    for (std::size_t i = 0; i < names.size(); i++) names[i] = coil_program_name(get(), static_cast<std::int32_t>(i));
    return names;
  }
  std::string program() const { return coil_model_program(get()); }
  // Another program of the package, which has the weights, and as far as they are the same the states, in common with this one.
  Model operator[](const std::string& name) const {
    coil_model* model = nullptr;
    check(coil_open_program(get(), name.c_str(), &model));
    Model other;
    other.model_.reset(model, coil_close);
    return other;
  }
  // Where output i stands among all flattened results of the program, those that are None included.
  std::int32_t output_position(std::int32_t i) const { return coil_output_position(get(), i); }
  std::string isa() const { return coil_isa(get()); }
  int num_threads() const { return coil_num_threads(get()); }
  coil_device_type device_type() const { return static_cast<coil_device_type>(coil_model_device_type(get())); }
  std::int32_t device_index() const { return coil_model_device_index(get()); }
  void reset_state() { check(coil_reset_state(get())); }
  coil_model* get() const { return model_.get(); }

 private:
  Model() = default;
  std::shared_ptr<coil_model> model_;
};

inline Tensor Tensor::on(const Model& model) const { return on(model.device_type(), model.device_index()); }

// A block of the memory of a model's device.
class DeviceMemory {
 public:
  DeviceMemory(const Model& model, std::size_t bytes) : model_(model) { check(coil_alloc(model.get(), bytes, &data_)); }
  ~DeviceMemory() { coil_free(model_.get(), data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  Model model_;
  void* data_ = nullptr;
};

// What a program changes from call to call: the caches of one conversation. Copies share it; fork() gives another with the same contents.
class State {
 public:
  explicit State(const Model& model) : model_(model) {
    coil_state* state = nullptr;
    check(coil_state_create(model.get(), &state));
    state_.reset(state, coil_state_destroy);
  }
  State fork() const {
    coil_state* copy = nullptr;
    check(coil_state_fork(get(), &copy));
    return State(model_, copy);
  }
  void reset() { check(coil_state_reset(get())); }
  std::vector<unsigned char> save() const {
    std::size_t size = 0;
    check(coil_state_save(get(), nullptr, &size));
    std::vector<unsigned char> bytes(size);
    check(coil_state_save(get(), bytes.data(), &size));
    bytes.resize(size);
    return bytes;
  }
  void restore(const std::vector<unsigned char>& bytes) { check(coil_state_restore(get(), bytes.data(), bytes.size())); }
  coil_state* get() const { return state_.get(); }

 private:
  State(const Model& model, coil_state* state) : model_(model), state_(state, coil_state_destroy) {}
  Model model_;
  std::shared_ptr<coil_state> state_;
};

// Runs a model, one call at a time.
class Context {
 public:
  explicit Context(const Model& model) : model_(model) {
    coil_context* context = nullptr;
    check(coil_context_create(model.get(), &context));
    context_.reset(context);
  }

  // Outputs in memory of this context, valid until its next run. On CUDA the work is enqueued on `stream`, not waited for.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, void* stream = nullptr) {
    std::vector<Tensor> outputs(static_cast<std::size_t>(coil_num_outputs(model_.get())));
    run(inputs, outputs, stream);
    return outputs;
  }
  // Outputs with data are written in place and must have the result's dtype and shape; the others are given memory.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, void* stream = nullptr) {
    const auto on_stream = [stream](coil_context* context, const coil_tensor* in, std::int32_t num_in, coil_tensor* out, std::int32_t num_out) {
      return coil_run_on(context, stream, in, num_in, out, num_out);
    };
    call(on_stream, inputs, outputs);
  }
  // Calls from now on use this state instead of the model's.
  void use(const State& state) { check(coil_context_use_state(context_.get(), state.get())); }
  // Waits for the last run; throws what its kernels found at fault.
  void synchronize() { check(coil_synchronize(context_.get())); }
  // After the last run, on its stream; done when they return.
  void copy_to_device(void* device, const void* host, std::size_t bytes) { check(coil_copy_to_device(context_.get(), device, host, bytes)); }
  void copy_from_device(void* host, const void* device, std::size_t bytes) { check(coil_copy_from_device(context_.get(), host, device, bytes)); }
  // Sizes, strides and dtypes of the outputs for inputs like these, without computing.
  std::vector<Tensor> infer(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> outputs(static_cast<std::size_t>(coil_num_outputs(model_.get())));
    call(coil_infer, inputs, outputs);
    return outputs;
  }
  // After a run that threw: which input is at fault, and the strides that the program expects of it after COIL-E205.
  coil_input_fault fault_of_run() const {
    coil_input_fault fault;
    check(coil_fault_of_run(context_.get(), &fault));
    return fault;
  }
  coil_memory memory_of_run() const {
    coil_memory memory;
    check(coil_memory_of_run(context_.get(), &memory));
    return memory;
  }
  coil_context* get() const { return context_.get(); }

 private:
  template <class F>
  void call(F function, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    in_.clear();
    out_.clear();
    for (const Tensor& t : inputs) in_.push_back(t.c_tensor());
    for (const Tensor& t : outputs) out_.push_back(t.data() ? t.c_tensor() : coil_tensor{});
    check(function(context_.get(), in_.data(), static_cast<std::int32_t>(in_.size()), out_.data(), static_cast<std::int32_t>(out_.size())));
    for (std::size_t i = 0; i < outputs.size(); i++) outputs[i] = Tensor(out_[i]);
  }

  struct Destroy {
    void operator()(coil_context* context) const { coil_context_destroy(context); }
  };
  Model model_;
  std::unique_ptr<coil_context, Destroy> context_;
  std::vector<coil_tensor> in_, out_;
};

// Records the calls of a model, or of all of them, until it is ended:
//   coil::Profile profile(model); context.run(inputs); profile.write("trace.json");
class Profile {
 public:
  explicit Profile(std::int64_t calls = 0, bool counters = false, bool all_calls = false) { begin(nullptr, calls, counters, all_calls); }
  explicit Profile(const Model& model, std::int64_t calls = 0, bool counters = false, bool all_calls = false) {
    begin(model.get(), calls, counters, all_calls);
  }
  void end() { check(coil_profile_end(get())); }
  std::int64_t calls() const { return coil_profile_calls(get()); }
  void write(const std::string& path) const { check(coil_profile_write(get(), path.c_str())); }
  std::string table() const { return coil_profile_table(get()); }  // JSON
  coil_profile* get() const { return profile_.get(); }

 private:
  void begin(coil_model* model, std::int64_t calls, bool counters, bool all_calls) {
    coil_profile_options options = {};
    options.struct_bytes = sizeof options;
    options.calls = calls;
    options.counters = counters;
    options.all_calls = all_calls;
    coil_profile* profile = nullptr;
    check(coil_profile_begin(model, &options, &profile));
    profile_.reset(profile);
  }
  struct Free {
    void operator()(coil_profile* profile) const { coil_profile_free(profile); }
  };
  std::unique_ptr<coil_profile, Free> profile_;
};

}  // namespace coil
#endif  // COIL_COIL_HPP_
