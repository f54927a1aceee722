#include "torch_results.h"

#include <fmt/format.h>

#include "arrays.h"
#include "base/env.h"
#include "base/npy.h"
#include "base/text.h"
#include "child.h"
#include "compiler/call_memory.h"
#include "temporary_folder.h"

namespace coil::tool {
namespace {

// Arguments: the program, the inputs, where the results go, and which program of an archive of several (empty: the only one). Tensor inputs are in_0, in_1, ...
// in the program's order.
constexpr const char* kScript = R"py(
import sys
import numpy as np
import torch
if sys.argv[4]:
    from torch.export.pt2_archive._package import load_pt2
    program = load_pt2(sys.argv[1]).exported_programs[sys.argv[4]]
else:
    program = torch.export.load(sys.argv[1])
arrays = np.load(sys.argv[2])
types = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
leaves, taken = [], 0
for user in program.graph_signature.user_inputs:
    if not isinstance(user, str):
        leaves.append(user)
        continue
    array = torch.from_numpy(np.ascontiguousarray(arrays[f"in_{taken}"]).copy())
    taken += 1
    kind = types[user]
    leaves.append(array.to(kind.dtype) if isinstance(kind, torch.Tensor) else array.item())
positional, keywords = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
with torch.no_grad():
    results = torch.utils._pytree.tree_leaves(program.module()(*positional, **keywords))
tensors = [torch.as_tensor(r).detach().cpu() for r in results if r is not None]
wide = {torch.bfloat16: torch.float32}
np.savez(sys.argv[3], **{f"out_{i}": t.to(wide.get(t.dtype, t.dtype)).contiguous().numpy() for i, t in enumerate(tensors)})
)py";

// Of a traceback, what went wrong.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Result<std::vector<CallResult>> results_of_torch(const std::string& program, const std::string& name, std::span<const CoilTensorView> inputs) {
  const TemporaryFolder folder;
  if (folder.path.empty()) return Error{ErrorCode::file_unwritable, "no temporary folder can be made", "", "set TMPDIR"};
  NamedArrays arrays;
  for (size_t i = 0; i < inputs.size(); ++i) arrays.emplace_back(fmt::format("in_{}", i), to_array(inputs[i]));
  const std::string in = folder.path + "/in.npz", out = folder.path + "/out.npz";
  TRY_STATUS(write_npz(in, arrays));
  const std::string python = env("COIL_TORCH").value_or("python3");
  TRY(const ChildResult child, run_child({python, "-c", kScript, program, in, out, name}));
  if (child.exit_code != 0)
    return Error{ErrorCode::bad_option, fmt::format("--torch: {} ended with {}: {}", shown(python), child.exit_code, shown(last_line(child.output))), "",
                 "set COIL_TORCH to a Python that has PyTorch and NumPy"};
  TRY(const NamedArrays found, read_npz(out));
  std::vector<CallResult> results;
  for (const auto& [name, array] : found) {
    CoilTensorView v = {};
    v.data = const_cast<uint8_t*>(array.data.data());
    v.sizes = array.shape.data();
    v.ndim = static_cast<int32_t>(array.shape.size());
    v.dtype = array.dtype;
    results.push_back({name, copy_of(v)});
  }
  return results;
}

}  // namespace coil::tool
