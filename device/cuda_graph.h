// A program's calls as CUDA graphs. Enqueuing a kernel takes the driver some 3 us of the host's time; a graph of all kernels of
// a call takes little more than one. Linked into CUDA packages only.
//
// What repeats is made a graph: calls with the same dynamic sizes on the same stream, from the fifth on. A call whose addresses
// are those of the call before launches the graph as it is, without running the program's code; with other addresses the code
// runs to write down its launches (a tape), and those that differ are changed in the graph. Both are timed, and a graph that is
// not faster than the launches were is given up, for good. What is computed, in which order, and how errors are told does not
// change: whatever goes wrong on the way to a graph, the call is enqueued kernel by kernel.
//
// Kernels that wait by themselves for the one before them (cd::begin_kernel) start early behind another kernel, in a graph too, but not behind another
// graph: one or two launches that the device needs longer for than the host are left as they are.
//
// Never as graphs: calls on a stream that is being captured, calls that cuBLASLt or cuDNN serve, and everything under
// COIL_CUDA_GRAPHS=0 or COIL_CUDA_SYNC=1. COIL_CUDA_GRAPHS=2 does without the timing. A graph of a single kernel pays, too: on
// an H200's host its launch took 1.1 us, the kernel's 2.7. A device keeps up to eight graphs for a program, those that were
// used last; they own no data: memory is the caller's, as without graphs.
// COIL_CUDA_TRACE=1 prints a line to stderr for each graph.
#ifndef COIL_DEVICE_CUDA_GRAPH_H_
#define COIL_DEVICE_CUDA_GRAPH_H_

#include "cuda_driver.h"
#include "cuda_host.h"

namespace cd {

struct CudaGraphs;

// For a device's code; its context is current. `early`: its kernels wait for the ones before them by themselves. Null: there are no graphs here.
CudaGraphs* cuda_graphs_open(const CudaDriver* driver, void* context, bool early);
// alive: the driver still runs.
void cuda_graphs_close(CudaGraphs* graphs, bool alive);

// cuda_run. Any number of threads; of calls that would change the same graph at once, one does, the others go without.
int32_t cuda_graphs_run(CudaGraphs* graphs, const CudaProgram& program, const CoilCall* call, CoilError* error);

void cuda_graphs_count(CudaGraphs* graphs, CoilGraphCounts* counts);

// Writes down what the call would enqueue; values are copied.
void tape_kernel(CudaTape* tape, void* function, const CudaLaunchConfig& config, const CudaKernel& kernel, const CudaParam* params, int32_t num_params);
void tape_copy(CudaTape* tape, void* to, const void* from, uint64_t bytes);
// The call has a part that no tape can hold.
void tape_refuse(CudaTape* tape);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GRAPH_H_
