"""Runs in a process of its own, which has the environment of an emulated device: calls of a package through the Python module, with arrays of a library that is
neither PyTorch nor NumPy and lie on the device. Writes the results of each call.

usage: emulated_arrays.py PACKAGE INPUTS.npz... RESULTS.npz
"""

import ctypes
import os
import sys

import numpy as np

import coil

KDL_CUDA = 2


class Library:
    """What coil asks of an array's library, over the fake driver's memory, which the CPU can read."""

    def __init__(self):
        self.driver = ctypes.CDLL(os.environ["COIL_CUDA_DRIVER"])
        context = ctypes.c_void_p()
        assert not (self.driver.cuInit(0) or self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or self.driver.cuCtxSetCurrent(context))
        for name in ("float32", "float64", "int64", "int32", "bool"):
            setattr(self, name, np.dtype(name))

    def empty(self, sizes, dtype):
        address, count = ctypes.c_uint64(), int(np.prod(sizes))
        assert not self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(count * dtype.itemsize, 1)))
        memory = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(address.value)
        return DeviceArray(np.frombuffer(memory, dtype, count).reshape(sizes), self)

    def array(self, values):
        made = self.empty(values.shape, values.dtype)
        made.values[...] = values
        return made


class DeviceArray:
    def __init__(self, values, library):
        self.values, self.library = values, library

    def __array_namespace__(self):
        return self.library

    def transpose(self, order):
        return DeviceArray(self.values.transpose(order), self.library)

    def __dlpack_device__(self):
        return KDL_CUDA, 0

    def __dlpack__(self, **_):
        capsule = self.values.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = KDL_CUDA  # DLTensor: data, device
        return capsule


package, *sets, results = sys.argv[1:]
library, model, found = Library(), coil.load(package, device="cuda:0"), {}
for number, path in enumerate(sets):
    with np.load(path) as file:
        inputs = [library.array(file[f"in_{i}"]) for i in range(len(file.files))]
    for i, result in enumerate(model(*inputs)):
        found[f"{number}_{i}"] = np.array(result.values)
np.savez(results, **found)
