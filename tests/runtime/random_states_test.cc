// Random calls of coil_state_* with contexts that use them, against counters that know what each state holds: states that are made, forked, saved, restored
// from whole, cut, changed and foreign bytes, destroyed while contexts use them, shared by threads, and allocations and mappings that fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "allocations.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

constexpr float kBegin = 10;  // of MODEL_COUNTER

struct Counted {
  coil_state* handle = nullptr;
  std::shared_ptr<float> count;  // the state itself lives on where a context uses it
};
struct User {
  coil_context* context = nullptr;
  std::shared_ptr<float> count;  // null: the model's
};

// Leaves the function with what did not hold.
#define MUST(what)                                                     \
  do {                                                                 \
    if (!(what)) return std::string(#what) + ": " + coil_last_error(); \
  } while (0)

class Keeper {
 public:
  Keeper(coil_model* model, coil_state* foreign, uint64_t seed, bool faults) : model_(model), foreign_(foreign), random_(seed), faults_(faults) {}
  ~Keeper() {
    for (const Counted& s : states_) coil_state_destroy(s.handle);
    for (const User& u : users_) coil_context_destroy(u.context);
  }

  std::string call() {
    if (users_.size() < 3 && chance(4)) {
      User made;
      const coil_status status = with_faults([&] { return coil_context_create(model_, &made.context); });
      MUST(status == COIL_OK || (faults_ && status == 401));
      if (status == COIL_OK) users_.push_back(made);
      return "";
    }
    if (states_.empty() || (states_.size() < 5 && chance(8))) return make();
    Counted& s = states_[static_cast<size_t>(pick(states_.size()))];
    switch (pick(8)) {
      case 0: return fork(s);
      case 1:
        MUST(coil_state_reset(s.handle) == COIL_OK);
        *s.count = kBegin;
        return "";
      case 2: return save_and_restore(s);
      case 3: return use(s);
      case 4:
        if (!chance(3)) return "";
        coil_state_destroy(s.handle);
        s = states_.back();
        states_.pop_back();
        return "";
      default: return users_.empty() ? "" : step(users_[static_cast<size_t>(pick(users_.size()))]);
    }
  }
  int64_t good = 0, refused = 0, faults_met = 0;

 private:
  bool chance(size_t of) { return pick(of) == 0; }
  int pick(size_t of) { return static_cast<int>(random_() % of); }

  template <class F>
  coil_status with_faults(F f) {
    if (!faults_ || !chance(3)) return f();
    fail(chance(4) ? Fault::mapping : chance(4) ? Fault::file : Fault::allocation, 1 + pick(6), chance(2));
    const coil_status status = f();
    faults_met += count_failures() > 0;
    fail(Fault::none, 0, false);
    return status;
  }

  std::string make() {
    Counted s{nullptr, std::make_shared<float>(kBegin)};
    const coil_status status = with_faults([&] { return coil_state_create(model_, &s.handle); });
    MUST((status == COIL_OK && s.handle) || (faults_ && status == 401 && !s.handle));
    if (status == COIL_OK) states_.push_back(s), good++;
    return "";
  }

  std::string fork(const Counted& s) {
    if (states_.size() > 5) return "";
    Counted copy{nullptr, std::make_shared<float>(*s.count)};
    const coil_status status = with_faults([&] { return coil_state_fork(s.handle, &copy.handle); });
    MUST((status == COIL_OK && copy.handle) || (faults_ && status == 401 && !copy.handle));
    if (status == COIL_OK) states_.push_back(copy), good++;
    return "";
  }

  std::string use(const Counted& s) {
    if (users_.empty()) return "";
    User& u = users_[static_cast<size_t>(pick(users_.size()))];
    const int way = pick(4);
    if (way == 0) {
      const coil_status status = with_faults([&] { return coil_context_use_state(u.context, foreign_); });
      MUST(status == 213 || (faults_ && status == 401));
      return refused++, "";
    }
    MUST(coil_context_use_state(u.context, way == 1 ? nullptr : s.handle) == COIL_OK);
    u.count = way == 1 ? nullptr : s.count;
    return good++, "";
  }

  std::string step(const User& u) {
    float x[4] = {1, 2, 3, 4}, y[4] = {};
    const int64_t size = 4, less = 3;
    const bool right = !chance(5);
    const coil_tensor input = {x, right ? &size : &less, nullptr, 1, COIL_DTYPE_FLOAT32};
    coil_tensor output = {y, &size, nullptr, 1, COIL_DTYPE_FLOAT32};
    if (chance(2)) output = {};
    const coil_status status = with_faults([&] { return coil_run(u.context, &input, 1, &output, 1); });
    if (faults_ && status == 401) return "";  // before anything was computed
    MUST(status == (right ? COIL_OK : 204));
    if (!right) return refused++, "";
    if (u.count) {
      MUST(static_cast<float*>(output.data)[0] == 1 + *u.count);
      *u.count += 1;
    }
    return good++, "";
  }

  std::string save_and_restore(const Counted& s) {
    size_t size = 0, none = 0;
    MUST(coil_state_save(s.handle, nullptr, &size) == COIL_OK);
    std::vector<uint8_t> bytes(size), kept;
    MUST(coil_state_save(s.handle, bytes.data(), &none) == 402 && none == size);
    const coil_status saved = with_faults([&] { return coil_state_save(s.handle, bytes.data(), &size); });
    if (faults_ && saved == 401) return "";
    MUST(saved == COIL_OK && size == bytes.size());
    const Counted& to = states_[static_cast<size_t>(pick(states_.size()))];
    std::vector<uint8_t> other = bytes;
    const int way = pick(4);
    if (way == 0) other.resize(static_cast<size_t>(pick(other.size())));
    if (way == 1) other.push_back(0);
    for (size_t i = 0; way == 2 && i < other.size(); i++) other[i] = static_cast<uint8_t>(pick(256));
    if (way == 3) other[static_cast<size_t>(pick(48))] ^= static_cast<uint8_t>(1 << pick(8));  // of its head and table
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[other.size()]);
    std::memcpy(exact.get(), other.data(), other.size());
    const coil_status status = coil_state_restore(to.handle, exact.get(), other.size());
    MUST(status == 213 || (way == 3 && status == COIL_OK));
    refused += status == 213;
    if (status == COIL_OK || chance(2)) {
      coil_status restored = with_faults([&] { return coil_state_restore(to.handle, bytes.data(), bytes.size()); });
      if (restored == 401 && faults_ && status == COIL_OK) restored = coil_state_restore(to.handle, bytes.data(), bytes.size());
      if (restored == 401 && faults_) return "";
      MUST(restored == COIL_OK);
      *to.count = *s.count, good++;
    }
    return "";
  }

  coil_model* model_;
  coil_state* foreign_;
  std::mt19937_64 random_;
  bool faults_;
  std::vector<Counted> states_;
  std::vector<User> users_;
};

int64_t states_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void keep(int threads, bool faults) {
  const int64_t calls = states_number("COIL_FUZZ_CALLS", 6000), seed = states_number("COIL_FUZZ_SEED", 1);
  coil_model *model = open_or_fail(write_file("states.pt2", package("COUNTER"))), *other = open_or_fail(write_file("others.pt2", package("COUNTER")));
  coil_state* foreign = nullptr;
  ASSERT_EQ(coil_state_create(other, &foreign), COIL_OK);
  std::vector<std::string> failures(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  std::atomic<int64_t> good{0}, refused{0}, met{0};
  for (int t = 0; t < threads; t++) {
    running.emplace_back([&, t] {
      std::string& failure = failures[static_cast<size_t>(t)];
      for (int64_t done = 0; done < calls / threads && failure.empty(); done += 1000) {
        Keeper keeper(model, foreign, static_cast<uint64_t>(seed * 1000003 + done * 64 + t), faults);
        for (int i = 0; i < 1000 && failure.empty(); i++) failure = keeper.call();
        if (!failure.empty()) failure += " (seed " + std::to_string(seed) + ", thread " + std::to_string(t) + ", from call " + std::to_string(done) + ")";
        good += keeper.good, refused += keeper.refused, met += keeper.faults_met;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  coil_state_destroy(foreign);
  coil_close(other), coil_close(model);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  EXPECT_GT(good, calls / 4);
  EXPECT_GT(refused, calls / 50);
  EXPECT_GE(met, faults ? calls / 50 : 0);
  std::printf("%lld calls: %lld right, %lld refused, %lld with faults\n", static_cast<long long>(calls), static_cast<long long>(good),
              static_cast<long long>(refused), static_cast<long long>(met));
}

TEST(RandomStates, HoldWhatTheCountersSay) { keep(4, false); }

TEST(RandomStates, WithoutMemory) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  keep(1, true);
}

}  // namespace
}  // namespace coil::runtime_test
