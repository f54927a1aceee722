// Random calls of the C API against a reference: right and wrong ones, of several models, contexts and threads, with structs that are
// passed again, memory that overlaps, sizes that change, results that become inputs, and allocations that fail. A call that has to be
// right gives the right result; one that has to be wrong is refused with the right code and writes nothing; neither writes beyond the
// caller's memory (guards, and AddressSanitizer under `make fuzz-calls CALLS=100000`). COIL_FUZZ_CALLS and COIL_FUZZ_SEED say how many.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "allocations.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

constexpr uint8_t kGuard = 0xa5;

// Memory of the caller's of exactly `bytes`, so that a sanitizer sees what goes beyond, from an address that may be misaligned.
struct Block {
  Block(size_t size, size_t shift = 0) : memory(size + shift + 64, kGuard), bytes(size), at(shift) {}
  uint8_t* data() { return memory.data() + at; }
  bool is_whole() const {
    for (size_t i = at + bytes; i < memory.size(); i++) {
      if (memory[i] != kGuard) return false;
    }
    return true;
  }
  bool is_untouched() const {
    for (const uint8_t b : memory) {
      if (b != kGuard) return false;
    }
    return true;
  }
  std::vector<uint8_t> memory;
  size_t bytes, at;
};

struct Reference {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<std::vector<float>> values;
};

// One caller: a context, structs that live on between its calls, and what it knows about them.
class Caller {
 public:
  Caller(coil_model* model, bool late, uint64_t seed) : model_(model), late_(late), random_(seed) { make_context(); }
  ~Caller() { coil_context_destroy(context_); }

  // "" or what was wrong.
  std::string call() {
    if (chance(200)) make_context();
    make_inputs();
    const int what = pick(10);
    if (what == 0) return infer();
    if (what == 1) return wrong_input();
    return run();
  }
  int64_t good = 0, refused = 0;

 private:
  bool chance(int of) { return pick(of) == 0; }
  int pick(int of) { return static_cast<int>(random_() % static_cast<uint64_t>(of)); }

  void make_context() {
    coil_context_destroy(context_);
    context_ = nullptr;
    if (coil_context_create(model_, &context_) != COIL_OK) std::abort();
    kept_[0] = kept_[1] = {};
    last_values_.clear();
  }

  std::vector<float> values(size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = static_cast<float>(pick(17) - 8);
    return v;
  }

  void make_inputs() {
    n_ = late_ ? (chance(10) ? 0 : 1 + pick(chance(4) ? 4096 : 60)) : 1 + pick(64);
    reference_ = {};
    if (late_) {
      x_ = values(static_cast<size_t>(n_));
      x_sizes_ = {n_};
      inputs_ = {{x_.data(), x_sizes_.data(), nullptr, 1, COIL_DTYPE_FLOAT32}};
      // What the last run kept is the next one's input, where it lies.
      if (chance(6) && !last_values_.empty() && kept_[0].data == last_data_) {
        x_ = last_values_;
        n_ = x_sizes_[0] = static_cast<int64_t>(x_.size());
        inputs_[0].data = last_data_;
      }
    } else {
      masked_.emplace_back(n_, static_cast<float>(pick(9)));
      if (masked_.size() > 1) masked_.erase(masked_.begin());
      inputs_ = masked_[0].views();
    }
    if (chance(3)) strides_of_inputs();
  }

  // Contiguous ones, said in words.
  void strides_of_inputs() {
    static const int64_t kRow[] = {16, 1}, kOne[] = {1};
    for (coil_tensor& t : inputs_) t.strides = t.rank == 2 ? kRow : kOne;
  }

  const Reference& reference() {
    if (!reference_.sizes.empty()) return reference_;
    if (late_) {
      std::vector<float> kept, doubled;
      for (const float x : x_) {
        if (x > 0) kept.push_back(x);
        doubled.push_back(2 * x);
      }
      reference_.sizes = {{static_cast<int64_t>(kept.size())}, {n_}};
      reference_.values = {kept, doubled};
      return reference_;
    }
    MaskedCall& m = masked_[0];
    std::vector<float> y, rows;
    for (int64_t r = 0; r < n_; r++) {
      for (int64_t c = 0; c < 16; c++) y.push_back(m.y(r, c));
      rows.push_back(m.row(r));
    }
    reference_.sizes = {{n_, 16}, {n_}};
    reference_.values = {y, rows};
    return reference_;
  }

  std::string infer() {
    coil_tensor outputs[2] = {kept_[0], kept_[1]};
    if (coil_infer(context_, inputs_.data(), count(), outputs, 2) != COIL_OK) return std::string("infer: ") + coil_last_error();
    for (int i = 0; i < 2; i++) {
      const std::vector<int64_t>& want = reference().sizes[static_cast<size_t>(i)];
      for (size_t d = 0; d < want.size(); d++) {
        const int64_t got = outputs[i].sizes[d];
        if (got != (late_ && i == 0 ? -1 : want[d])) return "infer: wrong size";
      }
      if (chance(2) && owned_[i]) kept_[i] = outputs[i];  // its data is as it was; what is gone would pass for the caller's now
    }
    return "";
  }

  int32_t count() const { return static_cast<int32_t>(inputs_.size()); }

  std::string wrong_input() {
    static const int64_t kBad[] = {-1, 16}, kHuge[] = {INT64_MAX, INT64_MAX}, kStrides[] = {3, 7};
    coil_tensor& t = inputs_[static_cast<size_t>(pick(count()))];
    const bool empty = n_ == 0;
    coil_status want = 0;
    int32_t passed = count();
    switch (pick(empty ? 6 : 9)) {
      case 0: t.dtype = pick(60) + 12, want = 202; break;
      case 1: t.rank = pick(2) ? -1 : 3, want = 203; break;
      case 2: t.sizes = kBad, want = 204; break;
      case 3: t.sizes = kHuge, want = 204; break;
      case 4: t.device_type = 1 + pick(5), want = 206; break;
      case 5: passed += pick(2) ? 1 : -1, want = 201; break;
      case 6: t.data = nullptr, want = 207; break;
      case 7:
        if (t.dtype == COIL_DTYPE_BOOL) return "";
        t.data = static_cast<uint8_t*>(t.data) + 1, want = 207;
        break;
      default:
        if (n_ < 2) return "";
        t.strides = kStrides, want = 205;
    }
    if (t.dtype == COIL_DTYPE_BFLOAT16 && want == 202) return "";
    if (passed > count()) inputs_.push_back({});
    coil_tensor outputs[2] = {};
    Block y(4096), rows(4096);
    const bool own = chance(2);
    if (own) outputs[0].data = y.data(), outputs[1].data = rows.data();
    const coil_status got = chance(4) ? coil_infer(context_, inputs_.data(), passed, outputs, 2) : coil_run(context_, inputs_.data(), passed, outputs, 2);
    refused++;
    if (got != want) return "a wrong input: " + std::to_string(got) + " instead of " + std::to_string(want) + ": " + coil_last_error();
    if (!y.is_untouched() || !rows.is_untouched() || outputs[0].data != (own ? y.data() : nullptr)) return "a refused call changed something";
    return "";
  }

  // How output i is passed. -1: what comes of it is not known (memory of the context's that may be gone): right or 209.
  int wish(int i, coil_tensor& t, std::vector<Block>& blocks, std::vector<std::vector<int64_t>>& sizes) {
    const std::vector<int64_t>& want = reference().sizes[static_cast<size_t>(i)];
    size_t bytes = 4;
    for (const int64_t size : want) bytes *= static_cast<size_t>(size);
    const int way = pick(12);
    if (way < 3) return t = {}, 0;
    if (way < 6) return t = kept_[i], owned_[i] ? 0 : -1;  // as it was left
    if (way == 6) return t = kept_[1 - i], owned_[1 - i] ? 0 : -1;
    sizes.push_back(want);
    std::vector<int64_t>& said = sizes.back();
    blocks.emplace_back(bytes, way == 7 ? 1 + static_cast<size_t>(pick(3)) : 0);
    t = {blocks.back().data(), said.data(), nullptr, static_cast<int32_t>(said.size()), COIL_DTYPE_FLOAT32};
    if (way == 7) return 209;
    if (way == 8) return said[static_cast<size_t>(pick(static_cast<int>(said.size())))] += chance(2) ? 1 : -1, 209;
    if (way == 9) return t.dtype = chance(2) ? 5 : pick(40) + 7, 209;
    if (way == 10) return t.rank += chance(2) ? 1 : -1, said.push_back(1), t.sizes = said.data(), 209;
    return 0;
  }

  std::string run() {
    coil_tensor outputs[2] = {};
    std::vector<Block> blocks;
    std::vector<std::vector<int64_t>> sizes;
    blocks.reserve(4), sizes.reserve(4);
    int want = 0;
    bool unsure = false;
    for (int i = 0; i < 2; i++) {
      const int verdict = wish(i, outputs[i], blocks, sizes);
      if (verdict == 209) want = 209;
      unsure |= verdict == -1;
    }
    want = aliases(outputs, want);
    const coil_tensor before[2] = {outputs[0], outputs[1]};
    const coil_status got = coil_run(context_, inputs_.data(), count(), outputs, 2);
    for (const Block& b : blocks) {
      if (!b.is_whole()) return "memory behind an output was written";
    }
    if (got == 209 && (want == 209 || unsure || reads_ours())) {
      refused++;
      owned_[0] = owned_[1] = false;  // a run that fails is a run: what it gave up is gone
      last_values_.clear();
      for (int i = 0; i < 2; i++) {
        if (!outputs[i].data) outputs[i].data = before[i].data;
      }
      if (std::memcmp(before, outputs, sizeof before) != 0) return "a refused call changed a struct";
      return "";
    }
    if (got != want) return "a run: " + std::to_string(got) + " instead of " + std::to_string(want) + ": " + coil_last_error();
    good++;
    return compare(outputs, before);
  }

  bool reads_ours() const { return late_ && inputs_[0].data != x_.data(); }

  // Output memory that is an input's, or another output's.
  int aliases(coil_tensor* outputs, int want) {
    if (want || n_ < 2 || !chance(8)) return want;
    const int i = pick(2);
    const bool late_empty = late_ && reference().values[0].empty();
    if (late_empty || reads_ours()) return want;
    alias_sizes_ = reference().sizes[static_cast<size_t>(i)];
    outputs[i] = {inputs_[0].data, alias_sizes_.data(), nullptr, static_cast<int32_t>(alias_sizes_.size()), COIL_DTYPE_FLOAT32};
    return 209;
  }

  std::string compare(coil_tensor* outputs, const coil_tensor* before) {
    for (int i = 0; i < 2; i++) {
      const std::vector<int64_t>& want = reference().sizes[static_cast<size_t>(i)];
      const std::vector<float>& expected = reference().values[static_cast<size_t>(i)];
      if (outputs[i].rank != static_cast<int32_t>(want.size()) || outputs[i].dtype != COIL_DTYPE_FLOAT32) return "a wrong description";
      for (size_t d = 0; d < want.size(); d++) {
        if (outputs[i].sizes[d] != want[d]) return "a wrong size";
      }
      if (!expected.empty() && std::memcmp(outputs[i].data, expected.data(), expected.size() * 4) != 0) return "wrong values of output " + std::to_string(i);
      const bool callers =
          before[i].rank && before[i].data && before[i].data == outputs[i].data && before[i].sizes != kept_[0].sizes && before[i].sizes != kept_[1].sizes;
      if (callers) continue;  // that memory ends with this call
      kept_[i] = outputs[i], owned_[i] = true;
      if (i == 0 && late_) last_values_ = expected, last_data_ = outputs[0].data;
    }
    for (int i = 0; i < 2; i++) {
      if (kept_[i].data && kept_[i].data != outputs[0].data && kept_[i].data != outputs[1].data) owned_[i] = false;  // of an earlier run
    }
    return "";
  }

  coil_model* model_;
  bool late_;
  std::mt19937_64 random_;
  coil_context* context_ = nullptr;
  int64_t n_ = 0;
  std::vector<float> x_, last_values_;
  void* last_data_ = nullptr;
  std::vector<int64_t> x_sizes_, alias_sizes_;
  std::vector<MaskedCall> masked_;
  std::vector<coil_tensor> inputs_;
  Reference reference_;
  coil_tensor kept_[2] = {};
  bool owned_[2] = {true, true};
};

int64_t calls_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

TEST(RandomCalls, AgreeWithTheReference) {
  const int64_t calls = calls_number("COIL_FUZZ_CALLS", 4000);
  const auto seed = static_cast<uint64_t>(calls_number("COIL_FUZZ_SEED", 1));
  constexpr int kThreads = 4;
  std::string failure;
  std::atomic<int64_t> good{0}, refused{0};
  for (int64_t done = 0, round = 0; done < calls && failure.empty(); round++) {
    const coil_options options = {.struct_bytes = sizeof options, .num_threads = static_cast<int32_t>(round % 4)};
    coil_model* models[] = {open_or_fail(write_file("random_m.pt2", package("MASKED")), &options),
                            open_or_fail(write_file("random_l.pt2", package("LATE")), &options)};
    std::vector<std::thread> threads;
    std::string failures[kThreads];
    const int64_t each = std::min<int64_t>((calls - done + kThreads - 1) / kThreads, 500);
    for (int t = 0; t < kThreads; t++) {
      threads.emplace_back([&, t] {
        const uint64_t own = seed * 1000003 + static_cast<uint64_t>(round) * 64 + static_cast<uint64_t>(t);
        Caller caller(models[t % 2], t % 2 == 1, own);
        for (int64_t i = 0; i < each && failures[t].empty(); i++) {
          failures[t] = caller.call();
          if (!failures[t].empty())
            failures[t] +=
                " (seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", thread " + std::to_string(t) + ", call " + std::to_string(i) + ")";
        }
        good += caller.good, refused += caller.refused;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& f : failures) failure += f;
    for (coil_model* model : models) coil_close(model);
    done += each * kThreads;
  }
  EXPECT_EQ(failure, "");
  std::printf("%lld calls: %lld right, %lld refused\n", static_cast<long long>(calls), static_cast<long long>(good), static_cast<long long>(refused));
  EXPECT_GT(good, calls / 10);
  EXPECT_GT(refused, calls / 10);
}

}  // namespace
}  // namespace coil::runtime_test
