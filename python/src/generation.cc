#include "generation.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>

#include "call.h"
#include "errors.h"
#include "runtime/generator.h"

namespace coil::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using runtime::Conversation;
using runtime::Generator;
using runtime::Sampling;

// Calls from several threads take turns. The interpreter's lock is free while the model computes.
class Talk {
  template <class F>
  auto locked(F f) {
    nb::gil_scoped_release release;
    std::lock_guard lock(mutex_);
    return f();
  }

 public:
  Talk(std::shared_ptr<Generator> generator, std::unique_ptr<Conversation> conversation)
      : generator_(std::move(generator)), conversation_(std::move(conversation)) {}

  std::unique_ptr<Talk> fork() {
    auto copy = locked([&] { return conversation_->fork(); });
    return std::make_unique<Talk>(generator_, value_or_throw(std::move(copy)));
  }
  void append(const std::vector<int64_t>& tokens) {
    throw_if(locked([&] { return conversation_->append(tokens); }));
  }
  void set_source(const std::vector<int64_t>& tokens) {
    throw_if(locked([&] { return conversation_->set_source(tokens); }));
  }
  std::vector<int64_t> source() {
    return locked([&] { return std::vector<int64_t>(conversation_->source().begin(), conversation_->source().end()); });
  }
  std::vector<int64_t> generate(int64_t count, const std::vector<int64_t>& stop, int64_t draft, int64_t steps) {
    return value_or_throw(locked([&] { return conversation_->generate(count, stop, draft, steps); }));
  }
  void truncate(int64_t count) {
    throw_if(locked([&] { return conversation_->truncate(count); }));
  }
  nb::bytes save() {
    const std::vector<uint8_t> saved = value_or_throw(locked([&] { return conversation_->save(); }));
    return nb::bytes(reinterpret_cast<const char*>(saved.data()), saved.size());
  }
  void restore(nb::bytes saved) {
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(saved.c_str()), saved.size());
    throw_if(locked([&] { return conversation_->restore(bytes); }));
  }
  std::vector<int64_t> tokens() {
    return locked([&] { return conversation_->tokens(); });
  }
  void watch(int64_t count) {
    locked([&] { conversation_->watch(count); });
  }
  // For each new token: (token, logarithm of its probability), those of the most likely ones.
  std::vector<std::pair<std::pair<int64_t, float>, std::vector<std::pair<int64_t, float>>>> chances() {
    return locked([&] {
      std::vector<std::pair<std::pair<int64_t, float>, std::vector<std::pair<int64_t, float>>>> rows;
      for (const auto& c : conversation_->chances()) rows.emplace_back(c.chosen, c.best);
      return rows;
    });
  }
  // The new token, -1, or the error of each.
  static nb::list step(const std::vector<Talk*>& talks, int64_t most) {
    std::vector<Result<int64_t>> results;
    {
      nb::gil_scoped_release release;
      std::vector<Talk*> order(talks);
      std::sort(order.begin(), order.end());
      order.erase(std::unique(order.begin(), order.end()), order.end());
      std::vector<std::unique_lock<std::mutex>> locks;
      for (Talk* t : order) locks.emplace_back(t->mutex_);
      std::vector<Conversation*> all;
      for (Talk* t : talks) all.push_back(t->conversation_.get());
      results = Conversation::step(all, most);
    }
    nb::list made;
    for (const auto& r : results) made.append(r.ok() ? nb::object(nb::int_(r.value())) : exception_of(r.error()));
    return made;
  }
  void set_sampling(Sampling sampling) {
    throw_if(locked([&] { return conversation_->set_sampling(std::move(sampling)); }));
  }

 private:
  std::shared_ptr<Generator> generator_;
  std::mutex mutex_;
  std::unique_ptr<Conversation> conversation_;
};

// `allow(tokens, allowed)`: a list of numbers, and a writable buffer of as many bytes as there are tokens in the vocabulary.
Sampling make_sampling(float temperature, int64_t top_k, float top_p, float min_p, float repetition_penalty, uint64_t seed,
                       std::vector<std::pair<int64_t, float>> bias, nb::object allow) {
  Sampling s;
  s.temperature = temperature;
  s.top_k = top_k;
  s.top_p = top_p;
  s.min_p = min_p;
  s.repetition_penalty = repetition_penalty;
  s.seed = seed;
  s.bias = std::move(bias);
  if (!allow.is_none()) {
    // Copied and dropped in steps without the interpreter's lock.
    const std::shared_ptr<nb::object> kept(new nb::object(std::move(allow)), [](nb::object* o) {
      nb::gil_scoped_acquire acquire;
      delete o;
    });
    s.allow = [kept](std::span<const int64_t> tokens, std::span<uint8_t> allowed) {
      nb::gil_scoped_acquire acquire;
      const std::vector<int64_t> list(tokens.begin(), tokens.end());
      const nb::object view = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(allowed.data()), static_cast<Py_ssize_t>(allowed.size()), PyBUF_WRITE));
      (*kept)(list, view);
      view.attr("release")();
    };
  }
  return s;
}

std::shared_ptr<Generator> make_generator(const CallableModel& model) { return value_or_throw(Generator::make(model.shared_model())); }

std::unique_ptr<Talk> make_talk(const std::shared_ptr<Generator>& generator, const Sampling& sampling) {
  return std::make_unique<Talk>(generator, value_or_throw(Conversation::make(generator, sampling)));
}

}  // namespace

void add_generation(nb::module_& m) {
  nb::class_<Sampling>(m, "Sampling");
  m.def("make_sampling", &make_sampling, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "repetition_penalty"_a, "seed"_a, "bias"_a, "allow"_a.none());
  nb::class_<Generator>(m, "Generator")
      .def_prop_ro("vocabulary", [](const Generator& g) { return g.vocabulary(); })
      .def_prop_ro("tokens_per_call", [](const Generator& g) { return g.most(); })
      .def_prop_ro("conversations_per_call", [](const Generator& g) { return std::max<int64_t>(g.slots(), 1); })
      .def_prop_ro("programs", [](const Generator& g) { return g.programs(); })
      .def_prop_ro("takes_source", [](const Generator& g) { return g.takes_source(); })
      .def_prop_ro("chooses", [](const Generator& g) { return g.chooses(); })
      .def_prop_ro("has_state", [](const Generator& g) { return g.has_state(); });
  m.def("make_generator", &make_generator, "model"_a, nb::keep_alive<0, 1>());
  nb::class_<Talk>(m, "Conversation")
      .def("fork", &Talk::fork)
      .def("append", &Talk::append, "tokens"_a)
      .def("set_source", &Talk::set_source, "tokens"_a)
      .def_prop_ro("source", &Talk::source)
      .def("generate", &Talk::generate, "count"_a, "stop"_a, "draft"_a, "steps"_a)
      .def("truncate", &Talk::truncate, "count"_a)
      .def("save", &Talk::save)
      .def("restore", &Talk::restore, "saved"_a)
      .def("set_sampling", &Talk::set_sampling, "sampling"_a)
      .def("watch", &Talk::watch, "count"_a)
      .def_prop_ro("chances", &Talk::chances)
      .def_prop_ro("tokens", &Talk::tokens);
  m.def("step_conversations", &Talk::step, "conversations"_a, "most"_a);
  m.def("make_conversation", &make_talk, "generator"_a, "sampling"_a, nb::keep_alive<0, 1>());
}

}  // namespace coil::python
