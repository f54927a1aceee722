// See shared_states.h.
#include "schedule/shared_states.h"

#include <algorithm>
#include <cstring>

#include "device/alignment.h"

namespace coil {
namespace {

constexpr uint64_t kStateAlignment = cd::kPlacedAlignment;

uint64_t bytes_of(const TensorData& data) {
  uint64_t bytes = static_cast<uint64_t>(byte_size(data.dtype));
  for (const int64_t s : data.sizes) bytes *= static_cast<uint64_t>(s);
  return (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

struct Group {
  std::vector<SharedState> states;
  std::vector<std::string> stored;  // names of those that begin with something in one of the programs
  std::vector<std::pair<size_t, std::vector<SharedState>>> programs;

  SharedState* find(const std::string& name) {
    const auto found = std::find_if(states.begin(), states.end(), [&](const SharedState& s) { return s.name == name; });
    return found == states.end() ? nullptr : &*found;
  }
  bool is_stored(const SharedState& s) const { return std::find(stored.begin(), stored.end(), s.name) != stored.end(); }
  // Whether all states of a program have the group's form where the group has their names.
  bool takes(const std::vector<SharedState>& more) {
    return std::all_of(more.begin(), more.end(), [&](const SharedState& s) {
      const SharedState* known = find(s.name);
      return !known || (known->data.dtype == s.data.dtype && known->data.sizes == s.data.sizes);
    });
  }
  void add(size_t program, std::vector<SharedState> more) {
    for (const SharedState& s : more) {
      if (!find(s.name)) states.push_back(s);
      if (!begins_with_zeros(s.data)) stored.push_back(s.name);
    }
    programs.emplace_back(program, std::move(more));
  }
  // Caches begin empty: what is zero everywhere comes last, and the package does not store it.
  StateLayout layout() {
    StateLayout made;
    std::stable_partition(states.begin(), states.end(), [&](const SharedState& s) { return is_stored(s); });
    for (SharedState& s : states) {
      s.offset = made.bytes;
      made.bytes += s.bytes;
      if (is_stored(s)) made.stored = made.bytes;
    }
    made.states = states;
    return made;
  }
};

}  // namespace

bool begins_with_zeros(const TensorData& data) {
  const std::span<const uint8_t> bytes = data.bytes;
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);  // each is as the one before it
}

const SharedState* StateLayout::find(const std::string& name) const {
  const auto found = std::find_if(states.begin(), states.end(), [&](const SharedState& s) { return s.name == name; });
  return found == states.end() ? nullptr : &*found;
}

std::vector<std::shared_ptr<const StateLayout>> shared_states(std::span<const LoopProgram* const> programs) {
  std::vector<Group> groups;
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<SharedState> own;
    for (const BufferInfo& b : programs[i]->buffers) {
      if (b.kind == BufferInfo::Kind::state) own.push_back({b.name, b.data, 0, bytes_of(b.data)});
    }
    if (own.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](Group& g) { return g.takes(own); });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{});
    group->add(i, std::move(own));
  }
  std::vector<std::shared_ptr<const StateLayout>> layouts(programs.size());
  for (Group& g : groups) {
    const StateLayout common = g.layout();
    for (const auto& [program, own] : g.programs) {
      auto layout = std::make_shared<StateLayout>(common);
      for (SharedState& s : layout->states) {
        const auto its = std::find_if(own.begin(), own.end(), [&](const SharedState& o) { return o.name == s.name; });
        if (its != own.end()) s.data = its->data;
      }
      layouts[program] = std::move(layout);
    }
  }
  return layouts;
}

}  // namespace coil
