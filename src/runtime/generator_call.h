// One call at a time of a program that generates text: a context, memory for the inputs, and what becomes of the logits. For generator.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/buffer.h"
#include "runtime/context.h"
#include "runtime/device_choice.h"
#include "runtime/generation_form.h"
#include "runtime/source.h"

namespace coil::runtime {

class GeneratorCall {
 public:
  explicit GeneratorCall(const std::shared_ptr<const Model>& model) : context_(model), memory_(model->device()), choices_(*model) {}

  // tokens and places: [rows * count], where rows is 1 or the slots. What comes of it is asked for by one of those below.
  Status start(const GenerationForm& form, std::span<const int64_t> tokens, std::span<const int64_t> places, const std::shared_ptr<State>& state,
               const Source* source);
  // On CUDA, behind calls that have not been waited for: the same of one token, which the device has put where next_inputs() says, with its place.
  Status start_next(const GenerationForm& form, int64_t place, const std::shared_ptr<State>& state, const Source* source);
  // Where that is.
  Status next_inputs(const GenerationForm& form, CudaSample* row);

  // Then: the logits of the `wanted` of the rows * count tokens, rising; the call is over.
  Status logits(const GenerationForm& form, std::span<const int64_t> wanted, std::vector<float>* logits);
  // Or, on CUDA: a token for each of `wanted` is chosen, by rows[i]; enqueued. Scratch memory and places for numbers are those of `choices`, from
  // number `first` on.
  Status choose(const GenerationForm& form, std::span<const int64_t> wanted, const ChoiceMemory& choices, int64_t first, std::span<CudaSample> rows);
  // Or what an encoder has made of the tokens.
  Status take_source(const GenerationForm& form, std::span<const int64_t> tokens, Source* source);

  // Waits, and tells what the call has found.
  Status finish();
  void drop_state() { (void)context_.use(nullptr); }
  ChoiceMemory& choices() { return choices_; }

 private:
  static constexpr int64_t kAlignment = 256;
  static int64_t room_for(int64_t tokens) { return (8 * tokens + kAlignment - 1) / kAlignment * kAlignment; }  // of each input

  int64_t set(CoilTensorView* view, const ManifestTensor& info, int64_t at, int64_t (&sizes)[3], int64_t rows, std::span<const int64_t> values);
  void set_source(const GenerationForm& form, const Source* source, CoilTensorView* view) const;
  Status run(std::vector<CoilTensorView>* inputs);
  // Where the logits of each wanted token lie.
  Status find_rows(const GenerationForm& form, std::span<const int64_t> wanted, std::vector<const uint8_t*>* rows) const;

  Context context_;
  Buffer memory_;  // of the inputs
  ChoiceMemory choices_;
  std::vector<uint8_t> host_;
  std::vector<CoilTensorView> outputs_;
  std::vector<uint16_t> fetched_;  // logits of 16 bits
  int64_t all_ = 0;                // tokens of the call
  int64_t token_sizes_[3] = {}, place_sizes_[3] = {};
};

}  // namespace coil::runtime
