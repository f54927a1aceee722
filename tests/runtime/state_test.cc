// coil_state: states that are made, forked, saved and restored on their own, and what may be wrong with them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "coil/coil.h"
#include "coil/coil.hpp"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

// y = x + how often the state was used.
float step(Context& context) {
  float x[4] = {10, 20, 30, 40};
  return context.run({Tensor(x, {4})})[0].data<float>()[0] - 10;
}

Model counter() { return Model(write_file("counter.pt2", package("COUNTER"))); }

int code_of(coil_status status) { return status; }

TEST(State, OfTheirOwn) {
  const Model model = counter();
  Context first(model), second(model), shared(model);
  State state(model);
  first.use(state);
  const float begin = step(shared);  // what the exported program begins with
  EXPECT_EQ(step(first), begin);
  EXPECT_EQ(step(first), begin + 1);
  const State fork = state.fork();
  second.use(fork);
  EXPECT_EQ(step(second), begin + 2);
  EXPECT_EQ(step(second), begin + 3);
  EXPECT_EQ(step(first), begin + 2);
  EXPECT_EQ(step(shared), begin + 1);
  second.use(state);  // two contexts of one state
  EXPECT_EQ(step(second), begin + 3);
  EXPECT_EQ(step(first), begin + 4);
  state.reset();
  EXPECT_EQ(step(first), begin);
  ASSERT_EQ(coil_context_use_state(first.get(), nullptr), COIL_OK);
  EXPECT_EQ(step(first), begin + 2);
}

TEST(State, OutlivesItsHandles) {
  auto context = std::make_unique<Context>(counter());
  coil_state* state = nullptr;
  {
    const Model model = counter();
    Context of_model(model);
    ASSERT_EQ(coil_state_create(model.get(), &state), COIL_OK);
    context = std::make_unique<Context>(model);
  }
  ASSERT_EQ(coil_context_use_state(context->get(), state), COIL_OK);
  coil_state_destroy(state);
  const float first = step(*context);
  EXPECT_EQ(step(*context), first + 1);
  coil_state_destroy(nullptr);
}

TEST(State, SavedAndRestored) {
  const Model model = counter();
  Context context(model);
  State state(model);
  context.use(state);
  const float begin = step(context);
  step(context);
  const std::vector<unsigned char> saved = state.save();
  step(context);
  state.restore(saved);
  EXPECT_EQ(step(context), begin + 2);
  size_t size = 0;
  ASSERT_EQ(coil_state_save(state.get(), nullptr, &size), COIL_OK);
  std::vector<unsigned char> bytes(size);
  size_t less = size - 1;
  EXPECT_EQ(coil_state_save(state.get(), bytes.data(), &less), 402);
  EXPECT_EQ(less, size);
}

// Every prefix, every changed byte: refused, or a state that computes. Nothing changes where it is refused.
TEST(State, DamagedOnesAreRefused) {
  const Model model = counter();
  Context context(model);
  State state(model);
  context.use(state);
  step(context);
  const std::vector<unsigned char> saved = state.save();
  for (size_t n = 0; n < saved.size(); n++) EXPECT_EQ(coil_state_restore(state.get(), saved.data(), n), 213) << n;
  for (size_t at = 0; at < saved.size(); at++) {
    for (const unsigned char bits : {0x01, 0x80, 0xFF}) {
      std::vector<unsigned char> damaged = saved;
      damaged[at] ^= bits;
      const coil_status status = coil_state_restore(state.get(), damaged.data(), damaged.size());
      EXPECT_TRUE(status == COIL_OK || status == 213) << at;
      if (status == COIL_OK) state.restore(saved);
    }
  }
  const float now = step(context);
  std::vector<unsigned char> longer = saved;
  longer.push_back(0);
  EXPECT_EQ(coil_state_restore(state.get(), longer.data(), longer.size()), 213);
  EXPECT_EQ(step(context), now + 1);
}

TEST(State, WrongUses) {
  const Model model = counter(), other = counter();
  const Model without(write_file("masked.pt2", package("MASKED")));
  Context context(model);
  coil_state* state = nullptr;
  EXPECT_EQ(coil_state_bytes(without.get()), 0u);
  EXPECT_EQ(coil_state_bytes(model.get()), 64u);
  EXPECT_EQ(coil_state_bytes(nullptr), 0u);
  EXPECT_EQ(coil_state_create(without.get(), &state), 402);
  EXPECT_EQ(state, nullptr);
  State foreign(other);
  EXPECT_EQ(coil_context_use_state(context.get(), foreign.get()), 213);
  const float first = step(context);
  EXPECT_EQ(step(context), first + 1);
  for (const coil_status status :
       {coil_state_create(nullptr, &state), coil_state_create(model.get(), nullptr), coil_state_fork(nullptr, &state), coil_state_fork(foreign.get(), nullptr),
        coil_state_reset(nullptr), coil_state_save(nullptr, nullptr, nullptr), coil_state_save(foreign.get(), nullptr, nullptr),
        coil_state_restore(nullptr, "", 0), coil_state_restore(foreign.get(), nullptr, 0), coil_context_use_state(nullptr, foreign.get())})
    EXPECT_EQ(code_of(status), 402);
}

// Calls on different states have nothing in common; those on one take turns.
TEST(State, ManyThreads) {
  const Model model = counter();
  State common(model);
  std::vector<float> sums(8, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < sums.size(); t++) {
    threads.emplace_back([&, t] {
      Context context(model), together(model);
      State state(model);
      context.use(state);
      together.use(common);
      const float begin = step(context);
      for (int i = 1; i < 200; i++) {
        if (step(context) != begin + static_cast<float>(i)) sums[t] = -1;
        step(together);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float sum : sums) EXPECT_EQ(sum, 0);
  Context context(model), fresh(model);
  context.use(common);
  const float begin = step(fresh);
  EXPECT_EQ(step(context), begin + 8 * 199);
}

}  // namespace
}  // namespace coil::runtime_test
