// Random calls of states and of text generation (coil_state_*, include/coil/generate.h) against a reference: right ones and wrong ones, forks, saved bytes that
// are whole, cut, changed or foreign, caches that are full, rules that nothing fulfils, allocations that fail, several threads. What has to be right gives the
// tokens that the reference chooses; what fails leaves tokens and state as they were. COIL_FUZZ_CALLS and COIL_FUZZ_SEED say how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "allocations.h"
#include "coil/generate.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

constexpr int64_t kRows = 40, kVocabulary = 13;  // of MODEL_TALK
using Tokens = std::vector<int64_t>;

// What may come next: nothing at every eleventh place, no multiple of three at every fifth.
void allow(void* owner, const int64_t*, int64_t count, uint8_t* allowed, int64_t vocabulary) {
  if (!*static_cast<int*>(owner)) return;
  for (int64_t v = 0; v < vocabulary; v++) allowed[v] = count % 11 != 10 && (count % 5 || v % 3);
}

struct Rules {
  std::vector<int64_t> tokens;
  std::vector<float> biases;
  coil_sampling sampling = {.struct_bytes = sizeof(coil_sampling)};
  int masked = 1;
  coil_sampling* get() {
    sampling.num_biases = static_cast<int32_t>(tokens.size()), sampling.bias_tokens = tokens.data(), sampling.biases = biases.data();
    sampling.owner = &masked;
    return &sampling;
  }
};

// The most likely token after all of these; -1 where a step has to be refused.
int64_t most_likely(const Tokens& tokens, const Rules& rules) {
  if (tokens.empty() || tokens.size() > kRows) return -1;
  uint64_t mixed = 0;
  for (const int64_t t : tokens) mixed = mixed * 31 + static_cast<uint64_t>(t + 1);
  std::vector<float> logits;
  for (int64_t v = 0; v < kVocabulary; v++) logits.push_back(static_cast<float>((mixed * 131 + static_cast<uint64_t>(v)) * 2654435761u % 4096) / 512 - 4);
  for (size_t i = 0; i < rules.tokens.size(); i++) {
    if (rules.tokens[i] >= 0 && rules.tokens[i] < kVocabulary) logits[static_cast<size_t>(rules.tokens[i])] += rules.biases[i];
  }
  const float penalty = rules.sampling.repetition_penalty;
  for (const int64_t t : std::set<int64_t>(tokens.begin(), tokens.end())) {
    float& x = logits[static_cast<size_t>(t)];
    if (penalty != 0 && penalty != 1) x = x > 0 ? x / penalty : x * penalty;
  }
  std::vector<uint8_t> allowed(kVocabulary, 1);
  int masked = 1;
  if (rules.sampling.allow) allow(&masked, tokens.data(), static_cast<int64_t>(tokens.size()), allowed.data(), kVocabulary);
  int64_t best = -1;
  for (int64_t v = 0; v < kVocabulary; v++) {
    if (allowed[static_cast<size_t>(v)] && (best < 0 || logits[static_cast<size_t>(v)] > logits[static_cast<size_t>(best)])) best = v;
  }
  return best;
}

struct Talk {
  coil_conversation* handle = nullptr;
  Tokens tokens;
  std::shared_ptr<Rules> rules;
};

// Leaves the function with what did not hold.
#define MUST(what)                                                     \
  do {                                                                 \
    if (!(what)) return std::string(#what) + ": " + coil_last_error(); \
  } while (0)

class Talker {
 public:
  Talker(coil_model* model, coil_generator* generator, uint64_t seed, bool faults) : generator_(generator), random_(seed), faults_(faults) {
    if (coil_generator_create(model, &other_) != COIL_OK) std::abort();
    talks_.reserve(8);
  }
  ~Talker() {
    for (Talk& t : talks_) coil_conversation_destroy(t.handle);
    coil_generator_destroy(other_);
  }

  // "" or what was wrong.
  std::string call() {
    if (talks_.empty() || (talks_.size() < 6 && chance(20))) return create();
    Talk& t = talks_[static_cast<size_t>(pick(static_cast<int>(talks_.size())))];
    if (t.tokens.size() > kRows && chance(2)) return truncate(t);
    std::string wrong;
    switch (pick(12)) {
      case 0: wrong = append(t, false); break;
      case 1:
      case 2: wrong = append(t, true); break;
      case 3:
      case 4:
      case 5: wrong = next(t); break;
      case 6:
      case 7: wrong = generate(t); break;
      case 8: wrong = truncate(t); break;
      case 9: wrong = save_and_restore(t); break;
      case 10: wrong = sampling(t); break;
      default: wrong = chance(3) ? destroy(t) : fork(t);
    }
    return wrong;
  }
  int64_t good = 0, refused = 0, faults_met = 0;

 private:
  bool chance(int of) { return pick(of) == 0; }
  int pick(int of) { return static_cast<int>(random_() % static_cast<uint64_t>(of)); }

  // The call with an allocation that fails, sometimes. Then it may be 401, with everything as it was.
  template <class F>
  coil_status with_faults(F f) {
    if (!faults_ || !chance(3)) return f();
    fail(Fault::allocation, 1 + pick(12), chance(2));
    const coil_status status = f();
    faults_met += count_failures() > 0;
    fail(Fault::none, 0, false);
    return status;
  }

  std::string same(const Talk& t, const Tokens& tokens) {
    MUST(coil_conversation_length(t.handle) == static_cast<int64_t>(tokens.size()));
    Tokens got(tokens.size());
    MUST(coil_conversation_tokens(t.handle, got.data(), static_cast<int64_t>(got.size())) == COIL_OK);
    MUST(coil_conversation_tokens(t.handle, got.data(), static_cast<int64_t>(got.size()) + 1) == 402);
    MUST(got == tokens);
    return "";
  }

  std::string create() {
    Talk t{nullptr, {}, make_rules()};
    const coil_status status = with_faults([&] { return coil_conversation_create(chance(4) ? other_ : generator_, t.rules->get(), &t.handle); });
    MUST(status == COIL_OK || (faults_ && status == 401 && !t.handle));
    if (status == COIL_OK) talks_.push_back(t), good++;
    return "";
  }

  std::string fork(Talk& t) {
    if (talks_.size() >= 7) return destroy(t);
    Talk copy{nullptr, t.tokens, t.rules};
    const coil_status status = with_faults([&] { return coil_conversation_fork(t.handle, &copy.handle); });
    MUST(status == COIL_OK || (faults_ && status == 401 && !copy.handle));
    if (status != COIL_OK) return same(t, t.tokens);
    talks_.push_back(copy), good++;
    return same(copy, copy.tokens);
  }

  std::string destroy(Talk& t) {
    coil_conversation_destroy(t.handle);
    t = talks_.back();
    talks_.pop_back();
    return "";
  }

  std::shared_ptr<Rules> make_rules() {
    auto rules = std::make_shared<Rules>();
    coil_sampling& s = rules->sampling;
    for (int i = chance(3) ? pick(4) : 0; i > 0; i--) rules->tokens.push_back(pick(16) - 1), rules->biases.push_back(static_cast<float>(pick(9) - 4));
    if (chance(3)) s.repetition_penalty = 0.5f + static_cast<float>(pick(4)) * 0.5f;
    if (chance(3))
      s.temperature = 0.25f * static_cast<float>(1 + pick(8)), s.top_k = pick(6), s.top_p = static_cast<float>(pick(4)) * 0.25f, s.min_p = chance(2) ? 0.1f : 0,
      s.seed = random_();
    if (chance(3)) s.allow = allow;
    return rules;
  }

  std::string sampling(Talk& t) {
    std::shared_ptr<Rules> rules = make_rules();
    coil_sampling* s = rules->get();
    const bool right = chance(2);
    switch (right ? -1 : pick(9)) {
      case 0: s->struct_bytes = static_cast<uint32_t>(pick(4)); break;
      case 1: s->num_biases = -1 - pick(3); break;
      case 2: s->num_biases = 1, s->bias_tokens = nullptr; break;
      case 3: s->temperature = chance(2) ? -1 : NAN; break;
      case 4: s->top_k = -1; break;
      case 5: s->top_p = chance(2) ? 1.5f : NAN; break;
      case 6: s->min_p = chance(2) ? 1 : -0.5f; break;
      case 7: s->repetition_penalty = chance(2) ? -1 : INFINITY; break;
      case 8: rules->tokens.assign(1, 0), rules->biases.assign(1, NAN), s = rules->get(); break;
      default: break;
    }
    const coil_status status = with_faults([&] { return coil_conversation_set_sampling(t.handle, s); });
    if (faults_ && status == 401) return "";
    MUST(status == (right ? COIL_OK : 402));
    if (right) t.rules = rules, good++;
    else refused++;
    return "";
  }

  std::string append(Talk& t, bool right) {
    Tokens more;
    for (int i = pick(chance(5) ? 30 : 9); i > 0; i--) more.push_back(pick(kVocabulary));
    int64_t count = static_cast<int64_t>(more.size());
    coil_status want = COIL_OK;
    const int64_t* data = more.data();
    if (!right) {
      want = 210;
      if (chance(4)) want = 402, count = -1 - pick(5);
      else if (chance(4)) want = 402, count = 3, data = nullptr;
      else more.push_back(chance(2) ? -1 : kVocabulary + pick(100)), data = more.data(), count = static_cast<int64_t>(more.size());
    }
    const coil_status status = with_faults([&] { return coil_conversation_append(t.handle, data, count); });
    if (faults_ && status == 401) return same(t, t.tokens);
    MUST(status == want);
    if (want) return refused++, same(t, t.tokens);
    t.tokens.insert(t.tokens.end(), more.begin(), more.end());
    good++;
    return same(t, t.tokens);
  }

  // What has to come after `tokens`: by the reference, or, where chance decides, by another conversation that is told all of them at once.
  std::string expected(const Tokens& tokens, Rules& rules, int64_t* token) {
    *token = most_likely(tokens, rules);
    if (*token < 0 || rules.sampling.temperature == 0) return "";
    coil_conversation* fresh = nullptr;
    MUST(coil_conversation_create(other_, rules.get(), &fresh) == COIL_OK);
    coil_conversation_append(fresh, tokens.data(), static_cast<int64_t>(tokens.size()));
    const coil_status status = coil_conversation_next(fresh, token);
    coil_conversation_destroy(fresh);
    MUST(status == COIL_OK && *token >= 0 && *token < kVocabulary);
    return "";
  }

  std::string next(Talk& t) {
    int64_t want = -1, got = -7;
    if (const std::string wrong = expected(t.tokens, *t.rules, &want); !wrong.empty()) return wrong;
    const coil_status status = with_faults([&] { return coil_conversation_next(t.handle, &got); });
    if (faults_ && status == 401) return same(t, t.tokens);
    MUST(status == (want < 0 ? 210 : COIL_OK));
    if (want < 0) return refused++, got == -7 ? same(t, t.tokens) : "a refused step told a token";
    MUST(got == want);
    t.tokens.push_back(got), good++;
    return same(t, t.tokens);
  }

  std::string generate(Talk& t) {
    const int64_t count = pick(30), draft = chance(2) ? 0 : chance(8) ? INT64_MAX : pick(9);
    Tokens stop, got(static_cast<size_t>(count) + 1, -7), want = t.tokens;
    for (int i = chance(2) ? pick(3) : 0; i > 0; i--) stop.push_back(pick(16) - 1);
    coil_status code = COIL_OK;
    for (int64_t i = 0; i < count && !code; i++) {
      int64_t token = -1;
      if (const std::string wrong = expected(want, *t.rules, &token); !wrong.empty()) return wrong;
      if (token < 0) code = 210;
      else want.push_back(token);
      if (std::count(stop.begin(), stop.end(), token)) break;
    }
    int64_t made = -7;
    const coil_status status = with_faults(
        [&] { return coil_conversation_generate(t.handle, count, stop.data(), static_cast<int32_t>(stop.size()), draft, pick(4), got.data(), &made); });
    const bool fault = faults_ && status == 401;
    const auto most = static_cast<int64_t>(want.size() - t.tokens.size());
    MUST(fault || (status == code && made == most));
    MUST(made >= 0 && made <= most && got[static_cast<size_t>(made)] == -7);
    MUST(std::equal(got.begin(), got.begin() + made, want.begin() + static_cast<std::ptrdiff_t>(t.tokens.size())));
    t.tokens.insert(t.tokens.end(), got.begin(), got.begin() + made);
    (code ? refused : good)++;
    return same(t, t.tokens);
  }

  std::string truncate(Talk& t) {
    const auto size = static_cast<int>(t.tokens.size());
    const bool right = !chance(5);
    const int64_t count = right ? pick(size + 1) : chance(2) ? -1 - pick(9) : size + 1 + pick(9);
    const coil_status status = with_faults([&] { return coil_conversation_truncate(t.handle, count); });
    if (faults_ && status == 401 && !right) return same(t, t.tokens);  // no memory for the text
    MUST(status == (right ? COIL_OK : 402));
    if (right) t.tokens.resize(static_cast<size_t>(count));
    (right ? good : refused)++;
    return same(t, t.tokens);
  }

  std::string save_and_restore(Talk& t) {
    size_t size = 0;
    MUST(coil_conversation_save(t.handle, nullptr, &size) == COIL_OK);
    std::vector<uint8_t> bytes(size);
    size_t less = size - 1 - static_cast<size_t>(pick(static_cast<int>(size)));
    MUST(coil_conversation_save(t.handle, bytes.data(), &less) == 402 && less == size);
    MUST(std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; }));
    const coil_status saved = with_faults([&] { return coil_conversation_save(t.handle, bytes.data(), &size); });
    if (faults_ && saved == 401) return same(t, t.tokens);
    MUST(saved == COIL_OK && size == bytes.size());
    Talk& to = talks_[static_cast<size_t>(pick(static_cast<int>(talks_.size())))];
    if (const std::string wrong = damaged(to, bytes, t); !wrong.empty()) return wrong;
    const coil_status status = with_faults([&] { return coil_conversation_restore(to.handle, bytes.data(), bytes.size()); });
    if (faults_ && status == 401) return same(to, to.tokens);
    MUST(status == COIL_OK);
    to.tokens = t.tokens, good++;
    return same(to, to.tokens);
  }

  // Bytes that are not what was saved: refused, and then nothing changes; or taken for another conversation, which is put right.
  std::string damaged(Talk& to, std::vector<uint8_t> bytes, const Talk& from) {
    const std::vector<uint8_t> whole = bytes;
    const int way = pick(5);
    if (way == 0) bytes.resize(static_cast<size_t>(pick(static_cast<int>(bytes.size()))));
    if (way == 1) bytes.push_back(static_cast<uint8_t>(pick(256)));
    if (way == 2) {
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(pick(256));
    }
    for (int i = way > 2 ? 1 + pick(3) : 0; i > 0; i--)
      bytes[static_cast<size_t>(pick(static_cast<int>(chance(2) ? bytes.size() : std::min<size_t>(bytes.size(), 96))))] = static_cast<uint8_t>(pick(256));
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);  // a sanitizer sees what goes beyond
    std::copy(bytes.begin(), bytes.end(), exact.get());
    const coil_status status = coil_conversation_restore(to.handle, exact.get(), bytes.size());
    MUST(status == 213 || (status == COIL_OK && way > 2));
    refused += status == 213;
    if (status == 213) return same(to, to.tokens);
    int64_t token = -1;
    const coil_status step = coil_conversation_next(to.handle, &token);
    MUST(step == COIL_OK || step == 210);
    MUST(coil_conversation_restore(to.handle, whole.data(), whole.size()) == COIL_OK);
    to.tokens = from.tokens;
    return same(to, to.tokens);
  }

  coil_generator *generator_, *other_ = nullptr;
  std::mt19937_64 random_;
  bool faults_;
  std::vector<Talk> talks_;
};

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void talk(int threads, bool faults) {
  const int64_t calls = number("COIL_FUZZ_CALLS", 6000), seed = number("COIL_FUZZ_SEED", 1);
  coil_model* model = open_or_fail(write_file("talks.pt2", package("TALK")));
  coil_generator* generator = nullptr;
  ASSERT_EQ(model ? coil_generator_create(model, &generator) : 1, COIL_OK) << coil_last_error();
  EXPECT_EQ(coil_generator_vocabulary(generator), kVocabulary);
  std::string failure;
  int64_t good = 0, refused = 0, met = 0;
  for (int64_t done = 0, round = 0; done < calls && failure.empty(); done += 500 * threads, round++) {
    std::vector<std::thread> running;
    std::vector<std::string> failures(static_cast<size_t>(threads));
    std::vector<std::unique_ptr<Talker>> talkers;
    for (int t = 0; t < threads; t++)
      talkers.push_back(std::make_unique<Talker>(model, generator, static_cast<uint64_t>(seed * 1000003 + round * 64 + t), faults));
    for (size_t t = 0; t < talkers.size(); t++) {
      running.emplace_back([&, t] {
        for (int i = 0; i < 500 && failures[t].empty(); i++) {
          failures[t] = talkers[t]->call();
          if (!failures[t].empty())
            failures[t] +=
                " (seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", thread " + std::to_string(t) + ", call " + std::to_string(i) + ")";
        }
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const std::string& f : failures) failure += f;
    for (const auto& t : talkers) good += t->good, refused += t->refused, met += t->faults_met;
  }
  coil_generator_destroy(generator);
  coil_close(model);
  EXPECT_EQ(failure, "");
  EXPECT_GT(good, calls / 4);
  EXPECT_GT(refused, calls / 20);
  EXPECT_GE(met, faults ? calls / 20 : 0);
  std::printf("%lld calls: %lld right, %lld refused, %lld with failing allocations\n", static_cast<long long>(calls), static_cast<long long>(good),
              static_cast<long long>(refused), static_cast<long long>(met));
}

TEST(RandomTalks, AgreeWithTheReference) { talk(4, false); }

TEST(RandomTalks, WithoutMemory) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  talk(1, true);
}

}  // namespace
}  // namespace coil::runtime_test
