/* Text generation in C, beside coil.h: a language model's package called token by token. Links libc, libm and the C++ library only.
 *
 *   coil_generator* generator;
 *   coil_conversation* talk;
 *   coil_generator_create(model, &generator);
 *   coil_conversation_create(generator, NULL, &talk);
 *   coil_conversation_append(talk, prompt, prompt_tokens);
 *   for (int i = 0; i < 100 && !coil_conversation_next(talk, &token) && token != end_of_text; i++) print(token);
 *
 * The package is a program of any of these forms (with caches as buffers of the program, or without):
 *   tokens [1, n] or [n], int64 or int32 [, their places [n], [1, n] or that of the first as a number] -> logits [1, n, V], [n, V], [1, V] or [V]
 *   tokens [slots, n], their places [slots, n] -> logits [slots, n, V], for several conversations in a call
 *   tokens [1, n], what an encoder has read [1, m, width] [, their places] -> logits, beside an encoder of tokens [1, m] -> [1, m, width] in the package
 * where n is 1 or dynamic. Tokens are numbers; text is the caller's affair (a tokenizer). On the CPU and on CUDA.
 *
 * Errors are those of coil.h: COIL_OK or the number of a code, and coil_last_error(). A call that fails leaves the conversation's tokens as they were, and
 * it may go on. A generator may be shared by all threads and is closed last; a conversation serves one call at a time, different ones run side by side. */
#ifndef COIL_GENERATE_H_
#define COIL_GENERATE_H_

#include "coil/coil.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coil_generator coil_generator;
typedef struct coil_conversation coil_conversation;

/* Sets to 0 which of the `vocabulary` tokens must not come after `tokens`; all are 1 on entry. */
typedef void (*coil_allow_function)(void* owner, const int64_t* tokens, int64_t num_tokens, uint8_t* allowed, int64_t vocabulary);

/* How the next token is chosen; the rules apply in the order of the fields, as transformers has them. Zero fields do nothing. */
typedef struct coil_sampling {
  uint32_t struct_bytes; /* sizeof(coil_sampling); COIL-E402 without it */
  int32_t num_biases;
  const int64_t* bias_tokens; /* [num_biases] */
  const float* biases;        /* [num_biases], added to these tokens' logits */
  float repetition_penalty;   /* positive logits of tokens that were there are divided by it, negative ones multiplied; 0 or 1: none */
  float temperature;          /* 0: always the most likely token */
  int64_t top_k;              /* only the k most likely ones; 0: all */
  float top_p;                /* only the fewest most likely ones that have this share together; 0 or 1: all */
  float min_p;                /* only those with at least this share of the most likely one's probability */
  uint64_t seed;              /* the same seed gives the same text */
  coil_allow_function allow;  /* constrained generation; NULL: everything may come */
  void* owner;                /* passed to allow */
} coil_sampling;

/* COIL-E105: the program is not of such a form; the text says which input or result is in the way. The generator keeps the model. Of a package
 * of several programs it uses all that generate text and keep the same state, each for as many tokens as it takes; a model that was opened by its program's
 * name (coil_options.program, coil_open_program) is used alone. */
COIL_API coil_status coil_generator_create(coil_model* model, coil_generator** generator);
COIL_API void coil_generator_destroy(coil_generator* generator);
/* How many tokens there are; 0 for NULL. */
COIL_API int64_t coil_generator_vocabulary(const coil_generator* generator);
/* Tokens that one call of the program takes at most (of a conversation): 1 for programs of single steps. */
COIL_API int64_t coil_generator_tokens_per_call(const coil_generator* generator);
/* Conversations that one call serves: 1, or the slots of a program whose tokens are [slots, n], places [slots, n] ([slots] where n is 1), logits
 * [slots, n, V] ([slots, V] where n is 1) and caches [slots, ...] by place. */
COIL_API int64_t coil_generator_conversations_per_call(const coil_generator* generator);

/* An empty conversation. sampling: NULL for the most likely token, always; its arrays are copied, `owner` has to live as long as the conversation. */
COIL_API coil_status coil_conversation_create(coil_generator* generator, const coil_sampling* sampling, coil_conversation** conversation);
/* Another one that goes on from here, with a copy of the state. */
COIL_API coil_status coil_conversation_fork(coil_conversation* conversation, coil_conversation** copy);
COIL_API void coil_conversation_destroy(coil_conversation* conversation);
COIL_API coil_status coil_conversation_set_sampling(coil_conversation* conversation, const coil_sampling* sampling);
/* Adds tokens of the caller's (a prompt, an answer); they are processed by the next step. COIL-E210 for one outside of the vocabulary; then none is added. */
COIL_API coil_status coil_conversation_append(coil_conversation* conversation, const int64_t* tokens, int64_t count);
/* For packages with an encoder: what it reads, and what the conversation is generated under from now on; its tokens are processed again. COIL-E210 for
 * tokens that the encoder does not take; COIL-E402 where there is no encoder. Steps of such a package without a source end with COIL-E210. */
COIL_API coil_status coil_conversation_set_source(coil_conversation* conversation, const int64_t* tokens, int64_t count);
/* Whether conversations need a source: 1 or 0. */
COIL_API int32_t coil_generator_takes_source(const coil_generator* generator);
/* Chooses one more token, and adds it. COIL-E210 where there is no token before it, where the caches are full, or where the logits are NaN. */
COIL_API coil_status coil_conversation_next(coil_conversation* conversation, int64_t* token);
/* Chooses at most `count` more, up to one of `stop`, which is added too; *made is how many. draft > 0: so many tokens that followed the last three when they
 * came before are tried in one call; the text is the same, in fewer calls (for states that are caches by place). steps: how many steps a GPU that chooses
 * tokens is given before the first token is looked at; the text is the same, with less waiting. 0: as many as there can be where there is no `stop`, else 1;
 * more than 1 with `stop` is for states that are caches by place, which steps behind the stop write to. When a step fails, *made tells how many tokens were
 * added before. */
COIL_API coil_status coil_conversation_generate(coil_conversation* conversation, int64_t count, const int64_t* stop, int32_t num_stop, int64_t draft,
                                                int64_t steps, int64_t* tokens, int64_t* made);
/* One more token for each of `count` different conversations, of any lengths, in as few calls of the program as its slots allow; the same tokens as each gets
 * alone. Of each conversation at most `most` tokens that are not processed yet are (0: as many as a call takes), so that a long prompt does not hold up the
 * others: tokens[i] is -1 while some are left, for the next step. statuses: COIL_OK or the number of a code for each, or NULL; one that fails does so
 * alone. Returns the first of these that is not COIL_OK. */
COIL_API coil_status coil_conversations_step(coil_conversation* const* conversations, int64_t count, int64_t most, int64_t* tokens, coil_status* statuses);
/* How many tokens the conversation has, and the first `count` of them. */
COIL_API int64_t coil_conversation_length(const coil_conversation* conversation);
COIL_API coil_status coil_conversation_tokens(const coil_conversation* conversation, int64_t* tokens, int64_t count);
/* Forgets all but the first `count` tokens. For states that are caches by place. */
COIL_API coil_status coil_conversation_truncate(coil_conversation* conversation, int64_t count);
/* As coil_state_save and coil_state_restore: tokens and state, not the sampling. */
COIL_API coil_status coil_conversation_save(coil_conversation* conversation, void* bytes, size_t* size);
COIL_API coil_status coil_conversation_restore(coil_conversation* conversation, const void* bytes, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* COIL_GENERATE_H_ */
