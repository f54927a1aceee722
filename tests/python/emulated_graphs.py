"""Runs in a process of its own, which has the environment of an emulated device: many calls of a package, with contents, addresses and
sizes that change from call to call, in an order that has runs of the same. Prints as JSON a digest of each call's outputs, and how the
fake driver was called.

usage: emulated_graphs.py LIBRARY PACKAGE INPUTS.npz...        each file: inputs of one size
"""

import ctypes
import hashlib
import json
import os
import sys
from ctypes import c_int32, c_int64, c_void_p

import numpy as np

import capi
from emulated_call import CUDA, DeviceModel


class Counts(ctypes.Structure):
    _fields_ = [*((n, c_int64) for n in ("device_bytes", "host_bytes", "allocations", "launches", "pending")), *((n, c_int32) for n in ("modules", "contexts", "events", "streams")),
                ("graph_launches", c_int64), ("changed_nodes", c_int64), ("graphs", c_int32), ("executables", c_int32), ("early_starts", c_int64)]


class Place:
    """Memory of the device for the inputs of one size."""

    def __init__(self, model, arrays):
        self.model = model
        self.inputs, self.outputs = model.bind(*arrays)
        for i, array in enumerate(arrays):
            if model.input_info(i).device_type == CUDA:
                self.inputs[i].data, self.inputs[i].device_type = model.alloc(array.size, array.itemsize, 0), CUDA

    def call(self, arrays):
        model = self.model
        for i, array in enumerate(arrays):
            if self.inputs[i].device_type == CUDA and array.size:
                model.check(model.lib.coil_copy_to_device(model.context, c_void_p(self.inputs[i].data), array.ctypes.data_as(c_void_p), ctypes.c_size_t(array.nbytes)))
        model.call(self.inputs, self.outputs, len(arrays))
        model.check(model.lib.coil_synchronize(model.context))
        return [np.ascontiguousarray(model.array(self.outputs[i])) for i in range(model.num_outputs)]  # the fake device's memory is the CPU's


def digest(arrays):
    text = hashlib.sha256()
    for array in arrays:
        text.update(array.tobytes())
    return text.hexdigest()[:16]


def inputs_of(model, path, n):
    """The file's arrays, the floats among them a little different for each n."""
    with np.load(path) as file:
        arrays = [np.ascontiguousarray(file[f"in_{i}"]) for i in range(model.num_inputs)]
    arrays = [a * (1 + n / 8) if a.dtype == np.float32 else a for a in arrays]
    arrays = [a.astype(np.float32) if a.dtype == np.float64 and model.input_info(i).dtype == 6 else a for i, a in enumerate(arrays)]
    for i in range(model.num_inputs):
        if model.input_info(i).dtype == capi.BFLOAT16:
            arrays[i] = (arrays[i].astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return arrays


def main(library, package, *paths):
    model = DeviceModel(library, package)
    places = {path: [Place(model, inputs_of(model, path, 0)) for _ in range(2)] for path in paths}
    digests = []
    for n in range(3):
        for path in paths:
            for turn in (0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0):
                digests.append(digest(places[path][turn].call(inputs_of(model, path, n))))
    for path in paths * 2:
        digests.append(digest(places[path][1].call(inputs_of(model, path, 1))))
    counts = Counts()
    ctypes.CDLL(os.environ["COIL_CUDA_DRIVER"]).fake_cuda_counts(ctypes.byref(counts))
    print(json.dumps({"digests": digests, **{name: getattr(counts, name) for name, _ in Counts._fields_}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
