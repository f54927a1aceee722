// What is known of the nodes that a traversal has met: a flat table, since most expressions are small and a hash map allocates for each node.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "expr/expr.h"

namespace coil {

template <class V>
class NodeTable {
 public:
  NodeTable() = default;
  NodeTable(const NodeTable&) = delete;  // slots_ may point into it
  NodeTable& operator=(const NodeTable&) = delete;

  // False: the node has a value already, which stays.
  bool insert(const ExprNode* node, V value = V()) {
    if (2 * (count_ + 1) > mask_ + 1) grow();
    Slot& slot = slot_of(node);
    if (slot.first) return false;
    slot = {node, std::move(value)};
    ++count_;
    return true;
  }

  // Of a node that has one.
  const V& at(const ExprNode* node) const { return slot_of(node).second; }

 private:
  using Slot = std::pair<const ExprNode*, V>;
  static constexpr size_t kFew = 128;  // twice the nodes of nearly all expressions

  Slot& slot_of(const ExprNode* node) const {
    size_t i = static_cast<size_t>(static_cast<uint32_t>(node->serial) * 0x9e3779b1u) & mask_;
    while (slots_[i].first && slots_[i].first != node) i = (i + 1) & mask_;
    return slots_[i];
  }

  void grow() {
    std::vector<Slot> old(8 * (mask_ + 1));
    std::swap(many_, old);
    const Slot* from = old.empty() ? few_.data() : old.data();
    const size_t before = mask_ + 1;
    slots_ = many_.data();
    mask_ = many_.size() - 1;
    for (size_t i = 0; i < before; ++i) {
      if (from[i].first) slot_of(from[i].first) = from[i];
    }
  }

  std::array<Slot, kFew> few_{};
  std::vector<Slot> many_;
  Slot* slots_ = few_.data();
  size_t mask_ = kFew - 1, count_ = 0;
};

}  // namespace coil
