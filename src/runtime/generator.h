// Text generation: a language model's program called token by token, as a conversation. A program of any of these forms will do:
//   tokens [1, n] (or [n]) -> logits of all tokens of the vocabulary after each, or after the last, [1, n, V], [1, V], [n, V], [V]
// with or without a second integer input that gives the tokens' places (rank 1 [n], rank 2 [1, n], or the first one's place as a number). n is 1 or
// dynamic. Programs that keep their caches as state are given new tokens only; those without a state all of them, each time.
// Models with an encoder have it as a program of its own, tokens [1, m] -> [1, m, width], which is an input of the decoder's programs, the source.
//
// With tokens [slots, n], places [slots, n] (or [slots], where n is 1) and logits [slots, n, V] (or [slots, V], where n is 1), and caches [slots, ...] whose
// rows are by place, a call serves as many conversations, each with its own places. A conversation then has a slot of a state (slots.h). What a row
// of a call computes does not depend on the others, so its tokens are those that it gets alone. Rows with less to do compute their last token again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/device_choice.h"
#include "runtime/generation_form.h"
#include "runtime/generator_call.h"
#include "runtime/model.h"
#include "runtime/sampler.h"
#include "runtime/slots.h"
#include "runtime/source.h"

namespace coil::runtime {

// What a call is to compute for one conversation of several.
struct SlotWork {
  Slot* slot = nullptr;
  std::span<const int64_t> tokens;  // new ones, at least one
  int64_t begin = 0;                // the place of the first
  int64_t rows = 0;                 // of the last ones the logits are wanted
  std::vector<float>* logits = nullptr;
  const CudaSample* rules = nullptr;     // not null: the device chooses the token after the last one, in place of logits
  int64_t* number = nullptr;             // that, or why there is none (choice_error)
  cd::SampleChances* chances = nullptr;  // of it, where the rules ask for them
};

// Steps that a device makes without anybody looking.
struct StepsAhead {
  std::vector<int64_t> numbers;            // of each step that was made: the token, or why there is none (choice_error, cd::kSampleHalted, cd::kSampleFault)
  std::vector<cd::SampleChances> chances;  // of each of these, where the rules ask for them
  Status status = ok_status();             // of the first that failed
};

// Immutable but for idle contexts, of which there are as many as there were ever calls at a time. Thread-safe.
class Generator {
 public:
  // With a package of several programs, those that generate text and keep the same state are used side by side, each for as many tokens as it takes: one
  // for prompts, one for single tokens. A model that was opened by its program's name is used alone.
  static Result<std::shared_ptr<Generator>> make(std::shared_ptr<const Model> model);

  const Model& model() const { return *programs_[0]->model; }  // whose states conversations have
  const std::shared_ptr<const Model>& shared_model() const { return programs_[0]->model; }
  int64_t vocabulary() const { return programs_[0]->form.vocabulary; }
  bool has_state() const { return model().state() != nullptr; }
  // Conversations that a call serves; 0: one.
  int64_t slots() const { return programs_[0]->form.slots; }
  const std::shared_ptr<Slots>& all_slots() const { return slots_; }
  // The names of the programs in use, and the most tokens that a call of one takes.
  std::vector<std::string> programs() const;
  int64_t most() const;
  // Whether some program takes so many tokens in one call, and gives the logits of each.
  bool takes(int64_t count) const { return program_for(count, count) != nullptr; }
  // How many of `left` tokens the next call is for, if the last call has to give the logits of the last `rows` of them. 0: no program goes on.
  int64_t piece(int64_t left, int64_t rows) const;

  // Whether conversations need a source, which the encoder has read.
  bool takes_source() const { return encoder_ != nullptr; }
  // COIL-E402 without an encoder, COIL-E210 for more tokens than it takes, or others than it knows.
  Result<std::shared_ptr<const Source>> read_source(std::span<const int64_t> tokens);
  // Calls the program with tokens from place `begin` on, on a state and under a source (null for programs without). logits: those of the last `rows` tokens.
  Status call(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, const Source* source, int64_t rows,
              std::vector<float>* logits);
  // Whether the device chooses tokens, too.
  bool chooses() const { return chooses_; }
  // The most steps of ahead().
  static constexpr int64_t kMostAhead = 64;
  // The call of the last tokens, and the choice by `rules` (of ChoiceRules). Where that is a single token, up to steps - 1 more steps, all of which are
  // enqueued before the first number is known; the rules hold for all of them.
  StepsAhead ahead(std::span<const int64_t> tokens, int64_t begin, const std::shared_ptr<State>& state, const Source* source, const CudaSample& rules,
                   int64_t steps);
  // One call for conversations in slots of one block, with at most most() tokens each. What fails leaves all of them as they were.
  Status call(std::span<const SlotWork> works);

 private:
  class Lease;
  struct Program {
    std::shared_ptr<const Model> model;
    GenerationForm form;
    std::mutex mutex;
    std::vector<std::unique_ptr<GeneratorCall>> idle;

    Program(std::shared_ptr<const Model> of, GenerationForm with);
    ~Program();
  };
  struct Candidate {
    std::shared_ptr<const Model> model;
    GenerationForm form;
  };
  Generator() = default;
  Generator(const Generator&) = delete;
  // Why another program of the package cannot be used beside the first; ok: it can.
  Status fits(const Model& other, const GenerationForm& form) const;
  std::vector<Candidate> candidates(const std::shared_ptr<const Model>& model);
  Status take_encoder(std::vector<Candidate>* all);
  void left_out(const std::string& name, const Error& error);
  Status check() const;
  Program* program_for(int64_t count, int64_t rows) const;
  Program* program_at_least(int64_t count) const;

  std::vector<std::unique_ptr<Program>> programs_;  // never empty
  std::unique_ptr<Program> encoder_;                // of models that have one
  std::string left_out_;                            // of the package's other programs: why, for messages
  std::shared_ptr<Slots> slots_;                    // of programs that serve several conversations in a call
  bool chooses_ = false;

 public:
  ~Generator();
};

// The tokens so far, the state after those that were processed, and how the next ones are chosen. One call at a time. What fails leaves the tokens as
// they were, and may be tried again.
class Conversation {
 public:
  static Result<std::unique_ptr<Conversation>> make(std::shared_ptr<Generator> generator, Sampling sampling);

  // A conversation of its own that goes on from here.
  Result<std::unique_ptr<Conversation>> fork();
  // COIL-E210 for tokens outside of the vocabulary. They are processed by the next step.
  Status append(std::span<const int64_t> tokens);
  // What the encoder reads: the text that everything is generated under, from now on. The tokens so far are processed again. As Generator::read_source.
  Status set_source(std::span<const int64_t> tokens);
  std::span<const int64_t> source() const { return source_ ? std::span<const int64_t>(source_->tokens) : std::span<const int64_t>(); }
  // One more token, which is appended. COIL-E210 without any token before it, or where the caches are full.
  Result<int64_t> next();
  // At most `count` more tokens, the last one from `stop` if one of these comes. `draft` tokens of an earlier repetition of the last few are tried at a
  // time (0: none): the same tokens in fewer calls, for programs whose state is caches by place. `steps` of a device that chooses tokens are enqueued
  // before the first is known: the same tokens with less waiting. More than 1 with `stop` is for states that are caches by place; 0: all that can be
  // where nothing may stop it, else 1.
  Result<std::vector<int64_t>> generate(int64_t count, std::span<const int64_t> stop, int64_t draft = 0, int64_t steps = 0);
  // One more token for each of several conversations, of any lengths, in as few calls as their slots allow: of each, at most `most` tokens that are not
  // processed yet are (0: as many as a call takes), so that long prompts do not hold up the others. The new token; -1 where some are left to be processed,
  // by the next step. The same as next() of each; a conversation that fails does so alone. None may be there twice.
  static std::vector<Result<int64_t>> step(std::span<Conversation* const> all, int64_t most = 0);
  // Of each token that the last call of next(), generate() or step() has added: the logarithm of its probability and those of the `count` most likely
  // tokens, by the model's own logits, which nothing has changed. -1: no longer.
  void watch(int64_t count) { watched_ = count; }
  const std::vector<TokenChances>& chances() const { return chances_; }
  // Forgets all but the first `count` tokens. COIL-E402 where there are not as many. For states that are caches by place: later rows are written anew.
  Status truncate(int64_t count);
  // Tokens and state as bytes, and back. COIL-E213 as State::restore.
  Result<std::vector<uint8_t>> save();
  Status restore(std::span<const uint8_t> bytes);

  const std::vector<int64_t>& tokens() const { return tokens_; }
  const Sampling& sampling() const { return sampling_; }
  Status set_sampling(Sampling sampling);

 private:
  Conversation(std::shared_ptr<Generator> generator, Sampling sampling)
      : generator_(std::move(generator)), sampling_(std::move(sampling)), rules_(generator_->model().device()) {}
  bool device_chooses() const { return generator_->chooses() && watched_ <= cd::kSampleBest; }
  Result<int64_t> process_front(int64_t rows);
  Status process(int64_t rows, std::vector<float>* logits);
  Status process_piece(int64_t begin, int64_t count, int64_t rows, std::vector<float>* logits);
  Result<int64_t> choose(std::span<float> logits);
  Result<int64_t> process_and_choose(int64_t begin);
  Status made_ahead(const StepsAhead& ahead, int64_t end, std::span<const int64_t> stop, std::vector<int64_t>* made);
  Result<std::vector<int64_t>> generate_ahead(int64_t count, std::span<const int64_t> stop, int64_t steps);
  Result<CudaSample> device_rules(std::span<const int64_t> stop);
  Result<int64_t> take_choice(int64_t number, const cd::SampleChances* chances);
  Result<int64_t> advance(int64_t most);
  struct Choice {
    CudaSample rules;
    int64_t number = 0;
    cd::SampleChances chances;
  };
  Result<SlotWork> slot_work(int64_t most, Choice* choice);
  static void step_block(std::span<Conversation* const> all, int64_t most, std::span<const size_t> members, std::vector<Result<int64_t>>* results);
  Status process_with(const std::vector<int64_t>& guess);
  std::vector<int64_t> repetition(int64_t count) const;

  std::shared_ptr<Generator> generator_;
  Sampling sampling_;
  std::shared_ptr<State> state_;  // or
  std::unique_ptr<Slot> slot_;
  std::shared_ptr<const Source> source_;
  std::vector<int64_t> tokens_;
  int64_t processed_ = 0;  // of them; the state is after these
  std::vector<float> logits_;
  ChoiceRules rules_;
  int64_t watched_ = -1;
  std::vector<TokenChances> chances_;
};

}  // namespace coil::runtime
