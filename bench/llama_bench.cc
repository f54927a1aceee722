// What `llama-bench` measures, of llama.cpp's library alone, which takes a third of the time to build: for bench/llm.py --llama-bench.
//
//   cmake -B build -DCMAKE_BUILD_TYPE=Release llama.cpp && ninja -C build llama
//   g++ -O2 -std=c++17 -Illama.cpp/include -Illama.cpp/ggml/include llama_bench.cc -Lbuild/bin -lllama -lggml -lggml-base -Wl,-rpath,build/bin -o llama-bench
//
// usage: llama-bench -m FILE.gguf -t THREADS -p PROMPT -n TOKENS. The prompt is one llama_decode, then come single tokens; loading and a first token do not
// count.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "llama.h"

namespace {

// Seconds of one call of llama_decode; none where it failed.
double seconds_of(llama_context* context, std::vector<llama_token> tokens) {
  const auto begin = std::chrono::steady_clock::now();
  if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0) {
    std::fprintf(stderr, "llama_decode failed\n");
    std::exit(1);
  }
  llama_synchronize(context);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"-t", "1"}, {"-p", "128"}, {"-n", "64"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const int threads = std::atoi(given["-t"].c_str()), prompt = std::atoi(given["-p"].c_str()), count = std::atoi(given["-n"].c_str());
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(given["-m"].c_str(), llama_model_default_params());
  if (!model) return std::fprintf(stderr, "cannot read %s\n", given["-m"].c_str()), 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(prompt + count + 8);
  params.n_batch = 2048, params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = threads;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return std::fprintf(stderr, "no context\n"), 1;
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  const auto token = [&](int i) { return static_cast<llama_token>((7 * i + 3) % vocabulary); };
  seconds_of(context, {token(0)});
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<llama_token> tokens;
  for (int i = 0; i < prompt; i++) tokens.push_back(token(i));
  const double first = seconds_of(context, tokens);
  double rest = 0;
  for (int i = 0; i < count; i++) rest += seconds_of(context, {token(prompt + i)});
  std::printf("[{\"n_prompt\": %d, \"n_gen\": 0, \"avg_ns\": %.0f}, {\"n_prompt\": 0, \"n_gen\": %d, \"avg_ns\": %.0f}]\n", prompt, first * 1e9, count,
              rest * 1e9);
  return 0;
}
