// include/coil/generate.h over Generator and Conversation.
#include "coil/generate.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime/c_handles.h"
#include "runtime/generator.h"

using coil::Error;
using coil::ErrorCode;
using coil::runtime::Conversation;
using coil::runtime::fail;
using coil::runtime::fail_exception;
using coil::runtime::fail_null;
using coil::runtime::Generator;
using coil::runtime::Sampling;

struct coil_generator {
  std::shared_ptr<Generator> generator;
};

struct coil_conversation {
  std::shared_ptr<Generator> generator;
  std::unique_ptr<Conversation> conversation;
};

namespace {

coil::Result<Sampling> sampling_of(const coil_sampling* given) {
  Sampling s;
  if (!given) return s;
  if (given->struct_bytes < sizeof given->struct_bytes)
    return Error{ErrorCode::bad_option, "coil_sampling.struct_bytes is not set", "", "set it to sizeof(coil_sampling)"};
  coil_sampling known = {};
  std::memcpy(&known, given, std::min<size_t>(given->struct_bytes, sizeof known));
  if (known.num_biases < 0 || (known.num_biases > 0 && (!known.bias_tokens || !known.biases)))
    return Error{ErrorCode::bad_option, "the biases of coil_sampling are null or less than none", "", ""};
  for (int32_t i = 0; i < known.num_biases; ++i) s.bias.emplace_back(known.bias_tokens[i], known.biases[i]);
  if (known.repetition_penalty != 0) s.repetition_penalty = known.repetition_penalty;
  s.temperature = known.temperature;
  s.top_k = known.top_k;
  if (known.top_p != 0) s.top_p = known.top_p;
  s.min_p = known.min_p;
  s.seed = known.seed;
  if (known.allow) {
    s.allow = [allow = known.allow, owner = known.owner](std::span<const int64_t> tokens, std::span<uint8_t> allowed) {
      allow(owner, tokens.data(), static_cast<int64_t>(tokens.size()), allowed.data(), static_cast<int64_t>(allowed.size()));
    };
  }
  return s;
}

coil_status end(const coil::Status& status) { return status.ok() ? COIL_OK : fail(status.error()); }

coil_status keep(const std::shared_ptr<Generator>& generator, coil::Result<std::unique_ptr<Conversation>> made, coil_conversation** out) {
  if (!made.ok()) return fail(made.error());
  *out = new coil_conversation{generator, std::move(made).value()};
  return COIL_OK;
}

}  // namespace

extern "C" {

coil_status coil_generator_create(coil_model* model, coil_generator** generator) try {
  if (!model) return fail_null("the model");
  if (!generator) return fail_null("the place for the generator");
  *generator = nullptr;
  auto made = Generator::make(model->model);
  if (!made.ok()) return fail(made.error());
  *generator = new coil_generator{std::move(made).value()};
  return COIL_OK;
} catch (...) {
  return fail_exception();
}
void coil_generator_destroy(coil_generator* generator) { delete generator; }
int64_t coil_generator_vocabulary(const coil_generator* generator) { return generator ? generator->generator->vocabulary() : 0; }
int64_t coil_generator_tokens_per_call(const coil_generator* generator) { return generator ? generator->generator->most() : 0; }
int64_t coil_generator_conversations_per_call(const coil_generator* generator) { return generator ? std::max<int64_t>(generator->generator->slots(), 1) : 0; }

coil_status coil_conversation_create(coil_generator* generator, const coil_sampling* sampling, coil_conversation** conversation) try {
  if (!generator) return fail_null("the generator");
  if (!conversation) return fail_null("the place for the conversation");
  *conversation = nullptr;
  auto known = sampling_of(sampling);
  if (!known.ok()) return fail(known.error());
  return keep(generator->generator, Conversation::make(generator->generator, std::move(known).value()), conversation);
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_fork(coil_conversation* conversation, coil_conversation** copy) try {
  if (!conversation) return fail_null("the conversation");
  if (!copy) return fail_null("the place for the conversation");
  *copy = nullptr;
  return keep(conversation->generator, conversation->conversation->fork(), copy);
} catch (...) {
  return fail_exception();
}
void coil_conversation_destroy(coil_conversation* conversation) { delete conversation; }

coil_status coil_conversation_set_sampling(coil_conversation* conversation, const coil_sampling* sampling) try {
  if (!conversation) return fail_null("the conversation");
  auto known = sampling_of(sampling);
  return known.ok() ? end(conversation->conversation->set_sampling(std::move(known).value())) : fail(known.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_append(coil_conversation* conversation, const int64_t* tokens, int64_t count) try {
  if (!conversation) return fail_null("the conversation");
  if (count < 0 || (count > 0 && !tokens)) return fail_null("the array of tokens");
  return end(conversation->conversation->append({tokens, static_cast<size_t>(count)}));
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_set_source(coil_conversation* conversation, const int64_t* tokens, int64_t count) try {
  if (!conversation) return fail_null("the conversation");
  if (count < 0 || (count > 0 && !tokens)) return fail_null("the array of tokens");
  return end(conversation->conversation->set_source({tokens, static_cast<size_t>(count)}));
} catch (...) {
  return fail_exception();
}
int32_t coil_generator_takes_source(const coil_generator* generator) { return generator && generator->generator->takes_source(); }

coil_status coil_conversation_next(coil_conversation* conversation, int64_t* token) try {
  if (!conversation) return fail_null("the conversation");
  if (!token) return fail_null("the place for the token");
  const auto next = conversation->conversation->next();
  if (!next.ok()) return fail(next.error());
  *token = next.value();
  return COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_generate(coil_conversation* conversation, int64_t count, const int64_t* stop, int32_t num_stop, int64_t draft, int64_t steps,
                                       int64_t* tokens, int64_t* made) try {
  if (!conversation) return fail_null("the conversation");
  if (!made || (count > 0 && !tokens)) return fail_null(made ? "the array for the tokens" : "the place for their number");
  if (count < 0 || num_stop < 0 || draft < 0 || steps < 0 || (num_stop > 0 && !stop))
    return fail(Error{ErrorCode::bad_option, "count, num_stop, draft and steps are 0 or more", "", ""});
  Conversation& c = *conversation->conversation;
  struct Told {  // also where memory runs out on the way
    const std::vector<int64_t>& all;
    int64_t *tokens, *made;
    size_t before = all.size();
    ~Told() {
      *made = static_cast<int64_t>(all.size() - before);
      std::copy(all.begin() + static_cast<std::ptrdiff_t>(before), all.end(), tokens);
    }
  };
  const Told told{c.tokens(), tokens, made};
  const auto all = c.generate(count, {stop, static_cast<size_t>(num_stop)}, draft, steps);
  return all.ok() ? COIL_OK : fail(all.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_conversations_step(coil_conversation* const* conversations, int64_t count, int64_t most, int64_t* tokens, coil_status* statuses) try {
  if (count < 0 || most < 0) return fail(Error{ErrorCode::bad_option, "count and most are 0 or more", "", ""});
  if (count > 0 && (!conversations || !tokens)) return fail_null(conversations ? "the array for the tokens" : "the array of conversations");
  std::vector<Conversation*> all;
  for (int64_t i = 0; i < count; ++i) {
    if (!conversations[i]) return fail_null("a conversation");
    all.push_back(conversations[i]->conversation.get());
  }
  const auto results = Conversation::step(all, most);
  const Error* first = nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    tokens[i] = results[i].ok() ? results[i].value() : -1;
    if (statuses) statuses[i] = results[i].ok() ? COIL_OK : static_cast<coil_status>(results[i].error().code);
    if (!first && !results[i].ok()) first = &results[i].error();
  }
  return first ? fail(*first) : COIL_OK;
} catch (...) {
  return fail_exception();
}

int64_t coil_conversation_length(const coil_conversation* conversation) {
  return conversation ? static_cast<int64_t>(conversation->conversation->tokens().size()) : 0;
}

coil_status coil_conversation_tokens(const coil_conversation* conversation, int64_t* tokens, int64_t count) try {
  if (!conversation) return fail_null("the conversation");
  if (count > 0 && !tokens) return fail_null("the array for the tokens");
  const std::vector<int64_t>& all = conversation->conversation->tokens();
  if (count < 0 || count > static_cast<int64_t>(all.size()))
    return fail(Error{ErrorCode::bad_option, "the conversation has " + std::to_string(all.size()) + " tokens", "", ""});
  std::copy_n(all.begin(), count, tokens);
  return COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_truncate(coil_conversation* conversation, int64_t count) try {
  return conversation ? end(conversation->conversation->truncate(count)) : fail_null("the conversation");
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_save(coil_conversation* conversation, void* bytes, size_t* size) try {
  if (!conversation) return fail_null("the conversation");
  if (!size) return fail_null("the place for the size");
  const auto saved = conversation->conversation->save();
  return saved.ok() ? coil::runtime::give_bytes(saved.value(), bytes, size) : fail(saved.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_conversation_restore(coil_conversation* conversation, const void* bytes, size_t size) try {
  if (!conversation) return fail_null("the conversation");
  if (!bytes) return fail_null("the saved conversation");
  return end(conversation->conversation->restore({static_cast<const uint8_t*>(bytes), size}));
} catch (...) {
  return fail_exception();
}

}  // extern "C"
