"""Runs in a process of its own, which has the environment of an emulated device: calls a package through the C API with tensors that
begin at an address that only their elements' size divides.

usage: emulated_call.py LIBRARY PACKAGE INPUTS.npz OUTPUTS.npz SHIFT      bfloat16 is widened to float32 in both
"""

import ctypes
import sys
from ctypes import c_void_p

import numpy as np

import capi

CUDA = 1


class DeviceOptions(ctypes.Structure):
    _fields_ = [*capi.Options._fields_, ("device", ctypes.c_char_p)]


class DeviceModel(capi.Model):
    """A package on cuda:0. Addresses of the device are plain numbers."""

    def __init__(self, library, package):
        self.lib = ctypes.CDLL(str(library))
        self.lib.coil_last_error.restype = ctypes.c_char_p
        self.model, self.context = c_void_p(), c_void_p()
        options = DeviceOptions(ctypes.sizeof(DeviceOptions), 1, None, None, b"cuda:0")
        self.check(self.lib.coil_open(str(package).encode(), ctypes.byref(options), ctypes.byref(self.model)))
        self.check(self.lib.coil_context_create(self.model, ctypes.byref(self.context)))
        self.num_inputs, self.num_outputs = self.lib.coil_num_inputs(self.model), self.lib.coil_num_outputs(self.model)

    def alloc(self, elements, itemsize, shift):
        data = c_void_p()
        self.check(self.lib.coil_alloc(self.model, ctypes.c_size_t((elements + shift) * itemsize), ctypes.byref(data)))
        return data.value + shift * itemsize

    def upload(self, array, shift):
        data = self.alloc(array.size, array.itemsize, shift)
        if array.size:
            self.check(self.lib.coil_copy_to_device(self.context, c_void_p(data), array.ctypes.data_as(c_void_p), ctypes.c_size_t(array.nbytes)))
        return data

    def run_shifted(self, arrays, shift):
        inputs, outputs = self.bind(*arrays)
        for i, array in enumerate(arrays):
            inputs[i].data, inputs[i].device_type = self.upload(array, shift), CUDA
        self.check(self.lib.coil_infer(self.context, inputs, len(arrays), outputs, self.num_outputs))
        flats = []
        for i in range(self.num_outputs):
            sizes, strides = self.layout(outputs[i])
            extent = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
            flats.append(np.empty(extent, capi.DTYPES[outputs[i].dtype]))
            outputs[i].data, outputs[i].device_type = self.alloc(extent, flats[i].itemsize, shift), CUDA
        self.check(self.lib.coil_run(self.context, inputs, len(arrays), outputs, self.num_outputs))
        self.check(self.lib.coil_synchronize(self.context))
        return [(outputs[i].dtype, self.download(outputs[i], flat)) for i, flat in enumerate(flats)]

    @staticmethod
    def layout(tensor):
        return tensor.sizes[: tensor.rank], tensor.strides[: tensor.rank]

    def download(self, tensor, flat):
        sizes, strides = self.layout(tensor)
        if flat.size:
            self.check(self.lib.coil_copy_from_device(self.context, flat.ctypes.data_as(c_void_p), c_void_p(tensor.data), ctypes.c_size_t(flat.nbytes)))
        return np.lib.stride_tricks.as_strided(flat, sizes, [s * flat.itemsize for s in strides]).copy()


def main(library, package, inputs, outputs, shift):
    model = DeviceModel(library, package)
    with np.load(inputs) as file:
        arrays = [np.ascontiguousarray(file[f"in_{i}"]) for i in range(model.num_inputs)]
    for i in range(model.num_inputs):
        if model.input_info(i).dtype == capi.BFLOAT16:
            arrays[i] = (arrays[i].view(np.uint32) >> 16).astype(np.uint16)
    results = model.run_shifted(arrays, int(shift))
    widened = [(r.astype(np.uint32) << 16).view(np.float32) if dtype == capi.BFLOAT16 else r for dtype, r in results]
    np.savez(outputs, **{f"out_{i}": r for i, r in enumerate(widened)})


if __name__ == "__main__":
    main(*sys.argv[1:])
