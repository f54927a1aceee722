#include "compiler/kernel_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "codegen/cuda/templates/arithmetic.h"
#include "codegen/interface/watch_text.h"
#include "compiler/call_memory.h"
#include "reference/interpreter.h"
#include "reference/nonfinite.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

using reference::Num;

constexpr int kMostSearches = 64;  // for the origin of a NaN or an infinity, in one value

int64_t elements_of(const TensorData& t) { return element_count(t.sizes); }

class Differ {
 public:
  Differ(const WatchedBuild& build, std::span<const CoilTensorView> inputs, const CompileOptions& compiled, const KernelDiffOptions& options)
      : build_(build),
        plan_(build.plan),
        options_(options),
        lifetimes_(lifetimes(plan_)),
        last_writer_(plan_.buffers.size(), -1),
        given_(inputs),
        reference_(build.loops, std::vector<int64_t>(plan_.pool->num_symbols()), {cuda::tf32_of(plan_), compiled.winograd}) {
    for (size_t k = 0; k < plan_.kernels.size(); ++k) {
      const bool watched = is_watched(k);
      for (BufferId id : results_of(plan_, k)) {
        if (watched) last_writer_[static_cast<size_t>(id.index)] = static_cast<int>(k);
      }
    }
    for (const LoopOutput& o : build_.loops.outputs) {
      if (o.target.valid()) source_of_[o.target] = o.source;
    }
  }

  Result<KernelDiff> run() {
    set_inputs();
    TRY_STATUS(call(Order::threads, [this](size_t k, const auto& symbols, std::vector<Written> w) { compare(k, symbols, std::move(w)); }));
    // What a GPU's blocks do is in no order that could be turned round: they run once more.
    for (int i = 0; i < (build_.cuda ? std::min(options_.orders, 1) : options_.orders) && (!result_.first || options_.all); ++i) {
      const Order order = i == 0 ? Order::backwards : Order::crowded;
      TRY_STATUS(call(order, [this, order](size_t k, const auto&, std::vector<Written> w) { compare_bits(k, order, std::move(w)); }));
    }
    return std::move(result_);
  }

 private:
  // Kernels inside of control flow are seen as a whole, by its last mark.
  bool is_watched(size_t k) const {
    int depth = 0;
    for (size_t i = 0; i <= k; ++i) {
      const auto* mark = std::get_if<ControlMark>(&plan_.kernels[i].def);
      if (!mark) continue;
      depth += mark->opens() ? 1 : mark->kind == ControlMark::Kind::end ? -1 : 0;
    }
    return depth == 0;
  }

  Status call(Order order, const AfterKernel& after) {
    OwnInputs own(given_);
    return run_watched(build_, own.views, order, options_.threads, after);
  }

  void set_inputs() {
    for (size_t i = 0; i < build_.loops.inputs.size(); ++i) {
      const BufferId id = build_.loops.inputs[i].buffer;
      if (!id.valid()) continue;
      reference_.set(id, borrowed(given_[i]));
    }
  }

  // The value of the loop program that a kernel writes into this buffer; invalid: one that is not the program's.
  BufferId value_in(BufferId id) const {
    if (static_cast<size_t>(id.index) >= build_.loops.buffers.size()) return {};
    const auto found = source_of_.find(id);
    return found == source_of_.end() ? id : found->second;
  }

  void compare(size_t k, const std::vector<int64_t>& symbols, std::vector<Written> written) {
    if (options_.progress) options_.progress(k, plan_.kernels.size());
    for (size_t s = 0; s < symbols.size(); ++s) reference_.set_symbol(SymbolId(s), symbols[s]);
    if (done_) return;
    check_overwritten(k);
    KernelVerdict verdict;
    verdict.kernel = k;
    reference_.forget();
    std::vector<Written> complete;
    for (Written& w : written) {
      if (last_writer_[static_cast<size_t>(w.buffer.index)] == static_cast<int>(k) && value_in(w.buffer).valid()) complete.push_back(std::move(w));
    }
    if (complete.empty()) return;
    for (const Written& w : complete) compare_value(k, w, verdict);
    result_.kernels.push_back(verdict);
    for (Written& w : complete) {
      if (plan_.buffer(w.buffer).info.kind == BufferInfo::Kind::computed) reference_.set(w.buffer, w.data);
      if (!done_) find_nonfinite(k, w);
      kept_[w.buffer] = std::move(w);
    }
  }

  void compare_value(size_t k, const Written& w, KernelVerdict& verdict) {
    const BufferId value = value_in(w.buffer);
    const Result<const reference::Tensor*> computed = reference_.compute(value);
    if (!computed.ok()) {
      if (verdict.why_not.empty()) verdict.why_not = computed.error().message;
      return;
    }
    verdict.compared = true;
    const reference::Tensor found = reference::exact(w.data);
    const reference::Tensor& expected = *computed.value();
    KernelDifference d;
    d.elements = elements_of(w.data);
    for (int64_t n = 0; n < d.elements; ++n) {
      const std::vector<int64_t> index = index_of(n, w.data.sizes);
      const Num a = found.at(offset_of(index, found.strides)), b = expected.at(offset_of(index, expected.strides));
      if (reference::allows(b, w.data.dtype, a.f, a.i)) {
        if (is_float(w.data.dtype) && std::isfinite(a.f) && std::isfinite(b.f) && a.f != b.f)
          verdict.largest_error = std::max(verdict.largest_error, std::fabs(a.f - b.f) / reference::allowed_error(b, w.data.dtype));
        continue;
      }
      if (d.different++ > 0) continue;
      const bool floating = is_float(w.data.dtype);
      d.index = index;
      d.found = floating ? a.f : static_cast<double>(a.i);
      d.expected = floating ? b.f : static_cast<double>(b.i);
      d.bound = reference::allowed_error(b, w.data.dtype);
    }
    if (d.different == 0) return;
    d.buffer = w.buffer;
    d.dtype = w.data.dtype;
    d.value = build_.loops.buffer(value).name;
    d.place = place_of(build_, piece_of(k, value, d.index));
    report(std::move(d));
  }

  // The pieces of a concatenation are written by kernels of their own, in order; they are compared when the last one is done.
  size_t piece_of(size_t k, BufferId value, const std::vector<int64_t>& index) const {
    std::vector<size_t> writers;
    for (size_t i = 0; i <= k; ++i) {
      const std::vector<BufferId> results = results_of(plan_, i);
      if (std::find(results.begin(), results.end(), value) != results.end()) writers.push_back(i);
    }
    for (const Loop& loop : build_.loops.loops) {
      const auto* concat = std::get_if<Concat>(&loop.def);
      if (!concat || loop.outputs[0] != value || concat->pieces.size() != writers.size()) continue;
      for (size_t p = 0; p < writers.size(); ++p) {
        const std::vector<int64_t> range = reference_.sizes({concat->pieces[p].begin, concat->pieces[p].size});
        const int64_t at = index[static_cast<size_t>(concat->dim)];
        if (at >= range[0] && at < range[0] + range[1]) return writers[p];
      }
    }
    return k;
  }

  void report(KernelDifference d) {
    for (const auto& [id, w] : kept_) {
      if (last_writer_[static_cast<size_t>(id.index)] < static_cast<int>(d.place.kernel) && value_in(id) == id)
        d.given.emplace_back(plan_.buffer(id).info.name, w.data);
    }
    if (options_.others) options_.others(d);
    if (!result_.first) result_.first = std::move(d);
    done_ = !options_.all;
  }

  // Values in the scratch memory that a later kernel reads stay as they are.
  void check_overwritten(size_t k) {
    for (auto& [id, w] : kept_) {
      const auto b = static_cast<size_t>(id.index);
      if (done_ || plan_.buffers[b].placement.kind != Placement::Kind::arena || lifetimes_[b].last <= static_cast<int>(build_.launched_with[k]) ||
          w.data.bytes.empty())
        continue;
      if (last_writer_[b] == static_cast<int>(k)) continue;
      std::vector<uint8_t> now(w.data.bytes.size());
      w.read_again(now.data());
      if (std::memcmp(now.data(), w.data.bytes.data(), now.size()) == 0) continue;
      size_t at = 0;
      while (now[at] == w.data.bytes[at]) ++at;
      KernelDifference d;
      d.kind = KernelDifference::Kind::overwritten;
      d.place = place_of(build_, k);
      d.value = plan_.buffers[b].info.name;
      d.buffer = id;
      d.dtype = w.data.dtype;
      d.elements = elements_of(w.data);
      d.different = 1;
      d.index = {static_cast<int64_t>(at) / byte_size(w.data.dtype)};
      d.detail = place_of(build_, static_cast<size_t>(last_writer_[b])).name;
      report(std::move(d));
    }
  }

  // The first call's kernels, given the same inputs, gave these bits.
  void compare_bits(size_t k, Order order, std::vector<Written> written) {
    for (const Written& w : written) {
      const auto kept = kept_.find(w.buffer);
      if (done_ || last_writer_[static_cast<size_t>(w.buffer.index)] != static_cast<int>(k) || kept == kept_.end()) continue;
      const TensorData &before = kept->second.data, &now = w.data;
      if (before.bytes.size() != now.bytes.size()) continue;
      KernelDifference d;
      d.elements = elements_of(now);
      const reference::Tensor a = reference::exact(now), b = reference::exact(before);
      for (int64_t n = 0; n < d.elements; ++n) {
        const std::vector<int64_t> index = index_of(n, now.sizes);
        const int64_t at = offset_of(index, now.strides);
        if (std::memcmp(now.bytes.data() + at * byte_size(now.dtype), before.bytes.data() + at * byte_size(now.dtype),
                        static_cast<size_t>(byte_size(now.dtype))) == 0)
          continue;
        if (d.different++ > 0) continue;
        const Num x = a.at(at), y = b.at(at);
        d.index = index;
        d.found = is_float(now.dtype) ? x.f : static_cast<double>(x.i);
        d.expected = is_float(now.dtype) ? y.f : static_cast<double>(y.i);
      }
      if (d.different == 0) continue;
      d.kind = KernelDifference::Kind::unordered;
      d.buffer = w.buffer;
      d.dtype = now.dtype;
      d.value = plan_.buffer(w.buffer).info.name;
      d.place = place_of(build_, piece_of(k, w.buffer, d.index));
      d.detail = build_.cuda ? "in a second call" : order == Order::backwards ? "with the loop's parts in reverse order" : "with more threads than processors";
      report(std::move(d));
    }
  }

  // A value is the origin where nothing that it is computed from is like it.
  void find_nonfinite(size_t k, const Written& w) {
    if (!is_float(w.data.dtype) || !is_computed_here(w.buffer)) return;
    const reference::Tensor found = reference::exact(w.data);
    const int64_t elements = elements_of(w.data);
    int tries = kMostSearches;
    for (int64_t n = 0; n < elements && tries > 0 && !(result_.nan && result_.infinity); ++n) {
      const std::vector<int64_t> index = index_of(n, w.data.sizes);
      const double v = found.at(offset_of(index, found.strides)).f;
      if (std::isfinite(v)) continue;
      std::optional<NonFinite>& place = std::isnan(v) ? result_.nan : result_.infinity;
      if (place) continue;
      --tries;
      const reference::Origin from = reference::origin_of_nonfinite(reference_, value_in(w.buffer), index, std::isnan(v));
      if (!from.here) continue;
      place = NonFinite{place_of(build_, k), build_.loops.buffer(value_in(w.buffer)).name, std::isnan(v) ? "NaN" : "infinity", index, from.text, from.where};
    }
  }

  bool is_computed_here(BufferId id) const { return plan_.buffer(id).info.kind == BufferInfo::Kind::computed; }

  const WatchedBuild& build_;
  const KernelPlan& plan_;
  const KernelDiffOptions& options_;
  const std::vector<Lifetime> lifetimes_;
  std::vector<int> last_writer_;            // of each buffer, among the kernels that are watched
  std::map<BufferId, BufferId> source_of_;  // of states and inputs that are written: the value that they get
  std::span<const CoilTensorView> given_;
  reference::Interpreter reference_;
  std::map<BufferId, Written> kept_;  // of the first call
  KernelDiff result_;
  bool done_ = false;
};

}  // namespace

KernelPlace place_of(const WatchedBuild& build, size_t kernel) {
  const Kernel& k = build.plan.kernels[kernel];
  return {kernel, k.name, kernel < build.functions.size() ? build.functions[kernel] : "", k.ops, k.origins};
}

Result<KernelDiff> diff_kernels(const WatchedBuild& build, std::span<const CoilTensorView> inputs, const CompileOptions& compiled,
                                const KernelDiffOptions& options) {
  return Differ(build, inputs, compiled, options).run();
}

}  // namespace coil
