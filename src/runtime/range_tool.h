// A tool of the caller's that shows kernels as ranges of the calling thread, beside profiles and NVTX: PyTorch's profiler, of calls from Python.
#pragma once

#include <string>

#include "runtime/profile.h"

namespace coil::runtime {

struct RangeTool {
  void* (*push)(const char* name);  // null: it opened none
  void (*pop)(void* range);
};

// Which tool the calls of this thread tell of their kernels, as long as it lives. Null: none.
class RangeToolScope {
 public:
  explicit RangeToolScope(const RangeTool* tool) : before_(current_) {
    if (tool) watchers.fetch_add(1);  // contexts look at this number alone while nobody watches
    current_ = tool;
  }
  ~RangeToolScope() {
    if (current_) watchers.fetch_sub(1);
    current_ = before_;
  }
  RangeToolScope(const RangeToolScope&) = delete;
  RangeToolScope& operator=(const RangeToolScope&) = delete;

  static const RangeTool* current() { return current_; }

 private:
  static inline thread_local const RangeTool* current_ = nullptr;
  const RangeTool* before_;
};

// One range of the thread's tool, if it has one, as long as it lives.
class ToolRange {
 public:
  explicit ToolRange(const std::string& name) : tool_(RangeToolScope::current()), range_(tool_ ? tool_->push(name.c_str()) : nullptr) {}
  ~ToolRange() {
    if (range_) tool_->pop(range_);
  }
  ToolRange(const ToolRange&) = delete;
  ToolRange& operator=(const ToolRange&) = delete;

 private:
  const RangeTool* tool_;
  void* range_;
};

}  // namespace coil::runtime
