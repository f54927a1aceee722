// coil generate: text from a language model's package, token by token.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "command.h"
#include "interrupt.h"
#include "load_model.h"
#include "runtime/generator.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct GenerateArguments {
  std::string model, device, prompt, ids, source;
  std::vector<int64_t> stop;
  CompileArguments compile;
  runtime::Sampling sampling;
  int64_t tokens = 100, draft = 0, steps = 1;
  int threads = 0;
  bool bytes = false, json = false;
};

Result<std::vector<int64_t>> numbers(const char* option, const std::string& text) {
  const Error no_list{ErrorCode::bad_option, fmt::format("{}: '{}' is no list of numbers", option, text), "", fmt::format("{} 1,15043,29892", option)};
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  std::vector<int64_t> list;
  const char *at = text.data(), *end = at + text.size();
  // Between two numbers there is space, or one comma, with space or without.
  for (bool separated = true;;) {
    while (at < end && is_space(*at)) ++at, separated = true;
    if (at == end) break;
    if (*at == ',') {
      if (list.empty()) return no_list;
      while (++at < end && is_space(*at)) {}
      separated = true;
    }
    int64_t n = 0;
    const auto [rest, error] = std::from_chars(at, end, n);
    if (error != std::errc() || !separated) return no_list;
    list.push_back(n);
    at = rest, separated = false;
  }
  return list;
}

std::vector<int64_t> bytes_of(const std::string& text) {
  std::vector<int64_t> list;
  for (const char c : text) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Result<std::vector<int64_t>> prompt_of(const GenerateArguments& a) {
  if (a.ids.empty() == a.prompt.empty())
    return Error{ErrorCode::bad_option, a.ids.empty() ? "generate needs a prompt" : "--ids and --prompt exclude each other", "",
                 "--ids 1,15043,29892, or --bytes --prompt TEXT"};
  if (!a.ids.empty()) return numbers("--ids", a.ids);
  if (!a.bytes)
    return Error{ErrorCode::bad_option, "this command has no tokenizer: it takes the numbers of tokens", "",
                 "pass --ids, --bytes for models whose tokens are bytes, or use `python -m coil.llm generate`, which takes a tokenizer.json"};
  return bytes_of(a.prompt);
}

// A token as it is printed: a byte, or its number.
void show(const GenerateArguments& a, int64_t token) {
  if (a.json) return;
  if (!a.bytes) {
    std::printf("%lld ", static_cast<long long>(token));
  } else if (token == '\n' || token == '\t' || (token >= 32 && token < 256 && token != 127)) {
    std::putchar(static_cast<int>(token));
  } else {
    std::printf("\\x%02llx", static_cast<unsigned long long>(token));  // nothing controls the terminal
  }
  std::fflush(stdout);
}

struct TokenTimes {
  double first = 0, rest = 0;
};

// Steps, until the wanted number or a token to stop at.
Status speak(const GenerateArguments& a, runtime::Conversation& talk, std::vector<int64_t>* made, TokenTimes* times) {
  const double begin = seconds_now();
  double first = 0;
  while (static_cast<int64_t>(made->size()) < a.tokens) {
    const int64_t count = made->empty() ? 1 : std::min(std::max(a.draft + 1, a.steps), a.tokens - static_cast<int64_t>(made->size()));
    TRY(const std::vector<int64_t> next, talk.generate(count, a.stop, a.draft, a.steps));
    if (made->empty()) first = seconds_now() - begin;
    for (const int64_t token : next) show(a, token);
    made->insert(made->end(), next.begin(), next.end());
    if (std::find(a.stop.begin(), a.stop.end(), made->back()) != a.stop.end()) break;
  }
  *times = {first, seconds_now() - begin - first};
  return ok_status();
}

Result<int> generate(const GenerateArguments& a) {
  TRY(const std::vector<int64_t> prompt, prompt_of(a));
  TRY(const LoadedModel loaded, load_model(a.model, a.compile, a.threads, a.device));
  TRY(auto generator, runtime::Generator::make(loaded.model));
  if (a.bytes && generator->vocabulary() > 256) note(fmt::format("--bytes: the model has {} tokens, those above 255 are no bytes", generator->vocabulary()));
  TRY(auto talk, runtime::Conversation::make(generator, a.sampling));
  if (generator->takes_source() && a.source.empty())
    return Error{ErrorCode::bad_option, "the model has an encoder, and nothing for it to read", "",
                 "--source 3,14,15 (and with --ids what the decoder begins with)"};
  if (!a.source.empty()) {
    TRY(const std::vector<int64_t> source, a.bytes ? Result<std::vector<int64_t>>(bytes_of(a.source)) : numbers("--source", a.source));
    TRY_STATUS(talk->set_source(source));
  }
  TRY_STATUS(talk->append(prompt));
  if (a.bytes && !a.json) std::fputs(a.prompt.c_str(), stdout);
  std::vector<int64_t> made;
  TokenTimes times;
  const Status spoken = speak(a, *talk, &made, &times);
  if (!a.json && !made.empty()) std::putchar('\n'), std::fflush(stdout);  // before what is said about it
  TRY_STATUS(spoken);
  const double rate = made.size() > 1 && times.rest > 0 ? static_cast<double>(made.size() - 1) / times.rest : 0;
  if (a.json) {
    put(json_text({{"model", a.model},
                   {"device", loaded.model->device().text()},
                   {"target", loaded.model->isa()},
                   {"threads", loaded.model->host().num_workers},
                   {"prompt_tokens", prompt.size()},
                   {"tokens", made},
                   {"first_token_seconds", times.first},
                   {"tokens_per_second", rate}}));
  } else {
    note(fmt::format("{} prompt tokens, the first new one after {}, {} more at {:.1f} tokens/s", prompt.size(), seconds_text(times.first),
                     made.empty() ? 0 : made.size() - 1, rate));
  }
  return 0;
}

}  // namespace

Action add_generate(CommandLine& app) {
  auto a = std::make_shared<GenerateArguments>();
  app.add_option("model", a->model, "package of a language model, or exported program (compiled in memory first)").required().type_name("MODEL");
  app.add_option("--ids", a->ids, "the prompt's tokens, by their numbers: 1,15043,29892").type_name("LIST");
  app.add_option("--prompt", a->prompt, "the prompt as text, with --bytes").type_name("TEXT");
  app.add_option("--source", a->source, "what the encoder reads, for models that have one: the numbers of tokens, with --bytes text").type_name("LIST");
  app.add_flag("--bytes", a->bytes, "the model's tokens are bytes: text goes in and out");
  app.add_option("-n,--tokens", a->tokens, "how many new tokens at most; default: 100").within(int64_t{1}, int64_t{1} << 40).type_name("N");
  app.add_option("--stop", a->stop, "tokens to stop at, by their numbers").delimiter(',').type_name("LIST");
  app.add_option("--temperature", a->sampling.temperature, "0: always the most likely token (the default); 1: by the model's own probabilities").type_name("T");
  app.add_option("--top-k", a->sampling.top_k, "choose among the k most likely tokens; default: all").type_name("K");
  app.add_option("--top-p", a->sampling.top_p, "choose among the fewest most likely tokens that have this share together").type_name("P");
  app.add_option("--min-p", a->sampling.min_p, "choose among tokens with at least this share of the most likely one's probability").type_name("P");
  app.add_option("--repetition-penalty", a->sampling.repetition_penalty, "make tokens that were there less likely; 1: no").type_name("X");
  app.add_option("--seed", a->sampling.seed, "the same seed gives the same text; default: 0").type_name("N");
  app.add_option("--draft", a->draft, "try so many tokens of an earlier repetition in one step: the same text in fewer steps; default: 0")
      .within(0, 256)
      .type_name("N");
  app.add_option("--steps", a->steps, "steps that a GPU makes before the first one's token is looked at: the same text with less waiting; default: 1")
      .within(1, 64)
      .type_name("N");
  add_device_option(app, a->device);
  add_program_option(app, a->compile.program);
  add_threads_option(app, a->threads, "threads of a step; default: all that this process may use");
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print tokens and times as JSON, at the end");
  app.footer(
      "Examples:\n"
      "  coil generate decoder.coil.pt2 --bytes --prompt \"The licensee \" --tokens 200\n"
      "  coil generate llama.coil.pt2 --ids 1,15043,29892 --temperature 0.8 --top-p 0.95 --seed 7\n"
      "Takes programs of tokens [1, n] (and their places) to logits [1, n, vocabulary], best with caches as buffers (docs/generation.md).\n"
      "Text goes through a tokenizer in Python: python -m coil.llm generate MODEL --tokenizer tokenizer.json --prompt TEXT");
  return [a] { return generate(*a); };
}

}  // namespace coil::tool
