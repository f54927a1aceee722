// oneDNN's C interface, of versions 2 and 3, as onednn.cc uses it; only for that file. Types and numbers are declared here: no
// header of oneDNN at build time. Where the versions differ in more than a name, Layout and the two functions below hide it.
#ifndef COIL_DEVICE_ONEDNN_API_H_
#define COIL_DEVICE_ONEDNN_API_H_

#include "onednn.h"
#include "onednn_open.h"

namespace cd {

constexpr int32_t kMostDims = 12;
enum : int32_t { kDnnBFloat16 = 2, kDnnFloat32 = 3 };
enum : int32_t { kSource = 1, kDestination = 17, kWeights = 33, kScratchpad = 80 };                                           // arguments
enum : int32_t { kAskImplementation = 8, kAskSource = 129, kAskWeights = 131, kAskDestination = 133, kAskScratchpad = 136 };  // queries

struct Argument {
  int32_t which;
  void* memory;
};

// The functions that both versions have alike. Descriptors of memory are pointers here: to a struct of version 2, an object of
// version 3.
struct OneDnn {
  bool version3;
  void* engine;
  void* attributes;  // scratch memory is the caller's
  int32_t (*create_memory)(void** memory, const void* layout, void* engine, void* data);
  int32_t (*destroy_memory)(void* memory);
  int32_t (*layout_of_memory)(const void* memory, const void** layout);
  size_t (*layout_bytes)(const void* layout);
  const void* (*ask_layout)(const void* description, int32_t what, int32_t index);
  int32_t (*ask)(const void* description, int32_t what, int32_t index, void* result);
  int32_t (*describe_reorder)(void** description, const void* from, void* from_engine, const void* to, void* to_engine, const void* attributes);
  int32_t (*destroy_description)(void* description);
  int32_t (*create_primitive)(void** primitive, const void* description);
  int32_t (*destroy_primitive)(void* primitive);
  int32_t (*execute)(const void* primitive, void* stream, int32_t count, const Argument* arguments);
  int32_t (*create_stream)(void** stream, void* engine, uint32_t flags);
  int32_t (*destroy_stream)(void* stream);
  int32_t (*most_threads)();  // of the calling thread; null: the library has none of its own
  void (*set_threads)(int32_t);
};

// Null: not on this machine. Looked for once.
const OneDnn* onednn();

// How a tensor lies in memory. strides null: as the library likes.
class Layout {
 public:
  Layout(const OneDnn& dnn, int32_t rank, const int64_t* sizes, int32_t dtype, const int64_t* strides);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout();
  const void* get() const { return layout_; }  // null: it was refused

 private:
  alignas(16) char storage_[1024];
  const void* layout_ = nullptr;
};

// Descriptions of what a primitive does, for create_primitive; null: refused. All layouts are given.
void* describe_product(const OneDnn& dnn, const void* a, const void* b, const void* c);
void* describe_convolution(const OneDnn& dnn, const void* x, const void* w, const void* y, const int64_t* strides, const int64_t* dilations,
                           const int64_t* near_pads, const int64_t* far_pads);

// The calling thread's work stays on it, as long as this lives.
class OneThread {
 public:
  explicit OneThread(const OneDnn& dnn) : dnn_(dnn), before_(dnn.most_threads ? dnn.most_threads() : 0) {
    if (before_) dnn_.set_threads(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_) dnn_.set_threads(before_);
  }

 private:
  const OneDnn& dnn_;
  const int32_t before_;
};

bool onednn_traces();

}  // namespace cd

#endif  // COIL_DEVICE_ONEDNN_API_H_
