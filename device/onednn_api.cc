// See onednn_api.h.
#include "onednn_api.h"

#include <stdio.h>

namespace cd {
namespace {

enum : int32_t { kCpu = 1, kInference = 96, kDirectConvolution = 1, kAnyLayout = 1, kCallersScratch = 1 };

// The two versions' own functions; those of the other are null.
struct Versioned {
  int32_t (*init_by_strides)(void* layout, int32_t rank, const int64_t* sizes, int32_t dtype, const int64_t* strides);
  int32_t (*init_by_tag)(void* layout, int32_t rank, const int64_t* sizes, int32_t dtype, int32_t tag);
  int32_t (*init_product)(void* op, const void* a, const void* b, const void* bias, const void* c);
  int32_t (*init_convolution)(void* op, int32_t kind, int32_t algorithm, const void* x, const void* w, const void* bias, const void* y, const int64_t* strides,
                              const int64_t* dilations, const int64_t* near_pads, const int64_t* far_pads);
  int32_t (*describe)(void** description, const void* op, const void* attributes, void* engine, const void* hint);
  // version 3
  int32_t (*create_by_strides)(void** layout, int32_t rank, const int64_t* sizes, int32_t dtype, const int64_t* strides);
  int32_t (*create_by_tag)(void** layout, int32_t rank, const int64_t* sizes, int32_t dtype, int32_t tag);
  int32_t (*destroy_layout)(void* layout);
  int32_t (*describe_product)(void** description, void* engine, const void* a, const void* b, const void* bias, const void* c, const void* attributes);
  int32_t (*describe_convolution)(void** description, void* engine, int32_t kind, int32_t algorithm, const void* x, const void* w, const void* bias,
                                  const void* y, const int64_t* strides, const int64_t* dilations, const int64_t* near_pads, const int64_t* far_pads,
                                  const void* attributes);
};

OneDnn dnn;
Versioned own;
int32_t state;  // 0: not looked for, 1: there, 2: absent; guarded by onednn.cc's mutex

// The operation's descriptor of version 2: at most 6 KB.
struct alignas(16) Operation {
  char bytes[16384];
};

struct Finder {
  void* library;
  bool all = true;
  template <class Function>
  void operator()(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    all = all && function;
  }
};

bool find_functions(void* library) {
  Finder find{library};
  find(dnn.create_memory, "dnnl_memory_create"), find(dnn.destroy_memory, "dnnl_memory_destroy");
  find(dnn.layout_of_memory, "dnnl_memory_get_memory_desc"), find(dnn.layout_bytes, "dnnl_memory_desc_get_size");
  find(dnn.ask_layout, "dnnl_primitive_desc_query_md"), find(dnn.ask, "dnnl_primitive_desc_query");
  find(dnn.describe_reorder, "dnnl_reorder_primitive_desc_create"), find(dnn.destroy_description, "dnnl_primitive_desc_destroy");
  find(dnn.create_primitive, "dnnl_primitive_create"), find(dnn.destroy_primitive, "dnnl_primitive_destroy");
  find(dnn.execute, "dnnl_primitive_execute");
  find(dnn.create_stream, "dnnl_stream_create"), find(dnn.destroy_stream, "dnnl_stream_destroy");
  if (dnn.version3) {
    find(own.create_by_strides, "dnnl_memory_desc_create_with_strides"), find(own.create_by_tag, "dnnl_memory_desc_create_with_tag");
    find(own.destroy_layout, "dnnl_memory_desc_destroy"), find(own.describe_product, "dnnl_matmul_primitive_desc_create");
    find(own.describe_convolution, "dnnl_convolution_forward_primitive_desc_create");
  } else {
    find(own.init_by_strides, "dnnl_memory_desc_init_by_strides"), find(own.init_by_tag, "dnnl_memory_desc_init_by_tag");
    find(own.init_product, "dnnl_matmul_desc_init"), find(own.init_convolution, "dnnl_dilated_convolution_forward_desc_init");
    find(own.describe, "dnnl_primitive_desc_create");
  }
  return find.all;
}

bool load() {
  const OneDnnVersion* version = nullptr;
  void* library = open_onednn(&version);
  if (!library) return false;
  dnn.version3 = version->major == 3;
  if (!find_functions(library)) return false;
  if (version->cpu_runtime == kOneDnnOpenMp) {
    Finder threads{library};
    threads(dnn.most_threads, "omp_get_max_threads"), threads(dnn.set_threads, "omp_set_num_threads");
    if (!threads.all) return false;
  }
  int32_t (*create_engine)(void**, int32_t, size_t) = nullptr;
  int32_t (*create_attributes)(void**) = nullptr;
  int32_t (*set_scratch)(void*, int32_t) = nullptr;
  Finder find{library};
  find(create_engine, "dnnl_engine_create"), find(create_attributes, "dnnl_primitive_attr_create"),
      find(set_scratch, "dnnl_primitive_attr_set_scratchpad_mode");
  if (!find.all || create_engine(&dnn.engine, kCpu, 0) != 0 || create_attributes(&dnn.attributes) != 0 || set_scratch(dnn.attributes, kCallersScratch) != 0)
    return false;
  if (onednn_traces()) fprintf(stderr, "onednn %d.%d.%d\n", version->major, version->minor, version->patch);
  return true;
}

}  // namespace

const OneDnn* onednn() {
  if (!state) state = load() ? 1 : 2;
  return state == 1 ? &dnn : nullptr;
}

bool onednn_traces() {
  const char* wish = getenv("COIL_ONEDNN_TRACE");
  return wish && *wish && *wish != '0';
}

Layout::Layout(const OneDnn& d, int32_t rank, const int64_t* sizes, int32_t dtype, const int64_t* strides) {
  if (d.version3) {
    void* made = nullptr;
    const int32_t status = strides ? own.create_by_strides(&made, rank, sizes, dtype, strides) : own.create_by_tag(&made, rank, sizes, dtype, kAnyLayout);
    layout_ = status == 0 ? made : nullptr;
  } else {
    const int32_t status = strides ? own.init_by_strides(storage_, rank, sizes, dtype, strides) : own.init_by_tag(storage_, rank, sizes, dtype, kAnyLayout);
    layout_ = status == 0 ? storage_ : nullptr;
  }
}

Layout::~Layout() {
  if (layout_ && layout_ != storage_) own.destroy_layout(const_cast<void*>(layout_));
}

void* describe_product(const OneDnn& d, const void* a, const void* b, const void* c) {
  void* made = nullptr;
  if (d.version3) return own.describe_product(&made, d.engine, a, b, nullptr, c, d.attributes) == 0 ? made : nullptr;
  Operation op;
  const bool described = own.init_product(&op, a, b, nullptr, c) == 0 && own.describe(&made, &op, d.attributes, d.engine, nullptr) == 0;
  return described ? made : nullptr;
}

void* describe_convolution(const OneDnn& d, const void* x, const void* w, const void* y, const int64_t* strides, const int64_t* dilations,
                           const int64_t* near_pads, const int64_t* far_pads) {
  void* made = nullptr;
  if (d.version3) {
    const int32_t status =
        own.describe_convolution(&made, d.engine, kInference, kDirectConvolution, x, w, nullptr, y, strides, dilations, near_pads, far_pads, d.attributes);
    return status == 0 ? made : nullptr;
  }
  Operation op;
  const bool described = own.init_convolution(&op, kInference, kDirectConvolution, x, w, nullptr, y, strides, dilations, near_pads, far_pads) == 0 &&
                         own.describe(&made, &op, d.attributes, d.engine, nullptr) == 0;
  return described ? made : nullptr;
}

}  // namespace cd
