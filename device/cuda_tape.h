// The work of a call, written down (cuda_graph.h): the launches and copies in order, with the values of their parameters.
#ifndef COIL_DEVICE_CUDA_TAPE_H_
#define COIL_DEVICE_CUDA_TAPE_H_

#include "cuda/limits.h"
#include "cuda_driver.h"
#include "cuda_host.h"

namespace cd {

struct CudaTapeOp {
  void* function;  // null: a copy
  uint32_t grid[3], threads, shared_bytes;
  int32_t cluster, num_params;
  uint32_t begin[kMaxCudaParams];  // of each value in CudaTape::values
  uint32_t bytes[kMaxCudaParams];
  CudaAddress to, from;
  uint64_t copied;
  void* node;    // of the graph
  bool foreign;  // another compiler made the kernel: it does not wait by itself for the one before it
  bool dirty;    // written down anew since the graph was made or changed
};

struct CudaTape {
  CudaTapeOp* ops;
  int32_t num_ops, ops_capacity;
  unsigned char* values;
  uint32_t values_bytes, values_capacity;
  bool again;    // the ops are there: what comes is compared with them
  int32_t at;    // again: the op that comes next
  bool refused;  // it did not work out; what is written down is not the call
};

// Before the program's code runs. `again`: the same program with the same sizes as before.
void tape_begin(CudaTape* tape, bool again);
// After it. False: what is on the tape is not the call.
bool tape_end(CudaTape* tape);
void tape_free(CudaTape* tape);
// The op as the driver wants it; `values` has room for kMaxCudaParams and must outlive *node.
void tape_node(const CudaTape& tape, const CudaTapeOp& op, void** values, CudaKernelNode* node);
void tape_node(const CudaTapeOp& op, CudaCopyNode* node);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_TAPE_H_
