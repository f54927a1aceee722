// The calls of a host program, and the functions that they become where there are many: clang's time grows faster than a function beyond some hundred
// calls, and its memory with a file.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "codegen/cpu/host/host_files.h"
#include "schedule/kernel_plan.h"

namespace coil {

class HostCalls {
 public:
  // Calls between two control marks, or outside of all.
  struct Level {
    std::string text = {};                               // what is complete
    std::string calls = {};                              // since the last function
    size_t count = 0;                                    // of those
    std::string definitions = {};                        // that those name
    std::set<int> text_offsets = {}, call_offsets = {};  // offsets_of what the two name
    bool whole = false;                                  // never becomes functions

    void close();  // its calls are complete
  };

  explicit HostCalls(const KernelPlan& plan) : plan_(plan) {}

  // The calls of kernels [begin, end), which count as so many.
  void add(Level& level, const std::string& text, std::set<int> offsets, size_t count = 1);
  // The definitions that the outermost level, which is closed, still has, and what it names: `run` is in the first file.
  void finish(Level& level);
  // What addresses of these kernels' buffers may call.
  std::set<int> offsets(size_t begin, size_t end) const;

  size_t num_functions() const { return num_functions_; }
  bool fill_files() const;  // there are so many that they fill several files
  const std::set<int>& named_first() const { return named_first_; }

  // What the program's only file, or its first, has of them. one_thread: a declaration that their calls name.
  std::string text(HostFile file, const std::string& one_thread) const;
  // The functions, so many a file: by their number, since names and messages have no influence on what is compiled together.
  struct Part {
    std::string text;
    std::set<int> offsets;
  };
  std::vector<Part> parts(const std::string& one_thread) const;

 private:
  // A function of calls, after what only it names. Without a name: what `run` names.
  struct Function {
    std::string definitions, name, calls;
    std::set<int> offsets;
  };
  std::string head(const Function& f) const;
  std::string defined(const Function& f, HostFile file, const std::string& one_thread) const;
  bool late_outputs() const;

  const KernelPlan& plan_;
  std::vector<Function> functions_;
  std::set<int> named_first_;  // offsets of what the first file has of the calls
  size_t num_functions_ = 0;
};

}  // namespace coil
