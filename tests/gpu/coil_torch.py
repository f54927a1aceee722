"""include/coil/coil.h through ctypes on torch tensors of the CPU or of a CUDA device: for the tests and benches with a GPU."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_void_p

import torch

DTYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
          7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
TYPESTR = {0: "|u1", 1: "|i1", 2: "<i2", 3: "<i4", 4: "<i8", 5: "<f2", 6: "<f4", 7: "<f8", 9: "<c8", 10: "<c16", 11: "|b1", 15: "<i2"}
CPU, CUDA = 0, 1


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("sizes", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("rank", c_int32), ("dtype", c_int32),
                ("device_type", c_int32), ("device_index", c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint32), ("num_threads", c_int32), ("parallel_for", c_void_p), ("pool", c_void_p), ("device", c_char_p)]


class Dim(ctypes.Structure):
    _fields_ = [("min", c_int64), ("max", c_int64), ("symbol", c_char_p), ("hint", c_int64)]


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int32), ("rank", c_int32), ("dims", POINTER(Dim)), ("device_type", c_int32)]


class Memory(ctypes.Structure):
    _fields_ = [("arena_bytes", c_int64), ("output_bytes", c_int64), ("constant_bytes", c_int64), ("state_bytes", c_int64)]


class Error(RuntimeError):
    """code is the number of a COIL-Exxx code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def library(path):
    lib = ctypes.CDLL(str(path))
    for name in ("coil_last_error", "coil_isa", "coil_version"):
        getattr(lib, name).restype = c_char_p
    lib.coil_close.argtypes = lib.coil_context_destroy.argtypes = [c_void_p]
    lib.coil_run_on.argtypes = [c_void_p, c_void_p, POINTER(Tensor), c_int32, POINTER(Tensor), c_int32]
    lib.coil_free.argtypes = [c_void_p, c_void_p]
    return lib


class Shared:
    """A memory range on a CUDA device as torch takes it over without a copy."""

    def __init__(self, address, sizes, strides, typestr):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": sizes, "strides": strides, "typestr": typestr, "version": 2}


def contiguous(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def layout(tensor):
    """(sizes, strides) of a coil_tensor."""
    sizes = list(tensor.sizes[: tensor.rank]) if tensor.rank else []
    return sizes, list(tensor.strides[: tensor.rank]) if tensor.rank and tensor.strides else contiguous(sizes)


def view(tensor):
    """A torch tensor over the memory of a coil_tensor; valid as long as that memory is."""
    dtype, (sizes, strides) = DTYPES[tensor.dtype], layout(tensor)
    device = f"cuda:{tensor.device_index}" if tensor.device_type == CUDA else "cpu"
    if 0 in sizes:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    if tensor.device_type == CUDA:
        shared = Shared(tensor.data, tuple(sizes), tuple(s * dtype.itemsize for s in strides), TYPESTR[tensor.dtype])
        return torch.as_tensor(shared, device=device).view(dtype)
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
    memory = (ctypes.c_char * (extent * dtype.itemsize)).from_address(tensor.data)
    return torch.frombuffer(memory, dtype=dtype).as_strided(sizes, strides)


class Call:
    """Arguments of coil_run for a list of torch tensors, which it keeps alive. The C structs are made once: calls cost little."""

    def __init__(self, tensors, num_outputs):
        self.keep, self.count = list(tensors), len(tensors)
        self.inputs = (Tensor * max(1, self.count))()
        for slot, tensor in zip(self.inputs, tensors):
            self.fill(slot, tensor)
        self.num_outputs = num_outputs
        self.outputs = (Tensor * max(1, num_outputs))()
        self.owned = None

    @staticmethod
    def fill(slot, tensor):
        rank = tensor.dim()
        slot.data = tensor.data_ptr() or None
        slot.sizes = (c_int64 * max(1, rank))(*tensor.shape)
        slot.strides = (c_int64 * max(1, rank))(*tensor.stride())
        slot.rank, slot.dtype = rank, NUMBERS[tensor.dtype]
        slot.device_type = CUDA if tensor.is_cuda else CPU
        slot.device_index = tensor.device.index or 0 if tensor.is_cuda else 0

    def into(self, tensors):
        """Results go to these tensors instead of the context's memory."""
        self.owned = list(tensors)
        for slot, tensor in zip(self.outputs, tensors):
            self.fill(slot, tensor)


class Model:
    """A package on a device ("cpu", "cuda:0", None: the package's first), with one context."""

    def __init__(self, lib, package, device=None, threads=0):
        self.lib, self.model, self.context = lib, c_void_p(), c_void_p()
        options = Options(ctypes.sizeof(Options), threads, None, None, device.encode() if device else None)
        self.check(lib.coil_open(str(package).encode(), byref(options), byref(self.model)))
        self.context = self.new_context()
        self.num_inputs, self.num_outputs = lib.coil_num_inputs(self.model), lib.coil_num_outputs(self.model)
        self.on_cuda = lib.coil_model_device_type(self.model) == CUDA

    def new_context(self):
        context = c_void_p()
        self.check(self.lib.coil_context_create(self.model, byref(context)))
        return context

    def check(self, code):
        if code:
            raise Error(code, self.lib.coil_last_error().decode(errors="replace"))

    def info(self, i, output=False):
        info = Info()
        self.check((self.lib.coil_output_info if output else self.lib.coil_input_info)(self.model, i, byref(info)))
        return info

    def isa(self):
        return self.lib.coil_isa(self.model).decode()

    def stream(self):
        return torch.cuda.current_stream().cuda_stream or None if self.on_cuda else None

    def bind(self, tensors):
        return Call(tensors, self.num_outputs)

    def call(self, call, context=None):
        """Checks and enqueues on torch's current stream; the outputs are in call.outputs."""
        if call.owned is None:
            for slot in call.outputs[: call.num_outputs]:
                slot.data = None
        self.check(self.lib.coil_run_on(context or self.context, self.stream(), call.inputs, call.count, call.outputs, call.num_outputs))

    def results(self, call):
        """The outputs of the last call; those in the context's memory are valid until its next call."""
        return call.owned if call.owned is not None else [view(call.outputs[i]) for i in range(call.num_outputs)]

    def synchronize(self, context=None):
        self.check(self.lib.coil_synchronize(context or self.context))

    def run(self, tensors):
        """Calls, waits, returns copies of the outputs."""
        call = self.bind(tensors)
        self.call(call)
        self.synchronize()
        return [t.clone() for t in self.results(call)]

    def empty_outputs(self, tensors):
        """Torch tensors, filled with garbage, of the layouts that coil_infer tells."""
        call = self.bind(tensors)
        self.check(self.lib.coil_infer(self.context, call.inputs, call.count, call.outputs, call.num_outputs))
        result = []
        for i in range(self.num_outputs):
            (sizes, strides), dtype = layout(call.outputs[i]), DTYPES[call.outputs[i].dtype]
            device = f"cuda:{call.outputs[i].device_index}" if call.outputs[i].device_type == CUDA else "cpu"
            extent = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
            garbage = torch.full((extent * dtype.itemsize,), 0xAB if dtype != torch.bool else 1, dtype=torch.uint8, device=device)
            result.append(garbage.view(dtype).as_strided(sizes, strides))
        return result

    def reset_state(self):
        self.check(self.lib.coil_reset_state(self.model))

    def memory(self):
        memory = Memory()
        self.check(self.lib.coil_memory_of_run(self.context, byref(memory)))
        return {name: getattr(memory, name) for name, _ in Memory._fields_}

    def close(self):
        if self.context:
            self.lib.coil_context_destroy(self.context)
        if self.model:
            self.lib.coil_close(self.model)
        self.context = self.model = None
