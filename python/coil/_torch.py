"""What the runtime needs of PyTorch; imported by it when the first torch tensor comes by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, device, empty_strided

__all__ = ["Tensor", "device", "empty_strided", "empty_cpu", "is_neg", "is_conj", "dtypes", "is_plain", "describe", "unreadable"]

try:
    from torch._C._dynamo.guards import _empty_strided_cpu as empty_cpu  # half the time of torch.empty_strided
except ImportError:

    def empty_cpu(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return empty_strided(sizes, strides, dtype=dtype)


is_neg = torch._C.TensorBase.is_neg
is_conj = torch._C.TensorBase.is_conj

dtypes = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
          7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
          27: torch.uint16, 28: torch.uint32, 29: torch.uint64}
for _number, _name in {23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 44: "float8_e8m0fnu"}.items():
    if hasattr(torch, _name):  # the last one came with PyTorch 2.7
        dtypes[_number] = getattr(torch, _name)
_numbers = {dtype: number for number, dtype in dtypes.items()}


def is_plain(kind: type) -> bool:
    """Whether tensors of this type keep their data where torch.Tensor does."""
    return kind.__torch_dispatch__ is Tensor.__torch_dispatch__


def describe(tensor: Tensor) -> tuple[Any, ...]:
    """For PyTorch before 2.10, which has no faster way."""
    number = _numbers.get(tensor.dtype, -1)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), number, tensor.is_cuda, max(tensor.device.index or 0, 0)


def unreadable(tensor: Tensor) -> tuple[str, str]:
    """What a tensor is that PyTorch shows no memory of, and what to pass instead; empty where that is not known."""
    if tensor.is_nested:
        return "is a nested tensor", "pass x.to_padded_tensor(0.0), or its values and offsets"
    if tensor.layout != torch.strided:
        return f"has the layout {tensor.layout}", "pass x.to_dense(), or its values and indices"
    if tensor.is_quantized:
        return "is quantised", "pass x.dequantize(), or x.int_repr()"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "is inside of a transform of torch.func, for which a package has no rules", "call the package outside of vmap, grad and the others"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"is on the device '{tensor.device}'", "move it to the CPU or to CUDA"
    return "", ""
