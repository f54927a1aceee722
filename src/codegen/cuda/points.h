// The statements of a pointwise kernel for the consecutive points of a thread.
#pragma once

#include <functional>

#include "codegen/cuda/loop_context.h"

namespace coil::cuda {

// The axis along which a thread's points follow one another: the one along which accesses are most contiguous. -1: no axes.
int lane_axis(const LoopKernel& kernel);

// Tells the emitter what it need not load; may add text to the body.
using Prepare = std::function<void(Emitter& emitter, std::string& body, const std::string& indent, int width)>;

// All statements for `width` points along `axis` from the one that the axes' variables name.
std::string statements(KernelContext& context, const LoopKernel& kernel, int axis, int width, const std::string& indent, const Prepare& prepare = {});

// The same where less than `width` points may be left along the axis, or where wide accesses are not allowed: then one by one.
// leave: what ends the work of these points, "return" or "continue".
std::string guarded_statements(KernelContext& context, const LoopKernel& kernel, int axis, int width, const std::string& indent, const std::string& leave,
                               const Prepare& prepare = {});

// A kernel of tiles that go through shared memory, if something is read along another axis than the results are written along. side: of a tile; 0: the
// own rule's.
std::optional<KernelText> transposing_text(const KernelPlan& plan, const LoopKernel& kernel, int side = 0);
// The own rule's side of tiles. Null: there are none.
std::optional<int> own_tiles(const KernelPlan& plan, const LoopKernel& kernel);

// Without tiles, of blocks of so many threads that have so many points each (or fewer of the most contiguous axis, but several such groups). Null where the
// kernel's points cannot be grouped so.
std::optional<KernelText> pointwise_text(const KernelPlan& plan, const LoopKernel& kernel, int threads, int points);
int own_points(const KernelPlan& plan, const LoopKernel& kernel);

}  // namespace coil::cuda
