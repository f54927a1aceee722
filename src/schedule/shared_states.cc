// See shared_states.h.
#include "schedule/shared_states.h"

#include <algorithm>

namespace coil {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t bytes_of(const TensorData& data) {
  uint64_t bytes = static_cast<uint64_t>(byte_size(data.dtype));
  for (const int64_t s : data.sizes) bytes *= static_cast<uint64_t>(s);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool same_beginning(const TensorData& a, const TensorData& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  if (begins_with_zeros(a) && begins_with_zeros(b)) return true;
  return a.strides == b.strides && a.offset == b.offset && std::ranges::equal(a.bytes, b.bytes);
}

struct Group {
  std::vector<SharedState> states;
  std::vector<size_t> programs;

  // Whether all states of a program have the group's form where the group has their names.
  bool takes(const std::vector<SharedState>& more) const {
    return std::all_of(more.begin(), more.end(), [&](const SharedState& s) {
      const auto known = std::find_if(states.begin(), states.end(), [&](const SharedState& k) { return k.name == s.name; });
      return known == states.end() || same_beginning(known->data, s.data);
    });
  }
  void add(const std::vector<SharedState>& more) {
    for (const SharedState& s : more) {
      if (std::none_of(states.begin(), states.end(), [&](const SharedState& k) { return k.name == s.name; })) states.push_back(s);
    }
  }
  std::shared_ptr<const StateLayout> layout() && {
    auto made = std::make_shared<StateLayout>();
    std::stable_partition(states.begin(), states.end(), [](const SharedState& s) { return !begins_with_zeros(s.data); });
    for (SharedState& s : states) {
      s.offset = made->bytes;
      made->bytes += s.bytes;
      if (!begins_with_zeros(s.data)) made->stored = made->bytes;
    }
    made->states = std::move(states);
    return made;
  }
};

}  // namespace

bool begins_with_zeros(const TensorData& data) {
  return std::all_of(data.bytes.begin(), data.bytes.end(), [](uint8_t byte) { return byte == 0; });
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
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.takes(own); });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{});
    group->add(own);
    group->programs.push_back(i);
  }
  std::vector<std::shared_ptr<const StateLayout>> layouts(programs.size());
  for (Group& g : groups) {
    const std::vector<size_t> members = g.programs;
    const auto layout = std::move(g).layout();
    for (const size_t i : members) layouts[i] = layout;
  }
  return layouts;
}

}  // namespace coil
