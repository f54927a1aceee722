"""Runs in a process of its own, which has the environment of an emulated device: calls a package again and again, whose program keeps states and may
write to its inputs.

usage: emulated_states.py LIBRARY PACKAGE      a line of stdin for each call: INPUTS.npz RESULTS.npz; a line of stdout when it is done

An input with gaps comes as its memory, with places_{number}: its sizes and strides. RESULTS.npz gets out_{number}, or error, and after_{number}: the inputs after the call, of those with gaps all of their memory."""

import sys

import numpy as np

import capi
import emulated_call


def placed(file, i):
    """(memory, the array that lies there)"""
    memory = file[f"in_{i}"]
    if f"places_{i}" not in file:
        return memory, memory
    sizes, strides = file[f"places_{i}"]
    return memory, np.lib.stride_tricks.as_strided(memory, sizes, strides * memory.itemsize)


def results_of(model, given):
    """One call: {name: array}."""
    arrays = [array for _, array in given]
    inputs, outputs = model.bind(*arrays)
    for i, (array, _) in enumerate(given):
        inputs[i].data, inputs[i].device_type = model.upload(array, 0), emulated_call.CUDA
    found = {}
    try:
        model.check(model.lib.coil_run(model.context, inputs, len(arrays), outputs, model.num_outputs))
        model.check(model.lib.coil_synchronize(model.context))
        for i in range(model.num_outputs):
            found[f"out_{i}"] = downloaded(model, outputs[i])
    except capi.Error as error:
        found = {"error": np.array(str(error))}
    for i, (memory, array) in enumerate(given):
        found[f"after_{i}"] = downloaded(model, inputs[i]) if memory is array else taken(model, inputs[i].data, memory)
        model.lib.coil_free(model.model, inputs[i].data)
    return found


def downloaded(model, tensor):
    sizes, strides = model.layout(tensor)
    extent = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
    return model.download(tensor, np.empty(extent, capi.DTYPES[tensor.dtype]))


def taken(model, address, memory):
    found = np.empty_like(memory)
    model.check(model.lib.coil_copy_from_device(model.context, found.ctypes.data_as(capi.c_void_p), capi.c_void_p(address), capi.ctypes.c_size_t(found.nbytes)))
    return found


def main(library, package):
    model = emulated_call.DeviceModel(library, package)
    model.lib.coil_free.argtypes = [capi.c_void_p, capi.c_void_p]
    for line in sys.stdin:
        calls, results = line.split()
        with np.load(calls) as file:
            given = [placed(file, i) for i in range(model.num_inputs)]
        np.savez(results, **results_of(model, given))
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
