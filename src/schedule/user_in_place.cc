// What a user's kernel changes (UserKernel::initial) is changed where it lies if nobody reads the old elements afterwards: the kernels before it
// then make these in the memory of the new ones, and nothing is copied.
#include <algorithm>
#include <set>

#include "schedule/renumber.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

// Calls `visit` for each buffer of the kernel.
template <class Visit>
void for_buffers(const Kernel& kernel, const Visit& visit) {
  renumbered(kernel, [&](BufferId id) {
    visit(id);
    return id;
  });
}

bool is_passed(const UserKernel& k, const std::string& argument) {
  return std::any_of(k.cuda->images.begin(), k.cuda->images.end(), [&](const UserImage& image) {
    return std::any_of(image.params.begin(), image.params.end(), [&](const UserImage::Param& p) { return p.name == argument; });
  });
}

class UserInPlace {
 public:
  explicit UserInPlace(KernelPlan& plan) : plan_(plan), last_(plan.buffers.size(), -1) {
    for (size_t n = 0; n < plan.kernels.size(); ++n) {
      for_buffers(plan.kernels[n], [&](BufferId id) { last_[static_cast<size_t>(id.index)] = static_cast<int>(n); });
    }
    for (const LoopOutput& o : plan.outputs) {
      for (const BufferId id : {o.source, o.target}) {
        if (id.valid()) kept_.insert(id.index);
      }
    }
  }

  void run() {
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      const auto* user = std::get_if<UserCallKernel>(&plan_.kernels[n].def);
      if (!user) continue;
      const UserKernel& k = *user->def.kernel;
      for (size_t r = 0; r < k.initial.size(); ++r) {
        for (size_t i = 0; i < k.args.size(); ++i) {
          user = std::get_if<UserCallKernel>(&plan_.kernels[n].def);
          if (k.args[i].name == k.initial[r] && fits(*user, i, r, static_cast<int>(n))) rename(user->operands[i].buffer, user->results[r]);
        }
      }
    }
  }

 private:
  bool fits(const UserCallKernel& user, size_t argument, size_t result, int at) const {
    const PlanOperand& o = user.operands[argument];
    const BufferId made = user.results[result];
    const BufferInfo &from = plan_.buffer(o.buffer).info, &to = plan_.buffer(made).info;
    if (from.kind != BufferInfo::Kind::computed || from.dtype != to.dtype || from.sizes != to.sizes || from.strides != to.strides) return false;
    if (kept_.contains(o.buffer.index) || last_[static_cast<size_t>(o.buffer.index)] != at) return false;
    if (is_passed(*user.def.kernel, user.def.kernel->args[argument].name)) return false;
    if (std::count_if(user.operands.begin(), user.operands.end(), [&](const PlanOperand& x) { return x.buffer == o.buffer; }) > 1) return false;
    const std::vector<Expr> zeros(to.sizes.size(), plan_.pool->index(0));
    return substitute_vars(o.offset, zeros) == plan_.pool->index(0);
  }

  void rename(BufferId from, BufferId to) {
    for (Kernel& k : plan_.kernels) k = renumbered(std::move(k), [&](BufferId id) { return id == from ? to : id; });
  }

  KernelPlan& plan_;
  std::vector<int> last_;   // the last kernel that touches each buffer
  std::set<int32_t> kept_;  // that outlive the kernels
};

}  // namespace

void change_in_place(KernelPlan& plan) {
  const bool any = std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) {
    const auto* user = std::get_if<UserCallKernel>(&k.def);
    return user && !user->def.kernel->initial.empty();
  });
  if (any) UserInPlace(plan).run();
}

}  // namespace coil
