#include "codegen/cuda/machine.h"

#include <algorithm>
#include <bit>
#include <span>

namespace coil::cuda {
namespace {

constexpr double kLaunch = 3300;  // ns

PlanMachine largest_of(std::span<const CudaMachine> machines) {
  PlanMachine largest;
  double memory = 0;
  for (const CudaMachine& m : machines) {
    largest.units = std::max(largest.units, int64_t{m.multiprocessors} * m.threads);
    memory = std::max(memory, m.memory);
  }
  largest.units = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(largest.units)));
  largest.launch_bytes = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(memory * kLaunch)));
  return largest;
}

PlanMachine machine_of(const KernelPlan& plan) { return plan.machine == PlanMachine{} ? largest_of(kCudaMachines) : plan.machine; }

}  // namespace

CudaMachine CudaSettings::machine(int sm) const {
  const auto given = std::find_if(machines.begin(), machines.end(), [&](const CudaMachine& m) { return m.sm == sm; });
  return given == machines.end() ? cuda_machine(sm) : *given;
}

PlanMachine plan_machine(const CudaSettings& settings) {
  const auto is_given = [&](int sm) {
    return std::any_of(settings.machines.begin(), settings.machines.end(), [&](const CudaMachine& m) { return m.sm == sm; });
  };
  if (std::none_of(settings.sms.begin(), settings.sms.end(), is_given)) return {};
  std::vector<CudaMachine> all;
  for (const int sm : settings.sms) all.push_back(settings.machine(sm));
  return largest_of(all);
}

int64_t threads_at_once(const KernelPlan& plan) { return machine_of(plan).units; }
int64_t bytes_of_a_launch(const KernelPlan& plan) { return machine_of(plan).launch_bytes; }

}  // namespace coil::cuda
