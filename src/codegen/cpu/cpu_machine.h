// What follows from a CPU's caches and threads (base/cpu_machine.h) for the kernels of a plan.
#pragma once

#include "base/cpu_machine.h"
#include "schedule/kernel_plan.h"

namespace coil::cpu {

// The machine that a plan is for.
inline CpuMachine machine_of(const KernelPlan& plan) {
  const PlanMachine& m = plan.machine;
  return m == PlanMachine{} ? kUsualCpu : CpuMachine{m.own_cache, m.shared_cache, static_cast<int>(m.units)};
}

// What an item reads several times and still finds in its core's cache, beside what it writes.
constexpr int64_t near_bytes(const CpuMachine& m) { return m.own_cache / 2; }
// Of kernels that run one after the other: what the next one still finds in the last cache beside its own.
constexpr int64_t kept_bytes(const CpuMachine& m) { return m.shared_cache / 4; }
// Results of a kernel that leave the last cache before they are read, together with everything that the kernel moves.
constexpr int64_t streamed_bytes(const CpuMachine& m) { return m.shared_cache / 2; }
constexpr int64_t moved_bytes(const CpuMachine& m) { return m.shared_cache / 4 * 5; }
// Results that are out of the caches near a core when the next kernel reads them.
constexpr int64_t far_bytes(const CpuMachine& m) { return m.shared_cache / 8; }
// Pieces of work that keep the workers busy to the end.
constexpr int64_t parallel_points(const CpuMachine& m) { return int64_t{2} * m.workers; }

}  // namespace coil::cpu
