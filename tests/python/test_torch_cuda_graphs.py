"""What torch.compile(backend="coil") leaves to PyTorch in graphs of a GPU, traced without one."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from coil._compile import settings_of
from coil.dynamo._decompositions import decompositions
from coil.dynamo._program import _ask
from coil.dynamo._split import Split
from coil.dynamo._support import torch_nodes


def block(x, w, depthwise, mean, var, line):
    y = torch.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var))
    y = F.conv2d(F.max_pool2d(y, 2), depthwise, stride=2, groups=16)
    return F.linear(y.mean((2, 3)), line).softmax(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_convolutions_whose_weights_come_with_the_call(dtype):
    """One program for inference, nothing refused; training names them."""
    with FakeTensorMode():
        arguments = [torch.empty(s, dtype=dtype, device="cuda") for s in ((4, 8, 16, 16), (16, 8, 3, 3), (16, 1, 2, 2), (16,), (16,), (10, 16))]
        graph = make_fx(block, decomposition_table=decompositions(), tracing_mode="fake")(*arguments).graph
    device = torch.device("cuda", 0)
    reasons = torch_nodes(graph, device)
    split = Split(graph, set(reasons))
    assert not any(reasons.values()) and len(split.programs) == 1
    (level, nodes), = split.programs.items()
    assert _ask(split, level, nodes, dict(settings_of({}, "cpu"), target="cuda:sm_90", name="inference")) == {}
    kept = {n: reason for n, reason in torch_nodes(graph, device, of_pytorch=("convolutions",)).items() if reason}
    assert [n.target for n in kept] == [torch.ops.aten.convolution.default] * 2
    assert set(kept.values()) == {"training takes PyTorch's convolutions"}
