// See profile.h. Which profiles there are, and what they hold.
#include "runtime/profile.h"

#include <algorithm>

#include "runtime/cupti.h"
#include "runtime/model.h"

namespace coil::runtime {
namespace {

constexpr size_t kMostSpans = size_t{1} << 22;  // some 300 MB: a profile that nobody stops does not eat the memory

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Profile>> profiles;
};
// Never destroyed: calls may still run while the process ends.
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

}  // namespace

std::span<const int64_t> sizes_of(const CallRecord& call) {
  const size_t first = !call.table->sizes_from_data || call.kernels.empty() ? 0 : std::min<size_t>(call.kernels.back().sizes, call.sizes.size());
  return std::span(call.sizes).subspan(first).first(std::min(call.table->symbols.size(), call.sizes.size() - first));
}

Counts counts_of(const CallRecord& call, const KernelSpan& span) {
  return span.counted > 0 && span.counted <= call.counters.size() ? call.counters[span.counted - 1] : Counts{};
}

uint64_t ticks_of(const CallRecord& call) {
  const uint64_t begin = std::max(call.begin, call.ready), end = std::max(call.end, call.done);
  return end > begin ? end - begin : 0;
}

std::atomic<uint32_t> profile_changes{0};
std::atomic<int32_t> watchers{0};
static std::atomic<int32_t> profiles_under_way{0};

Profile::Profile(const Model* model, const ProfileOptions& options, std::function<void(Profile&)> done)
    : model_(model), options_(options), done_(std::move(done)) {}

std::shared_ptr<Profile> Profile::start(const Model* model, const ProfileOptions& options, std::function<void(Profile&)> done) {
  std::shared_ptr<Profile> profile(new Profile(model, options, std::move(done)));
  {
    const std::lock_guard lock(registry().mutex);
    registry().profiles.push_back(profile);
  }
  profiles_under_way.fetch_add(1);
  profile_changes.fetch_add(1, std::memory_order_relaxed);
  watchers.fetch_add(1, std::memory_order_relaxed);
  return profile;
}

void Profile::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  watchers.fetch_sub(1, std::memory_order_relaxed);
  profile_changes.fetch_add(1, std::memory_order_relaxed);
  if (profiles_under_way.fetch_sub(1) == 1) Cupti::rest();
}

Profile::~Profile() {
  stop();
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().profiles, [](const auto& p) { return p.expired(); });
}

bool Profile::take(const Model& model) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || (model_ && model_ != &model) || (options_.calls && taken_ >= options_.calls)) return false;
  ++taken_;
  return true;
}

void Profile::add(std::shared_ptr<const CallRecord> call, std::shared_ptr<LateTimes> late) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    if (call && spans_ < kMostSpans) {
      spans_ += call->kernels.size() + call->chunks.size() + 1;
      calls_.push_back(std::move(call));
      if (late && std::find(late_.begin(), late_.end(), late) == late_.end()) late_.push_back(std::move(late));
    } else if (call) {
      ++dropped_;
    } else {
      --taken_, --added_;
    }
    last = ++added_ == options_.calls && options_.calls > 0 && !stopped_;
  }
  if (!last) return;
  stop();
  if (done_) done_(*this);
}

std::vector<std::shared_ptr<const CallRecord>> Profile::calls() const {
  std::vector<std::shared_ptr<const CallRecord>> found;
  std::vector<std::shared_ptr<LateTimes>> late;
  {
    const std::lock_guard lock(mutex_);
    found = calls_, late = late_;
  }
  for (const auto& times : late) times->settle();
  return found;
}

std::vector<std::shared_ptr<const Model>> Profile::models() const {
  std::vector<std::shared_ptr<const Model>> found;
  for (const auto& call : calls()) {
    auto model = call->model.lock();
    if (model && std::find(found.begin(), found.end(), model) == found.end()) found.push_back(std::move(model));
  }
  return found;
}

int64_t Profile::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

std::string Profile::counters_note() const {
  const std::lock_guard lock(mutex_);
  return counters_note_;
}

void Profile::set_counters_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  counters_note_ = note;
}

TickScale Profile::scale() const {
  TickScale scale = scale_;
  scale.finish();
  return scale;
}

std::vector<std::shared_ptr<Profile>> take_profiles(const Model& model) {
  answer_signals();
  std::vector<std::shared_ptr<Profile>> all, wanted;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& weak : registry().profiles) {
      if (auto profile = weak.lock()) all.push_back(std::move(profile));
    }
  }
  for (auto& profile : all) {
    if (profile->take(model)) wanted.push_back(std::move(profile));
  }
  return wanted;
}

}  // namespace coil::runtime
