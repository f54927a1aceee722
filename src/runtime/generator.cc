// See generator.h: calls of programs.
#include "runtime/generator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string>

#include "base/half.h"

namespace coil::runtime {
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
    if (!call_) call_ = std::make_unique<GeneratorCall>(program_.model);
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
  GeneratorCall* operator->() const { return call_.get(); }

 private:
  Program& program_;
  std::unique_ptr<GeneratorCall> call_;
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
  made->chooses_ = std::all_of(made->programs_.begin(), made->programs_.end(), [](const auto& p) { return p->model->cuda() && p->model->code().sample; });
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
  TRY_STATUS(lease->start(form, tokens, {}, nullptr, nullptr));
  TRY_STATUS(lease->take_source(form, tokens, source.get()));
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

// Of those that take as many and give the logits of the last `rows`, the one that takes the fewest, or that gives the fewest: it was made for that.
Generator::Program* Generator::program_for(int64_t count, int64_t rows) const {
  const auto before = [](const GenerationForm& a, const GenerationForm& b) { return a.most != b.most ? a.most < b.most : a.last_only && !b.last_only; };
  Program* best = nullptr;
  for (const auto& p : programs_) {
    const bool gives = rows <= 1 || !p->form.last_only;
    if (gives && count >= p->form.least && count <= p->form.most && (!best || before(p->form, best->form))) best = p.get();
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
    else if (rows > 1 && p->form.last_only) n = left - rows;
    if (n >= p->form.least || slots() > 0) best = std::max(best, n);
  }
  return best;
}

Status Generator::call(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, const Source* source, int64_t rows,
                       std::vector<float>* logits) {
  Program* program = program_for(static_cast<int64_t>(tokens.size()), rows);
  if (!program) return Error{ErrorCode::input_value, "no program takes " + std::to_string(tokens.size()) + " tokens in a call", "", ""};
  std::vector<int64_t> places(tokens.size()), wanted(static_cast<size_t>(rows));
  std::iota(places.begin(), places.end(), begin);
  std::iota(wanted.begin(), wanted.end(), static_cast<int64_t>(tokens.size()) - rows);
  Lease lease(*program);
  TRY_STATUS(lease->start(program->form, tokens, places, state, source));
  return lease->logits(program->form, wanted, logits);
}

StepsAhead Generator::ahead(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, const Source* source, const CudaSample& rules,
                            int64_t steps) {
  StepsAhead made;
  const auto count = static_cast<int64_t>(tokens.size()), last = count - 1;
  Program* program = program_for(count, 1);
  if (!program) {
    made.status = Error{ErrorCode::input_value, "no program takes " + std::to_string(count) + " tokens in a call", "", ""};
    return made;
  }
  if (count > 1) steps = 1;  // where a row ends without a token, the next call finds its inputs as they were: they have to be those of one token
  std::vector<int64_t> places(tokens.size());
  std::iota(places.begin(), places.end(), begin);
  made.numbers.reserve(static_cast<size_t>(std::min(steps, kMostAhead)));
  Lease lease(*program);
  int64_t enqueued = 0;
  const auto enqueue = [&]() -> Status {
    TRY_STATUS(lease->choices().reserve(vocabulary(), 1, kMostAhead));
    TRY_STATUS(lease->start(program->form, tokens, places, state, source));
    CudaSample row = rules;
    if (steps > 1) TRY_STATUS(lease->next_inputs(program->form, &row));
    for (row.first = 1;; row.first = 0, ++row.place) {
      TRY_STATUS(lease->choose(program->form, {&last, 1}, lease->choices(), enqueued, {&row, 1}));
      if (++enqueued >= std::min(steps, kMostAhead)) return ok_status();
      TRY_STATUS(lease->start_next(program->form, begin + enqueued, state, source));
    }
  };
  made.status = enqueue();
  const Status found = lease->finish();  // waits, also for what was enqueued before a failure
  if (made.status.ok()) made.status = found;
  for (int64_t i = 0; i < enqueued; ++i) {
    made.numbers.push_back(lease->choices().number(i));
    if (rules.num_best >= 0) made.chances.push_back(lease->choices().chances(i));
  }
  return made;
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
  std::vector<int64_t> tokens(static_cast<size_t>(count * slots())), places(tokens.size()), wanted, chosen;
  const auto fill = [&](int64_t row, std::span<const int64_t> with, int64_t begin, int64_t last) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = std::min<int64_t>(i, std::max<int64_t>(static_cast<int64_t>(with.size()) - 1, 0));
      tokens[static_cast<size_t>(row * count + i)] = with.empty() ? last : with[static_cast<size_t>(at)];
      places[static_cast<size_t>(row * count + i)] = begin + at;
    }
  };
  std::vector<CudaSample> rules;
  std::vector<const SlotWork*> choosing;
  for (int64_t row = 0; row < slots(); ++row) {
    const SlotBlock::Use& use = block.uses[static_cast<size_t>(row)];
    const auto work = std::find_if(works.begin(), works.end(), [&](const SlotWork& w) { return w.slot->row() == row; });
    if (work == works.end()) {
      fill(row, {}, std::max<int64_t>(use.length - 1, 0), use.last);
      continue;
    }
    fill(row, work->tokens, work->begin, 0);
    const auto own = static_cast<int64_t>(work->tokens.size());
    if (work->rules) {
      rules.push_back(*work->rules), choosing.push_back(&*work);
      rules.back().first = 1;
      chosen.push_back(row * count + own - 1);
      continue;
    }
    for (int64_t r = own - work->rows; r < own; ++r) wanted.push_back(row * count + r);
  }
  std::vector<float> logits;
  {
    Lease lease(*program);
    if (!rules.empty()) TRY_STATUS(lease->choices().reserve(vocabulary(), slots(), slots()));
    TRY_STATUS(lease->start(program->form, tokens, places, block.state, nullptr));
    if (!rules.empty()) TRY_STATUS(lease->choose(program->form, chosen, lease->choices(), 0, rules));
    TRY_STATUS(lease->logits(program->form, wanted, &logits));
    for (size_t i = 0; i < choosing.size(); ++i) {
      *choosing[i]->number = lease->choices().number(static_cast<int64_t>(i));
      if (rules[i].num_best >= 0) *choosing[i]->chances = lease->choices().chances(static_cast<int64_t>(i));
    }
  }
  for (const SlotWork& w : works) {
    const auto first = std::lower_bound(wanted.begin(), wanted.end(), w.slot->row() * count) - wanted.begin();
    const auto from = logits.begin() + first * vocabulary();
    if (w.logits && !w.rules) w.logits->assign(from, from + w.rows * vocabulary());
    block.uses[static_cast<size_t>(w.slot->row())] = {true, w.begin + static_cast<int64_t>(w.tokens.size()), w.tokens.back()};
  }
  return ok_status();
}

}  // namespace coil::runtime
