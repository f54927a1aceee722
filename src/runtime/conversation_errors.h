// What may be wrong with a step of a conversation.
#pragma once

#include <string>

#include "base/result.h"

namespace coil::runtime {

// Where in the conversation a call failed.
inline Error at_tokens(Error error, int64_t begin, int64_t count) {
  error.message = "token " + std::to_string(begin) + (count > 1 ? " to " + std::to_string(begin + count - 1) : "") + " of the conversation: " + error.message;
  error.hint = "where a position is out of range the caches are full: shorten the conversation (truncate), or export the model with longer ones";
  return error;
}
inline Error no_source() { return Error{ErrorCode::input_value, "the encoder has read nothing yet", "", "give the conversation its source first"}; }
inline Error empty() { return Error{ErrorCode::input_value, "the conversation is empty", "", "append a prompt (or the token that begins texts)"}; }

}  // namespace coil::runtime
