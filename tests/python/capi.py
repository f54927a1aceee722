"""include/coil/coil.h through ctypes and numpy: for tests and measurements."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_void_p

import numpy as np

DTYPES = {0: np.uint8, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64, 5: np.float16, 6: np.float32, 7: np.float64, 11: np.bool_, 15: np.uint16}
NUMBERS = {np.dtype(v): k for k, v in DTYPES.items() if k != 15}
BFLOAT16 = 15


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("sizes", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("rank", c_int32), ("dtype", c_int32),
                ("device_type", c_int32), ("device_index", c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint32), ("num_threads", c_int32), ("parallel_for", c_void_p), ("pool", c_void_p)]


class Dim(ctypes.Structure):
    _fields_ = [("min", c_int64), ("max", c_int64), ("symbol", c_char_p), ("hint", c_int64)]


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int32), ("rank", c_int32), ("dims", POINTER(Dim)), ("device_type", c_int32)]


class Memory(ctypes.Structure):
    _fields_ = [("arena_bytes", c_int64), ("output_bytes", c_int64), ("constant_bytes", c_int64), ("state_bytes", c_int64)]


class Error(RuntimeError):
    pass


class Model:
    """A package, with one context. Arrays of uint16 stand for bfloat16 where the model wants that."""

    def __init__(self, library, package, threads=0):
        self.lib = ctypes.CDLL(str(library))
        self.lib.coil_last_error.restype = c_char_p
        self.model, self.context = c_void_p(), c_void_p()
        options = Options(ctypes.sizeof(Options), threads, None, None)
        self.check(self.lib.coil_open(str(package).encode(), byref(options), byref(self.model)))
        self.check(self.lib.coil_context_create(self.model, byref(self.context)))
        self.num_inputs, self.num_outputs = self.lib.coil_num_inputs(self.model), self.lib.coil_num_outputs(self.model)

    def check(self, status):
        if status:
            raise Error(self.lib.coil_last_error().decode())

    def input_info(self, i):
        info = Info()
        self.check(self.lib.coil_input_info(self.model, i, byref(info)))
        return info

    def input_name(self, i):
        return self.input_info(i).name.decode()

    def bind(self, *arrays):
        """(inputs, outputs) as C arrays; the inputs keep the numpy arrays alive."""
        inputs = (Tensor * max(1, len(arrays)))()
        inputs.keep = arrays
        for i, array in enumerate(arrays):
            wanted = self.input_info(i).dtype if i < self.num_inputs else None
            number = BFLOAT16 if wanted == BFLOAT16 and array.dtype == np.uint16 else NUMBERS[array.dtype]
            sizes = (c_int64 * max(1, array.ndim))(*array.shape)
            strides = (c_int64 * max(1, array.ndim))(*(s // array.itemsize for s in array.strides))
            inputs[i] = Tensor(array.ctypes.data, sizes, strides, array.ndim, number, 0, 0)
        return inputs, (Tensor * max(1, self.num_outputs))()

    def call(self, inputs, outputs, count):
        """One call with what bind made; the context gives the outputs memory, valid until its next call."""
        for i in range(self.num_outputs):
            outputs[i].data = None
        if self.lib.coil_run(self.context, inputs, count, outputs, self.num_outputs):
            raise Error(self.lib.coil_last_error().decode())

    def run(self, *arrays):
        """Copies of the outputs."""
        inputs, outputs = self.bind(*arrays)
        self.call(inputs, outputs, len(arrays))
        return [self.array(outputs[i]) for i in range(self.num_outputs)]

    @staticmethod
    def array(tensor):
        dtype = np.dtype(DTYPES[tensor.dtype])
        sizes, strides = tensor.sizes[: tensor.rank], tensor.strides[: tensor.rank] if tensor.strides else None
        if 0 in sizes:
            return np.empty(sizes, dtype)
        extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if strides else int(np.prod(sizes))
        flat = np.frombuffer((ctypes.c_char * (extent * dtype.itemsize)).from_address(tensor.data), dtype)
        steps = [s * dtype.itemsize for s in strides] if strides else None
        return np.ndarray(sizes, dtype, flat, strides=steps).copy()

    def memory(self):
        memory = Memory()
        self.check(self.lib.coil_memory_of_run(self.context, byref(memory)))
        return memory

    def close(self):
        self.lib.coil_context_destroy(self.context)
        self.lib.coil_close(self.model)
