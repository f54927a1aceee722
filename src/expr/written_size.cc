#include "expr/written_size.h"

#include <algorithm>
#include <unordered_map>

#include "expr/node_table.h"

namespace coil {
namespace {

class Measure {
 public:
  explicit Measure(int64_t limit) : limit_(limit) {}

  // The text of `root` where nothing of it has been written yet.
  int64_t whole(Expr root) {
    if (const auto known = whole_.find(root.node()); known != whole_.end()) return known->second;
    int64_t sum = is_index(root) ? tree(root) : 0;
    NodeTable<char> seen;
    seen.insert(root.node());
    std::vector<Expr> todo = {root};
    while (!todo.empty() && sum <= limit_) {
      const Expr e = todo.back();
      todo.pop_back();
      sum += own(e);
      for (size_t i = 0; i < e->args.size(); ++i) {
        const Expr arg = e->args[i];
        if (e->is_op(ScalarOp::masked) && i == 1) sum += whole(arg);
        else if (seen.insert(arg.node())) todo.push_back(arg);
      }
    }
    sum = std::min(sum, limit_ + 1);
    whole_.emplace(root.node(), sum);
    return sum;
  }

 private:
  static bool is_index(Expr e) { return e->dtype == DType::index; }

  // A value's own text, with the index arithmetic in it. Index nodes are counted where values use them.
  int64_t own(Expr e) {
    if (is_index(e)) return 0;
    int64_t sum = 1;
    for (Expr arg : e->args) {
      if (is_index(arg)) sum += tree(arg);
    }
    return sum;
  }

  int64_t tree(Expr root) {
    visit(root, [&](Expr e) {
      if (tree_.contains(e.node())) return;
      int64_t sum = 1;
      for (Expr arg : e->args) sum = std::min(sum + (is_index(arg) ? tree_.at(arg.node()) : 1), limit_ + 1);
      tree_.emplace(e.node(), sum);
    });
    return tree_.at(root.node());
  }

  const int64_t limit_;
  std::unordered_map<const ExprNode*, int64_t> whole_, tree_;
};

}  // namespace

int64_t written_size(Expr e, int64_t limit) { return Measure(limit).whole(e); }

}  // namespace coil
