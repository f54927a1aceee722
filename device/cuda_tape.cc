// See cuda_tape.h.
#include "cuda_tape.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_graph.h"

namespace cd {
namespace {

constexpr int32_t kMostOps = 4096;         // longer programs stay without graphs
constexpr uint32_t kMostValues = 8 << 20;  // bytes of all parameters
constexpr uint32_t kValueAlignment = 16;

// Makes room for `wanted` elements of `bytes`; false without memory, which leaves what was there.
bool grow(void** data, uint64_t bytes, uint64_t wanted, uint64_t* capacity) {
  if (wanted <= *capacity) return true;
  uint64_t more = *capacity ? *capacity * 2 : 64;
  if (more < wanted) more = wanted;
  void* moved = realloc(*data, more * bytes);
  if (!moved) return false;
  *data = moved;
  *capacity = more;
  return true;
}

CudaTapeOp* new_op(CudaTape* tape) {
  uint64_t capacity = static_cast<uint64_t>(tape->ops_capacity);
  void* data = tape->ops;
  if (tape->num_ops == kMostOps || !grow(&data, sizeof(CudaTapeOp), static_cast<uint64_t>(tape->num_ops) + 1, &capacity)) return nullptr;
  tape->ops = static_cast<CudaTapeOp*>(data);
  tape->ops_capacity = static_cast<int32_t>(capacity);
  CudaTapeOp* op = &tape->ops[tape->num_ops++];
  memset(op, 0, sizeof *op);
  return op;
}

bool new_value(CudaTape* tape, const CudaParam& param, uint32_t* begin) {
  const uint32_t at = (tape->values_bytes + kValueAlignment - 1) / kValueAlignment * kValueAlignment;
  uint64_t capacity = tape->values_capacity;
  void* data = tape->values;
  if (at > kMostValues || param.bytes > kMostValues || !grow(&data, 1, uint64_t{at} + param.bytes, &capacity)) return false;
  tape->values = static_cast<unsigned char*>(data);
  tape->values_capacity = static_cast<uint32_t>(capacity);
  memcpy(tape->values + at, param.value, param.bytes);
  tape->values_bytes = at + param.bytes;
  *begin = at;
  return true;
}

// The op that comes next; null: the tape is refused.
CudaTapeOp* next_op(CudaTape* tape) {
  if (tape->refused) return nullptr;
  CudaTapeOp* op = nullptr;
  if (!tape->again) {
    op = new_op(tape);
  } else if (tape->at < tape->num_ops) {
    op = &tape->ops[tape->at++];
  }
  if (!op) tape->refused = true;
  return op;
}

bool same_kernel(const CudaTapeOp& op, void* function, const CudaLaunchConfig& config, int32_t cluster, const CudaParam* params, int32_t num_params) {
  bool same = op.function == function && op.threads == config.block[0] && op.shared_bytes == config.shared_bytes && op.cluster == cluster &&
              op.num_params == num_params;
  for (int32_t i = 0; same && i < num_params; i++) same = op.bytes[i] == params[i].bytes;
  return same;
}

}  // namespace

void tape_begin(CudaTape* tape, bool again) {
  tape->again = again;
  tape->at = 0;
  tape->refused = false;
  if (!again) tape->num_ops = 0, tape->values_bytes = 0;
}

bool tape_end(CudaTape* tape) {
  if (tape->again && tape->at != tape->num_ops) tape->refused = true;
  return !tape->refused;
}

void tape_free(CudaTape* tape) {
  free(tape->ops);
  free(tape->values);
  memset(tape, 0, sizeof *tape);
}

void tape_kernel(CudaTape* tape, void* function, const CudaLaunchConfig& config, const CudaKernel& kernel, const CudaParam* params, int32_t num_params) {
  const int32_t cluster = kernel.cluster;
  CudaTapeOp* op = next_op(tape);
  if (!op) return;
  if (tape->again) {
    if (!same_kernel(*op, function, config, cluster, params, num_params)) {
      tape->refused = true;
      return;
    }
    if (memcmp(op->grid, config.grid, sizeof op->grid) != 0) {
      memcpy(op->grid, config.grid, sizeof op->grid);
      op->dirty = true;
    }
    for (int32_t i = 0; i < num_params; i++) {
      unsigned char* value = tape->values + op->begin[i];
      if (memcmp(value, params[i].value, params[i].bytes) == 0) continue;
      memcpy(value, params[i].value, params[i].bytes);
      op->dirty = true;
    }
    return;
  }
  op->function = function;
  memcpy(op->grid, config.grid, sizeof op->grid);
  op->threads = config.block[0], op->shared_bytes = config.shared_bytes, op->cluster = cluster, op->num_params = num_params;
  op->foreign = kernel.image != 0;
  for (int32_t i = 0; i < num_params; i++) {
    op->bytes[i] = params[i].bytes;
    if (!new_value(tape, params[i], &op->begin[i])) tape->refused = true;
  }
}

void tape_copy(CudaTape* tape, void* to, const void* from, uint64_t bytes) {
  CudaTapeOp* op = next_op(tape);
  if (!op) return;
  const CudaAddress t = reinterpret_cast<CudaAddress>(to), f = reinterpret_cast<CudaAddress>(from);
  if (tape->again) {
    if (op->function || op->copied != bytes) tape->refused = true;
    if (tape->refused || (op->to == t && op->from == f)) return;
    op->dirty = true;
  }
  op->to = t, op->from = f, op->copied = bytes;
}

void tape_refuse(CudaTape* tape) { tape->refused = true; }

void tape_node(const CudaTape& tape, const CudaTapeOp& op, void** values, CudaKernelNode* node) {
  for (int32_t i = 0; i < op.num_params; i++) values[i] = tape.values + op.begin[i];
  *node = {op.function, {op.grid[0], op.grid[1], op.grid[2]}, {op.threads, 1, 1}, op.shared_bytes, values, nullptr, nullptr, nullptr};
}

void tape_node(const CudaTapeOp& op, CudaCopyNode* node) {
  memset(node, 0, sizeof *node);
  node->from.memory_type = node->to.memory_type = kCudaMemoryDevice;
  node->from.device = op.from, node->to.device = op.to;
  node->from.pitch = node->to.pitch = op.copied;
  node->width = op.copied, node->height = 1, node->depth = 1;
}

}  // namespace cd
