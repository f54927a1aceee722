// See generator.h: finding the form of a program, and its calls.
#include "runtime/generator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "base/half.h"

namespace coil::runtime {
namespace {

// As programs call them; others are told by their rank.
constexpr std::string_view kTokenNames[] = {"input_ids", "ids", "tokens", "token_ids", "idx", "input"};
constexpr std::string_view kPlaceNames[] = {"cache_position", "position_ids", "positions", "position", "input_pos", "start_pos", "pos"};

bool is_integer(int32_t dtype) { return dtype == COIL_INT64 || dtype == COIL_INT32; }
bool is_float(int32_t dtype) { return dtype == COIL_FLOAT32 || dtype == COIL_BFLOAT16 || dtype == COIL_FLOAT16; }
bool is_one(const ManifestDim& d) { return d.min == 1 && d.max == 1; }
template <size_t N>
bool named(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Error wrong_form(const std::string& what, const std::string& hint = "generation takes programs of tokens [1, n] (and their places) to logits [1, n, vocabulary], with caches as state") {
  return Error{ErrorCode::unsupported_feature, "the program does not generate text: " + what, "", hint};
}

// [n] or [1, n].
bool is_row(const ManifestTensor& t) { return t.dims.size() == 1 || (t.dims.size() == 2 && (is_one(t.dims[0]) || t.dims[0].min <= 1)); }

float value_at(int32_t dtype, const uint8_t* data, int64_t i) {
  if (dtype == COIL_FLOAT32) {
    float value;
    std::memcpy(&value, data + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * i, sizeof bits);
  return dtype == COIL_FLOAT16 ? from_f16(bits) : from_bf16(bits);
}

}  // namespace

Result<GenerationForm> find_generation_form(const Model& model) {
  GenerationForm form;
  const std::vector<ManifestTensor>& inputs = model.manifest().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ManifestTensor& t = inputs[i];
    if (!is_integer(t.dtype) || t.mutated) return wrong_form("its input '" + t.name + "' is neither tokens nor their places");
    const bool place = named(t.name, kPlaceNames) || (!named(t.name, kTokenNames) && form.tokens >= 0);
    int32_t& role = place ? form.places : form.tokens;
    if (role >= 0) return wrong_form("its inputs '" + inputs[static_cast<size_t>(role)].name + "' and '" + t.name + "' seem to be for the same");
    if (!(is_row(t) || (place && t.dims.empty()))) return wrong_form("its input '" + t.name + "' has rank " + std::to_string(t.dims.size()));
    role = static_cast<int32_t>(i);
  }
  if (form.tokens < 0) return wrong_form("it has no input for tokens");
  const ManifestDim& n = inputs[static_cast<size_t>(form.tokens)].dims.back();
  form.most = n.max;
  form.exact = n.min == n.max;
  if (form.exact && form.most != 1)
    return wrong_form("it takes exactly " + std::to_string(form.most) + " tokens at a time", "export it with a dynamic number of tokens (torch.export.Dim), or for one token");
  if (form.exact && !model.state()) return wrong_form("it takes one token at a time and keeps nothing of those before", "export it with its caches as buffers, or with a dynamic number of tokens");
  if (!form.exact && n.min > 1)
    return wrong_form("it takes at least " + std::to_string(n.min) + " tokens at a time", "export it with min=1 for the number of tokens");
  const std::vector<ManifestTensor>& outputs = model.manifest().outputs;
  for (size_t i = 0; i < outputs.size() && form.logits < 0; ++i) {
    if (is_float(outputs[i].dtype) && !outputs[i].dims.empty() && outputs[i].dims.size() <= 3 && outputs[i].dims.back().min == outputs[i].dims.back().max) form.logits = static_cast<int32_t>(i);
  }
  if (form.logits < 0) return wrong_form("none of its results are logits (floats whose last dimension is the vocabulary)");
  form.vocabulary = outputs[static_cast<size_t>(form.logits)].dims.back().max;
  return form;
}

// A context, and memory for the inputs of a call.
class Generator::Call {
 public:
  explicit Call(const std::shared_ptr<const Model>& model) : context_(model), tokens_(model->device()), places_(model->device()) {}

  Status run(const GenerationForm& form, std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, int64_t rows, std::vector<float>* logits) {
    const Model& model = context_.model();
    const auto count = static_cast<int64_t>(tokens.size());
    TRY_STATUS(context_.use(state));
    std::vector<CoilTensorView> inputs(model.manifest().inputs.size());
    TRY_STATUS(set(&inputs[static_cast<size_t>(form.tokens)], model.manifest().inputs[static_cast<size_t>(form.tokens)], &tokens_, token_sizes_, count, [&](int64_t i) { return tokens[static_cast<size_t>(i)]; }));
    if (form.places >= 0)
      TRY_STATUS(set(&inputs[static_cast<size_t>(form.places)], model.manifest().inputs[static_cast<size_t>(form.places)], &places_, place_sizes_, count, [&](int64_t i) { return begin + i; }));
    std::vector<CoilTensorView> outputs(static_cast<size_t>(model.code().num_outputs));
    CoilError error{};
    if (context_.run(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(), static_cast<int32_t>(outputs.size()), &error)) return error_of(error);
    if (context_.synchronise(&error)) return error_of(error);
    return take(outputs[static_cast<size_t>(form.logits)], form.vocabulary, rows, logits);
  }
  void drop_state() { (void)context_.use(nullptr); }

 private:
  // On the device, unless it is a number that the host reads.
  template <class F>
  Status set(CoilTensorView* view, const ManifestTensor& info, Buffer* memory, int64_t (&sizes)[2], int64_t count, F value) {
    const bool number = info.dims.empty();
    const int64_t n = number ? 1 : count, width = info.dtype == COIL_INT64 ? 8 : 4;
    host_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) host_[static_cast<size_t>(i)] = value(i);
    if (width == 4) {
      auto* narrow = reinterpret_cast<int32_t*>(host_.data());
      for (int64_t i = 0; i < n; ++i) narrow[i] = static_cast<int32_t>(host_[static_cast<size_t>(i)]);
    }
    const Device& device = number && info.scalar ? cpu_device() : context_.model().device();
    CoilError error{};
    if (&device != &context_.model().device()) {
      std::memcpy(&number_, host_.data(), sizeof number_);
      view->data = &number_;
    } else {
      if (!memory->reserve(n * width, &error)) return error_of(error);
      if (device.copy(memory->data(), host_.data(), n * width, nullptr, &error)) return error_of(error);
      view->data = memory->data();
    }
    sizes[0] = 1, sizes[1] = n;
    view->sizes = info.dims.size() == 2 ? sizes : sizes + 1;
    view->ndim = static_cast<int32_t>(info.dims.size());
    view->dtype = info.dtype;
    view->device_type = device.id().type;
    view->device_index = device.id().index;
    return ok_status();
  }

  // The last rows of logits, as floats.
  Status take(const CoilTensorView& view, int64_t vocabulary, int64_t rows, std::vector<float>* logits) {
    int64_t have = 1;
    for (int32_t d = 0; d + 1 < view.ndim; ++d) have *= view.sizes[d];
    if (have < rows) return wrong_form("it gives the logits of " + std::to_string(have) + " tokens where those of " + std::to_string(rows) + " are asked for");
    const int64_t width = view.dtype == COIL_FLOAT32 ? 4 : 2, row = view.ndim > 1 && view.strides ? view.strides[view.ndim - 2] : vocabulary;
    if (view.strides && view.strides[view.ndim - 1] != 1) return wrong_form("its logits are not contiguous");
    logits->resize(static_cast<size_t>(rows * vocabulary));
    fetched_.resize(static_cast<size_t>(vocabulary * width));
    CoilError error{};
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* from = static_cast<const uint8_t*>(view.data) + (have - rows + r) * row * width;
      if (context_.model().device().copy(fetched_.data(), from, vocabulary * width, context_.stream(), &error)) return error_of(error);
      float* to = logits->data() + r * vocabulary;
      for (int64_t i = 0; i < vocabulary; ++i) to[i] = value_at(view.dtype, fetched_.data(), i);
    }
    return ok_status();
  }

  Context context_;
  Buffer tokens_, places_;
  std::vector<int64_t> host_;
  std::vector<uint8_t> fetched_;
  int64_t token_sizes_[2] = {}, place_sizes_[2] = {}, number_ = 0;
};

// An idle call, or a new one; idle again at the end.
class Generator::Lease {
 public:
  explicit Lease(Generator& generator) : generator_(generator) {
    {
      std::lock_guard lock(generator.mutex_);
      if (!generator.idle_.empty()) {
        call_ = std::move(generator.idle_.back());
        generator.idle_.pop_back();
      }
    }
    if (!call_) call_ = std::make_unique<Call>(generator.model_);
  }
  ~Lease() {
    call_->drop_state();
    std::lock_guard lock(generator_.mutex_);
    try {
      generator_.idle_.push_back(std::move(call_));
    } catch (const std::bad_alloc&) {  // the next one makes it anew
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Call* operator->() const { return call_.get(); }

 private:
  Generator& generator_;
  std::unique_ptr<Call> call_;
};

Generator::Generator(std::shared_ptr<const Model> model, GenerationForm form) : model_(std::move(model)), form_(form) {}
Generator::~Generator() = default;

Result<std::shared_ptr<Generator>> Generator::make(std::shared_ptr<const Model> model) {
  TRY(const GenerationForm form, find_generation_form(*model));
  return std::shared_ptr<Generator>(new Generator(std::move(model), form));
}

Status Generator::call(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, int64_t rows, std::vector<float>* logits) {
  Lease lease(*this);
  return lease->run(form_, tokens, begin, state, rows, logits);
}

}  // namespace coil::runtime
