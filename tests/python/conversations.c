/* Several conversations in a call, from C: what test_conversations_c.py compiles and compares with eager.
 *
 *   conversations PACKAGE OTHER_PACKAGE CONTEXT COUNT PROMPT...     (prompts: tokens with commas)
 *
 * Prints the new tokens of each prompt, made by coil_conversations_step, in a line; then goes through errors, which must be named and leave everything
 * usable. Exits with 0, or prints the line that went wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coil/generate.h"

#define MOST 16
#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "line %d: %s\n%s\n", __LINE__, #condition, coil_last_error());                 \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)
#define SAYS(call, code, text) CHECK((call) == (code) && strstr(coil_last_error(), text))

static int64_t parse(const char* text, int64_t* tokens) {
  int64_t n = 0;
  for (const char* at = text; *at; ++n) {
    char* end;
    tokens[n] = strtoll(at, &end, 10);
    at = *end == ',' ? end + 1 : end;
  }
  return n;
}

/* COUNT new tokens of each, in steps of all that are not done yet, with at most `most` tokens of each in a step. */
static void run(coil_generator* generator, int prompts, char** texts, int64_t count, int64_t most) {
  coil_conversation *talks[MOST], *active[MOST];
  int64_t made[MOST] = {0}, tokens[MOST], list[256];
  int who[MOST];
  coil_status statuses[MOST];
  for (int i = 0; i < prompts; ++i) {
    CHECK(coil_conversation_create(generator, NULL, &talks[i]) == COIL_OK);
    CHECK(coil_conversation_append(talks[i], list, parse(texts[i], list)) == COIL_OK);
  }
  for (;;) {
    int n = 0;
    for (int i = 0; i < prompts; ++i)
      if (made[i] < count) who[n] = i, active[n++] = talks[i];
    if (n == 0) break;
    CHECK(coil_conversations_step(active, n, most, tokens, statuses) == COIL_OK);
    for (int k = 0; k < n; ++k) {
      CHECK(statuses[k] == COIL_OK);
      if (tokens[k] >= 0) ++made[who[k]];
    }
  }
  for (int i = 0; i < prompts; ++i) {
    const int64_t length = coil_conversation_length(talks[i]);
    CHECK(coil_conversation_tokens(talks[i], list, length) == COIL_OK);
    for (int64_t t = length - count; t < length; ++t) printf("%lld ", (long long)list[t]);
    printf("\n");
    coil_conversation_destroy(talks[i]);
  }
}

/* One that is full, an empty one and one that is fine, in one step; then what was wrong is mended. */
static void errors_in_a_step(coil_generator* generator, int64_t context) {
  coil_conversation* talks[3];
  coil_status statuses[3];
  int64_t tokens[3], many[256];
  for (int i = 0; i < 256; ++i) many[i] = 65 + i % 20;
  for (int i = 0; i < 3; ++i) CHECK(coil_conversation_create(generator, NULL, &talks[i]) == COIL_OK);
  CHECK(coil_conversation_append(talks[0], many, 4) == COIL_OK);
  CHECK(coil_conversation_append(talks[1], many, context + 3) == COIL_OK);  /* longer than the caches */
  int64_t full = 0, steps = 0;
  while (!full && ++steps < 4 * context) {
    const coil_status status = coil_conversations_step(talks, 3, 0, tokens, statuses);
    CHECK(status == 210 && statuses[2] == 210 && tokens[2] == -1 && statuses[0] == COIL_OK);
    full = statuses[1] == 210;
    if (coil_conversation_length(talks[0]) > context - 2) CHECK(coil_conversation_truncate(talks[0], 4) == COIL_OK);
  }
  CHECK(full);
  coil_conversation* both[2] = {talks[1], talks[0]};
  SAYS(coil_conversations_step(both, 2, 0, tokens, statuses), 210, "caches are full");
  CHECK(statuses[0] == 210 && statuses[1] == COIL_OK && tokens[0] == -1 && tokens[1] >= 0);
  CHECK(coil_conversation_truncate(talks[1], 5) == COIL_OK && coil_conversation_append(talks[2], many, 2) == COIL_OK);
  CHECK(coil_conversations_step(talks, 3, 0, tokens, NULL) == COIL_OK && tokens[0] >= 0 && tokens[1] >= 0 && tokens[2] >= 0);
  coil_conversation* twice[2] = {talks[0], talks[0]};
  SAYS(coil_conversations_step(twice, 2, 0, tokens, statuses), 402, "twice");
  CHECK(statuses[0] == COIL_OK && statuses[1] == 402);
  SAYS(coil_conversations_step(talks, -1, 0, tokens, statuses), 402, "0 or more");
  SAYS(coil_conversations_step(NULL, 1, 0, tokens, statuses), 402, "conversations is null");
  coil_conversation* missing[2] = {talks[0], NULL};
  SAYS(coil_conversations_step(missing, 2, 0, tokens, statuses), 402, "a conversation is null");
  CHECK(coil_conversations_step(NULL, 0, 0, NULL, NULL) == COIL_OK);
  for (int i = 0; i < 3; ++i) coil_conversation_destroy(talks[i]);
}

static void errors_of_one(coil_generator* generator, coil_generator* other) {
  coil_conversation *talk, *foreign;
  const int64_t prompt[3] = {72, 101, 108}, wrong[2] = {72, 100000}, negative[1] = {-1};
  int64_t tokens[8], made = -1, length;
  CHECK(coil_conversation_create(generator, NULL, &talk) == COIL_OK && coil_conversation_create(other, NULL, &foreign) == COIL_OK);
  SAYS(coil_conversation_next(talk, tokens), 210, "empty");
  SAYS(coil_conversation_append(talk, wrong, 2), 210, "token 100000 is not in the vocabulary");
  SAYS(coil_conversation_append(talk, negative, 1), 210, "token -1");
  CHECK(coil_conversation_length(talk) == 0 && coil_conversation_append(talk, prompt, 3) == COIL_OK);
  SAYS(coil_conversation_set_source(talk, prompt, 3), 402, "no encoder");
  CHECK(coil_conversation_append(foreign, prompt, 3) == COIL_OK && coil_conversation_next(foreign, tokens) == COIL_OK);
  size_t size = 0;
  CHECK(coil_conversation_save(foreign, NULL, &size) == COIL_OK && size > 0);
  void* bytes = malloc(size);
  CHECK(bytes && coil_conversation_save(foreign, bytes, &size) == COIL_OK);
  SAYS(coil_conversation_restore(talk, bytes, size), 213, "another model");
  SAYS(coil_conversation_restore(talk, bytes, 5), 213, "damaged");
  free(bytes);
  SAYS(coil_conversation_truncate(talk, 9), 402, "cannot be kept");
  /* A stop in the middle, and on from there. */
  CHECK(coil_conversation_generate(talk, 4, NULL, 0, 0, 0, tokens, &made) == COIL_OK && made == 4);
  const int64_t second = tokens[1];
  CHECK(coil_conversation_truncate(talk, 3) == COIL_OK);
  CHECK(coil_conversation_generate(talk, 4, &second, 1, 0, 0, tokens, &made) == COIL_OK && made >= 1 && made <= 2 && tokens[made - 1] == second);
  length = coil_conversation_length(talk);
  CHECK(length == 3 + made && coil_conversation_next(talk, tokens) == COIL_OK && coil_conversation_length(talk) == length + 1);
  coil_conversation_destroy(talk);
  coil_conversation_destroy(foreign);
}

int main(int argc, char** argv) {
  coil_model *model, *second;
  coil_generator *generator, *other;
  if (argc < 6 || argc - 5 > MOST) return 2;
  CHECK(coil_open(argv[1], NULL, &model) == COIL_OK && coil_open(argv[2], NULL, &second) == COIL_OK);
  CHECK(coil_generator_create(model, &generator) == COIL_OK && coil_generator_create(second, &other) == COIL_OK);
  CHECK(coil_generator_conversations_per_call(generator) > 1);
  run(generator, argc - 5, argv + 5, atoll(argv[4]), 0);
  run(generator, argc - 5, argv + 5, atoll(argv[4]), 3);
  run(other, argc - 5, argv + 5, atoll(argv[4]), 0);
  errors_in_a_step(generator, atoll(argv[3]));
  errors_of_one(generator, other);
  errors_of_one(other, generator);
  coil_generator_destroy(generator);
  coil_generator_destroy(other);
  coil_close(model);
  coil_close(second);
  return 0;
}
