// What is made once for each problem that oneDNN solves, and kept; only for onednn*.cc.
#ifndef COIL_DEVICE_ONEDNN_PLANS_H_
#define COIL_DEVICE_ONEDNN_PLANS_H_

#include "onednn_api.h"

namespace cd {

// A block of a problem: all that the library has to know. Compared as bytes.
struct DnnKey {
  int64_t is_convolution, dtype, result_dtype;         // COIL_...
  int64_t weight;                                      // of the packed operand, see onednn.h; negative: strided
  int64_t m, n, k, a_row, a_col, b_row, b_col, c_row;  // products; n, k, c_row are a convolution's as well
  int64_t pairs, groups, panels_of_groups, ic, ih, iw, oh, ow, kh, kw, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, x_c, x_h, x_w;
};

struct DnnPlan {
  bool usable;
  void* primitive;
  void* description;
  void* weights;  // the library's memory object of the kept copy; null: the operand of the call
  int64_t scratch_bytes;
};

// Memory for the threads of a call.
struct DnnWorkspace {
  DnnWorkspace* next;
  int64_t bytes;
  char* data;  // 64-byte aligned
};

// The plan for a problem, made when it is new; null: the caller computes it itself. packed: the constant weight of the call.
const DnnPlan* dnn_plan(const DnnKey& key, const void* packed);

// Null: no memory. To be given back.
DnnWorkspace* dnn_take_workspace(int64_t bytes);
void dnn_give_workspace(DnnWorkspace* workspace);

inline int64_t dnn_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t dnn_element_bytes(int64_t dtype) { return dtype == COIL_FLOAT32 ? 4 : 2; }
inline int32_t dnn_type(int64_t dtype) { return dtype == COIL_FLOAT32 ? kDnnFloat32 : kDnnBFloat16; }

}  // namespace cd

#endif  // COIL_DEVICE_ONEDNN_PLANS_H_
