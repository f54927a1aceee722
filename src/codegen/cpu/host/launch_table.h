// Long runs of calls that nothing decides at run time, as rows of a table that one loop goes through. As statements each takes clang some milliseconds
// and 18 KB, and both grow faster than their number.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/host/host_files.h"
#include "codegen/cpu/templates/call_fields.h"

namespace coil {

class LaunchTable {
 public:
  LaunchTable(const KernelPlan& plan, const cpu::CpuProgram& program) : plan_(plan), program_(program) {}

  // The kernels from `begin` on, before `end`, that are one run of a table; 0: too few to be one.
  size_t run_length(size_t begin, size_t end);

  struct Run {
    std::string definitions;  // of its tables
    std::string call;         // a statement of `run`
  };
  // flag: the number of the flag of a kernel that checks positions, -1 for others.
  Run run(size_t begin, size_t end, const std::function<int(size_t kernel)>& flag);

  // What the definitions and calls of all runs stand on; after `launch`, once a file. Empty: there are none.
  std::string support(HostFile file = HostFile::alone) const;

 private:
  // Calls of a template that differ by pointers alone have one form.
  struct Forms {
    std::string type;      // "CoilGemm"
    std::string function;  // the table of the instruction sets: "kGemm_f64"
    std::vector<std::string> texts;
    std::map<std::string, int> numbers;
  };

  bool plain(size_t kernel) const;
  bool plain_launch(const cpu::CpuLaunch& launch) const;
  std::string row(size_t kernel, int flag, std::string& places);
  std::string template_row(size_t kernel, const TemplateKernel& t, int flag, std::string& places);
  std::string apply_function() const;

  const KernelPlan& plan_;
  const cpu::CpuProgram& program_;
  std::vector<Forms> forms_;                 // of templates, by the row's `kind`
  size_t plain_from_ = 0, plain_until_ = 0;  // kernels that are known to be plain
  bool used_ = false;
};

}  // namespace coil
