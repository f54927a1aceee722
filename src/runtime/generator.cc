// See generator.h: calls of programs.
#include "runtime/generator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string>

#include "base/half.h"

namespace coil::runtime {
namespace {

void widen(int32_t dtype, std::span<const uint16_t> from, float* to) {
  if (dtype == COIL_FLOAT16) std::transform(from.begin(), from.end(), to, [](uint16_t bits) { return from_f16(bits); });
  else std::transform(from.begin(), from.end(), to, [](uint16_t bits) { return from_bf16(bits); });
}

}  // namespace

// A context, and memory for the inputs of a call.
class Generator::Call {
 public:
  explicit Call(const std::shared_ptr<const Model>& model) : context_(model), memory_(model->device()) {}

  // tokens and places: [rows * count], where rows is 1 or the slots. wanted: those of the rows * count whose logits are asked for, rising.
  Status run(const GenerationForm& form, std::span<const int64_t> tokens, std::span<const int64_t> places, const std::shared_ptr<State>& state,
             const Source* source, std::span<const int64_t> wanted, std::vector<float>* logits) {
    std::vector<CoilTensorView> outputs;
    TRY_STATUS(start(form, tokens, places, state, source, &outputs));
    TRY_STATUS(take(outputs[static_cast<size_t>(form.logits)], form.vocabulary, static_cast<int64_t>(tokens.size()), wanted, logits));  // waits for them
    return finish();  // what the call has found
  }

  // What an encoder makes of the tokens, as a source of its own.
  Status encode(const GenerationForm& form, std::span<const int64_t> tokens, Source* source) {
    std::vector<CoilTensorView> outputs;
    TRY_STATUS(start(form, tokens, {}, nullptr, nullptr, &outputs));
    const CoilTensorView& made = outputs[static_cast<size_t>(form.logits)];
    int64_t values = 1;
    for (int32_t d = made.ndim; d-- > 0; values *= made.sizes[d]) {
      if (made.strides && made.sizes[d] > 1 && made.strides[d] != values) return wrong_form("what its encoder makes is not contiguous");
      source->sizes[d] = made.sizes[d];
    }
    const int64_t bytes = values * (made.dtype == COIL_FLOAT32 ? 4 : 2);
    CoilError error{};
    if (!source->states.reserve(bytes, &error)) return error_of(error);
    if (context_.model().device().copy(source->states.data(), made.data, bytes, context_.stream(), &error)) return error_of(error);
    source->tokens.assign(tokens.begin(), tokens.end());
    return finish();
  }
  void drop_state() { (void)context_.use(nullptr); }

 private:
  static constexpr int64_t kAlignment = 256;

  Status start(const GenerationForm& form, std::span<const int64_t> tokens, std::span<const int64_t> places, const std::shared_ptr<State>& state,
               const Source* source, std::vector<CoilTensorView>* outputs) {
    const Model& model = context_.model();
    const std::vector<ManifestTensor>& infos = model.manifest().inputs;
    const int64_t all = static_cast<int64_t>(tokens.size()), rows = std::max<int64_t>(form.slots, 1);
    TRY_STATUS(context_.use(state));
    std::vector<CoilTensorView> inputs(infos.size());
    const int64_t room = (8 * all + kAlignment - 1) / kAlignment * kAlignment;  // of each input
    CoilError error{};
    if (!memory_.reserve(2 * room, &error)) return error_of(error);
    host_.assign(static_cast<size_t>(2 * room), 0);
    int64_t used = set(&inputs[static_cast<size_t>(form.tokens)], infos[static_cast<size_t>(form.tokens)], 0, token_sizes_, rows, tokens);
    if (form.places >= 0)
      used = std::max(used, set(&inputs[static_cast<size_t>(form.places)], infos[static_cast<size_t>(form.places)], room, place_sizes_, rows, places));
    if (form.source >= 0) {
      const DeviceId device = model.device().id();
      CoilTensorView& view = inputs[static_cast<size_t>(form.source)];
      view.data = source->states.data(), view.sizes = source->sizes, view.ndim = 3, view.dtype = infos[static_cast<size_t>(form.source)].dtype;
      view.device_type = device.type, view.device_index = device.index;
    }
    if (model.device().copy(memory_.data(), host_.data(), used, nullptr, &error)) return error_of(error);
    outputs->resize(static_cast<size_t>(model.code().num_outputs));
    if (context_.run(inputs.data(), static_cast<int32_t>(inputs.size()), outputs->data(), static_cast<int32_t>(outputs->size()), &error))
      return error_of(error);
    return ok_status();
  }
  Status finish() {
    CoilError error{};
    return context_.synchronise(&error) ? Status(error_of(error)) : ok_status();
  }

  // An input at `at` of the memory on the device, unless it is a number that the host reads. Returns the end of what has to be copied there.
  int64_t set(CoilTensorView* view, const ManifestTensor& info, int64_t at, int64_t (&sizes)[3], int64_t rows, std::span<const int64_t> values) {
    const bool number = info.dims.empty(), by_host = number && info.scalar;
    if (number) values = values.first(1);
    const auto n = static_cast<int64_t>(values.size());
    uint8_t* to = host_.data() + at;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t wide = values[static_cast<size_t>(i)];
      const auto narrow = static_cast<int32_t>(wide);
      if (info.dtype == COIL_INT64) std::memcpy(to + 8 * i, &wide, 8);
      else std::memcpy(to + 4 * i, &narrow, 4);
    }
    sizes[0] = rows, sizes[1] = n / rows, sizes[2] = n;
    const Device& device = by_host ? cpu_device() : context_.model().device();
    view->data = (by_host ? host_.data() : static_cast<uint8_t*>(memory_.data())) + at;
    view->sizes = info.dims.size() == 2 ? sizes : sizes + 2;
    view->ndim = static_cast<int32_t>(info.dims.size());
    view->dtype = info.dtype;
    view->device_type = device.id().type;
    view->device_index = device.id().index;
    return by_host ? 0 : at + n * (info.dtype == COIL_INT64 ? 8 : 4);
  }

  // The wanted rows of logits, as floats. The program gives them for all tokens of the call, or for the last ones.
  Status take(const CoilTensorView& view, int64_t vocabulary, int64_t all, std::span<const int64_t> wanted, std::vector<float>* logits) {
    int64_t have = 1;
    for (int32_t d = 0; d + 1 < view.ndim; ++d) have *= view.sizes[d];
    if (!wanted.empty() && wanted.front() < all - have)
      return wrong_form("it gives the logits of " + std::to_string(have) + " tokens where those of " + std::to_string(all - wanted.front()) + " are asked for");
    const int64_t width = view.dtype == COIL_FLOAT32 ? 4 : 2, row = view.ndim > 1 && view.strides ? view.strides[view.ndim - 2] : vocabulary;
    const bool apart = view.strides && view.ndim == 3 && view.sizes[0] > 1 && view.strides[0] != view.sizes[1] * row;
    if (view.strides && (view.strides[view.ndim - 1] != 1 || apart)) return wrong_form("its logits are not contiguous");
    logits->resize(wanted.size() * static_cast<size_t>(vocabulary));
    if (width == 2) fetched_.resize(static_cast<size_t>(vocabulary));
    CoilError error{};
    float* to = logits->data();
    for (const int64_t r : wanted) {
      const uint8_t* from = static_cast<const uint8_t*>(view.data) + (have - all + r) * row * width;
      if (context_.model().device().copy(width == 4 ? static_cast<void*>(to) : fetched_.data(), from, vocabulary * width, context_.stream(), &error))
        return error_of(error);
      if (width == 2) widen(view.dtype, fetched_, to);
      to += vocabulary;
    }
    return ok_status();
  }

  Context context_;
  Buffer memory_;  // of the inputs
  std::vector<uint8_t> host_;
  std::vector<uint16_t> fetched_;  // logits of 16 bits
  int64_t token_sizes_[3] = {}, place_sizes_[3] = {};
};

// An idle call, or a new one; idle again at the end.
class Generator::Lease {
 public:
  explicit Lease(Program& program) : program_(program) {
    {
      std::lock_guard lock(program_.mutex);
      if (!program_.idle.empty()) {
        call_ = std::move(program_.idle.back());
        program_.idle.pop_back();
      }
    }
    if (!call_) call_ = std::make_unique<Call>(program_.model);
  }
  ~Lease() {
    call_->drop_state();
    std::lock_guard lock(program_.mutex);
    try {
      program_.idle.push_back(std::move(call_));
    } catch (const std::bad_alloc&) {  // the next one makes it anew
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Call* operator->() const { return call_.get(); }

 private:
  Program& program_;
  std::unique_ptr<Call> call_;
};

Generator::Program::Program(std::shared_ptr<const Model> of, GenerationForm with) : model(std::move(of)), form(with) {}
Generator::Program::~Program() = default;
Generator::~Generator() = default;

Status Generator::fits(const Model& other, const GenerationForm& form) const {
  if (form.vocabulary != vocabulary())
    return wrong_form("it has " + std::to_string(form.vocabulary) + " tokens, the first program " + std::to_string(vocabulary()));
  if (form.source != programs_[0]->form.source || form.width != programs_[0]->form.width)
    return wrong_form("it does not read what the first program reads of an encoder");
  if (form.slots != slots())
    return wrong_form("it serves " + std::to_string(std::max<int64_t>(form.slots, 1)) + " conversations in a call, the first program " +
                      std::to_string(std::max<int64_t>(slots(), 1)));
  if (has_state()) return other.takes_states_of(model());
  return other.state() ? Status(wrong_form("it keeps a state, and the first program none")) : ok_status();
}

// Programs of the package that may generate text, or be an encoder, beside the one that is open. What does neither is for its own callers.
std::vector<Generator::Candidate> Generator::candidates(const std::shared_ptr<const Model>& model) {
  std::vector<Candidate> all;
  const auto form = find_generation_form(*model);
  if (form.ok()) all.push_back({model, form.value()});
  if (!model->package().several || model->chosen()) return all;
  for (const std::string& name : model->package().programs) {
    if (name == model->package().program) continue;
    auto opened = model->open_program(name);
    const auto other = opened.ok() ? find_generation_form(*opened.value()) : Result<GenerationForm>(opened.error());
    if (other.ok()) all.push_back({std::move(opened).value(), other.value()});
    else left_out(name, other.error());
  }
  return all;
}

// Where a program takes what an encoder has read, programs without it are none for text: one of them may be the encoder.
Status Generator::take_encoder(std::vector<Candidate>* all) {
  const auto decodes = [](const Candidate& c) { return c.form.source >= 0; };
  const auto decoder = std::find_if(all->begin(), all->end(), decodes);
  if (decoder == all->end()) return ok_status();
  const auto encoder =
      std::find_if(all->begin(), all->end(), [&](const Candidate& c) { return is_encoder_for(*c.model, c.form, *decoder->model, decoder->form); });
  if (encoder == all->end())
    return wrong_form("its input '" + decoder->model->manifest().inputs[static_cast<size_t>(decoder->form.source)].name +
                          "' is what an encoder has read, and there is no encoder",
                      "put both into one package: coil compile encoder.pt2 decoder.pt2; the encoder is a program of tokens [1, m] to [1, m, " +
                          std::to_string(decoder->form.width) + "]");
  encoder_ = std::make_unique<Program>(encoder->model, encoder->form);
  std::erase_if(*all, [&](const Candidate& c) { return !decodes(c); });
  return ok_status();
}

// Text grows by one token at a time.
Status Generator::check() const {
  const bool alone = programs_.size() == 1;
  const int64_t least =
      std::min_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) { return a->form.least < b->form.least; })->get()->form.least;
  if (!has_state()) {
    if (most() == 1)
      return wrong_form("it takes one token at a time and keeps nothing of those before" + left_out_,
                        "export it with its caches as buffers, or with a dynamic number of tokens");
  }
  if (least <= 1 || slots() > 0) return ok_status();  // rows of several conversations are filled up
  const GenerationForm& form = programs_[0]->form;
  const std::string other = ", or put a program for single tokens into the package";
  if (alone && form.least == form.most)
    return wrong_form("it takes exactly " + std::to_string(form.most) + " tokens at a time" + left_out_,
                      "export it with a dynamic number of tokens (torch.export.Dim), or for one token" + other);
  return wrong_form("it takes at least " + std::to_string(least) + " tokens at a time" + left_out_, "export it with min=1 for the number of tokens" + other);
}

Result<std::shared_ptr<Generator>> Generator::make(std::shared_ptr<const Model> model) {
  std::shared_ptr<Generator> made(new Generator);
  std::vector<Candidate> all = made->candidates(model);
  if (all.empty()) return find_generation_form(*model).error();
  TRY_STATUS(made->take_encoder(&all));
  for (Candidate& c : all) {
    const Status fit = made->programs_.empty() ? ok_status() : made->fits(*c.model, c.form);
    if (fit.ok()) made->programs_.push_back(std::make_unique<Program>(std::move(c.model), c.form));
    else made->left_out(c.model->package().program, fit.error());
  }
  TRY_STATUS(made->check());
  if (made->slots() > 0) made->slots_ = std::make_shared<Slots>(made->programs_[0]->model, made->slots());
  return made;
}

void Generator::left_out(const std::string& name, const Error& error) { left_out_ += "; its program '" + name + "' is of no use here: " + error.message; }

Result<std::shared_ptr<const Source>> Generator::read_source(std::span<const int64_t> tokens) {
  if (!encoder_) return Error{ErrorCode::bad_option, "the model has no encoder to read a source", "", "append a prompt"};
  const GenerationForm& form = encoder_->form;
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0) return Error{ErrorCode::input_value, "there is nothing to read: the source is empty", "", "pass its tokens"};
  if (count < form.least || count > form.most)
    return Error{ErrorCode::input_value,
                 "the source has " + std::to_string(count) + " tokens, the encoder takes " + std::to_string(form.least) + " to " + std::to_string(form.most),
                 "", "shorten it, or export the encoder for more"};
  auto source = std::make_shared<Source>(model().device());
  Lease lease(*encoder_);
  TRY_STATUS(lease->encode(form, tokens, source.get()));
  return std::shared_ptr<const Source>(std::move(source));
}

std::vector<std::string> Generator::programs() const {
  std::vector<std::string> names;
  for (const auto& p : programs_) names.push_back(p->model->package().program);
  return names;
}

int64_t Generator::most() const {
  int64_t most = 1;
  for (const auto& p : programs_) most = std::max(most, p->form.most);
  return most;
}

// Of those that take as many, the one that takes the fewest: it was made for that.
Generator::Program* Generator::program_for(int64_t count) const {
  Program* best = nullptr;
  for (const auto& p : programs_) {
    if (count >= p->form.least && count <= p->form.most && (!best || p->form.most < best->form.most)) best = p.get();
  }
  return best;
}

Generator::Program* Generator::program_at_least(int64_t count) const {
  Program* best = nullptr;
  for (const auto& p : programs_) {
    if (p->form.most >= count && (!best || p->form.most < best->form.most)) best = p.get();
  }
  return best;
}

int64_t Generator::piece(int64_t left, int64_t rows) const {
  int64_t best = 0;
  for (const auto& p : programs_) {
    int64_t n = std::min(left, p->form.most);
    if (n < left) n = std::min(n, std::max<int64_t>(left - rows, 1));  // rows that are wanted come from one call
    if (n >= p->form.least || slots() > 0) best = std::max(best, n);
  }
  return best;
}

Status Generator::call(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, const Source* source, int64_t rows,
                       std::vector<float>* logits) {
  Program* program = program_for(static_cast<int64_t>(tokens.size()));
  if (!program) return Error{ErrorCode::input_value, "no program takes " + std::to_string(tokens.size()) + " tokens in a call", "", ""};
  std::vector<int64_t> places(tokens.size()), wanted(static_cast<size_t>(rows));
  std::iota(places.begin(), places.end(), begin);
  std::iota(wanted.begin(), wanted.end(), static_cast<int64_t>(tokens.size()) - rows);
  Lease lease(*program);
  return lease->run(program->form, tokens, places, state, source, wanted, logits);
}

Status Generator::call(std::span<const SlotWork> works) {
  int64_t count = 1;
  for (const SlotWork& w : works) count = std::max(count, static_cast<int64_t>(w.tokens.size()));
  Program* program = program_at_least(count);
  if (!program) return Error{ErrorCode::input_value, "no program takes " + std::to_string(count) + " tokens in a call", "", ""};
  count = std::max(count, program->form.least);
  SlotBlock& block = works[0].slot->block();
  std::lock_guard lock(block.mutex);
  // Rows that have less to do compute their last token again, at its place: the caches hold the same row after it.
  std::vector<int64_t> tokens(static_cast<size_t>(count * slots())), places(tokens.size()), wanted;
  const auto fill = [&](int64_t row, std::span<const int64_t> with, int64_t begin, int64_t last) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = std::min<int64_t>(i, std::max<int64_t>(static_cast<int64_t>(with.size()) - 1, 0));
      tokens[static_cast<size_t>(row * count + i)] = with.empty() ? last : with[static_cast<size_t>(at)];
      places[static_cast<size_t>(row * count + i)] = begin + at;
    }
  };
  for (int64_t row = 0; row < slots(); ++row) {
    const SlotBlock::Use& use = block.uses[static_cast<size_t>(row)];
    const auto work = std::find_if(works.begin(), works.end(), [&](const SlotWork& w) { return w.slot->row() == row; });
    if (work == works.end()) {
      fill(row, {}, std::max<int64_t>(use.length - 1, 0), use.last);
      continue;
    }
    fill(row, work->tokens, work->begin, 0);
    const auto own = static_cast<int64_t>(work->tokens.size());
    for (int64_t r = own - work->rows; r < own; ++r) wanted.push_back(row * count + r);
  }
  std::vector<float> logits;
  {
    Lease lease(*program);
    TRY_STATUS(lease->run(program->form, tokens, places, block.state, nullptr, wanted, &logits));
  }
  for (const SlotWork& w : works) {
    const auto first = std::lower_bound(wanted.begin(), wanted.end(), w.slot->row() * count) - wanted.begin();
    const auto from = logits.begin() + first * vocabulary();
    if (w.logits) w.logits->assign(from, from + w.rows * vocabulary());
    block.uses[static_cast<size_t>(w.slot->row())] = {true, w.begin + static_cast<int64_t>(w.tokens.size()), w.tokens.back()};
  }
  return ok_status();
}

}  // namespace coil::runtime
