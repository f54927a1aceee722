/* Continues a text with a package whose tokens are bytes: generate MODEL.coil.pt2 "A prompt" [TOKENS [TEMPERATURE [SEED]]]
 * Build: cc generate.c -I include -L lib -lcoil_runtime -o generate */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coil/generate.h"

static coil_conversation* conversation;
static coil_generator* generator;
static coil_model* model;

/* Whatever exists is closed, in this order: NULL is fine. */
static int close_all(int status) {
  if (status) fprintf(stderr, "%s\n", coil_last_error());
  coil_conversation_destroy(conversation);
  coil_generator_destroy(generator);
  coil_close(model);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: %s MODEL.coil.pt2 PROMPT [TOKENS [TEMPERATURE [SEED]]]\n", argv[0]), 2;
  coil_sampling sampling = {.struct_bytes = sizeof sampling};
  sampling.temperature = argc > 4 ? strtof(argv[4], NULL) : 0;
  sampling.seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
  if (coil_open(argv[1], NULL, &model) || coil_generator_create(model, &generator) || coil_conversation_create(generator, &sampling, &conversation))
    return close_all(1);

  const size_t length = strlen(argv[2]);
  int64_t* prompt = malloc((length + 1) * sizeof *prompt);
  if (!prompt) return close_all(1);
  for (size_t i = 0; i < length; i++) prompt[i] = (unsigned char)argv[2][i];
  const coil_status appended = coil_conversation_append(conversation, prompt, (int64_t)length);
  free(prompt);
  if (appended) return close_all(1);

  fputs(argv[2], stdout);
  for (long i = 0, tokens = argc > 3 ? strtol(argv[3], NULL, 10) : 200; i < tokens; i++) {
    int64_t token;
    if (coil_conversation_next(conversation, &token)) return close_all(1);
    if (token == '\n' || (token >= ' ' && token < 127)) putchar((int)token);
    fflush(stdout);
  }
  putchar('\n');
  return close_all(0);
}
