// What a program has to look like to generate text, and which of its inputs and results are what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/model.h"

namespace coil::runtime {

// How a program takes tokens and gives logits.
struct GenerationForm {
  int32_t tokens = -1, places = -1, logits = -1;  // inputs and output; places -1: there is none
  int32_t source = -1;                            // input [1, m, width]: what an encoder has made of a text; -1: there is none
  int64_t least = 1, most = 1;                    // tokens of a call
  int64_t vocabulary = 0;
  int64_t width = 0;       // of the source
  bool last_only = false;  // of several tokens it gives the logits of the last one
  int64_t slots = 0;       // conversations of a call; 0: a single one, in a state of its own
};
// COIL-E105: the program is not of such a form; says which input or result is in the way.
Result<GenerationForm> find_generation_form(const Model& model);
// Whether a program of form `form` (tokens [1, m] to [1, m, width]) makes what the decoder's input for a source takes.
bool is_encoder_for(const Model& model, const GenerationForm& form, const Model& decoder, const GenerationForm& of);

// COIL-E105 with what is in the way.
Error wrong_form(const std::string& what,
                 const std::string& hint = "generation takes programs of tokens [1, n] (and their places) to logits [1, n, vocabulary], with caches as state");

}  // namespace coil::runtime
