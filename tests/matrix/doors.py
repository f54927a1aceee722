"""How a subject is called: by eager, and through each door. Each caller is a function of a set of arguments that gives a list of tensors."""

import contextlib
import copy
import functools
import pathlib
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

SEED = 1234


def tensors_of(value):
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def cast_of(dtype, device="cpu"):
    return torch.autocast(device, torch.bfloat16) if dtype == "autocast" else contextlib.nullcontext()


def _weights(outputs):
    """What the results are multiplied with in the loss whose gradients are compared: seeded, of each one's type."""
    source = torch.Generator().manual_seed(SEED)
    return [torch.randn(o.shape, generator=source, dtype=torch.float64).div(max(o.numel(), 1) ** 0.5).to(o.dtype).to(o.device) for o in outputs]


def differentiable(outputs):
    return [o for o in outputs if o.requires_grad and o.is_floating_point()]


def call(forward, module, args, kwargs, dtype, direction, device="cpu"):
    """Results of a forward call; or gradients of parameters and floating arguments, the results in front."""
    torch.manual_seed(SEED)
    if direction == "forward":
        with torch.no_grad(), cast_of(dtype, device):
            return [t.detach().clone() for t in tensors_of(forward(*args, **kwargs))]
    leaves = []

    def leaf(v):
        if isinstance(v, torch.Tensor) and v.is_floating_point():
            v = v.detach().clone().requires_grad_()
            leaves.append(v)
        return v

    args, kwargs = tree_map(leaf, args), tree_map(leaf, kwargs)
    with cast_of(dtype, device):
        outputs = differentiable(tensors_of(forward(*args, **kwargs)))
    wanted = [p for p in module.parameters() if p.requires_grad] + leaves
    if not outputs or not wanted:
        return None
    found = torch.autograd.grad(outputs, wanted, _weights(outputs), allow_unused=True)
    return [g for g in found if g is not None]


def fresh(value):
    return tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, value)


def eager(module, sets, dtype, direction, device="cpu"):
    """One list of tensors for each set; None: nothing to differentiate."""
    module = copy.deepcopy(module)
    return [call(module, module, *fresh(s), dtype, direction, device) for s in sets]


class InFloat64(TorchDispatchMode):
    """What a program asks to be of fewer bits (`x.float()`) is float64: else its result in float64 would have eager's own roundings."""

    WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **{k: self.WIDE.get(v, v) if isinstance(v, torch.dtype) else v for k, v in (kwargs or {}).items()})


def exact(module, sets, direction, device="cpu"):
    """Eager's results in float64, of a module and arguments that are in it."""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with InFloat64():
            return eager(module, sets, "float64", direction, device)
    finally:
        torch.set_default_dtype(default)


LAST_BIT = {"float32": 2.0 ** -23, "float16": 2.0 ** -10, "bfloat16": 2.0 ** -7, "autocast": 2.0 ** -7}


def nudged(module, sets, dtype, seed):
    """The module and its arguments, every number of parameters and arguments moved by about a unit in its last place."""
    source = torch.Generator().manual_seed(seed)

    def nudge(v):
        if not isinstance(v, torch.Tensor) or not v.is_floating_point():
            return v
        step = torch.rand(v.shape, generator=source, dtype=torch.float64).mul(2).sub(1).mul(LAST_BIT[dtype]).add(1).to(v.device)
        return torch.empty_like(v, requires_grad=False).copy_(v.detach().double() * step)

    module = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.copy_(nudge(parameter))
    return module, [tree_map(nudge, s) for s in sets]


class Flat(nn.Module):
    """A module of the tensors among its arguments, for AOTAutograd: the loss first, which the gradients are of."""

    def __init__(self, module, args, kwargs, dtype, device="cpu"):
        super().__init__()
        self.module, self.dtype, self.device = module, dtype, device
        leaves, self.spec = tree_flatten((args, kwargs))
        self.plain = [None if isinstance(v, torch.Tensor) else (v,) for v in leaves]
        tensors = [v.detach().clone().requires_grad_(v.is_floating_point()) for v in leaves if isinstance(v, torch.Tensor)]
        for i, weight in enumerate(_weights(self.outputs(copy.deepcopy(module), tensors))):
            self.register_buffer(f"weight_{i}", weight)

    def outputs(self, module, tensors):
        rest = iter(tensors)
        args, kwargs = tree_unflatten([next(rest) if p is None else p[0] for p in self.plain], self.spec)
        with cast_of(self.dtype, self.device):
            return differentiable(tensors_of(module(*args, **kwargs)))

    def forward(self, *tensors):
        found = self.outputs(self.module, tensors)
        return (sum((o * getattr(self, f"weight_{i}")).sum().double() for i, o in enumerate(found)).float(),)


def joint_program(module, args, kwargs, dtype, device="cpu"):
    """(exported program of the loss and its gradients, its arguments, function of its results that gives the gradients)."""
    from torch._functorch.aot_autograd import aot_export_module

    module = copy.deepcopy(module)
    flat = Flat(module, args, kwargs, dtype, device)
    tensors = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors_of((args, kwargs))]
    torch.manual_seed(SEED)
    graph, signature = aot_export_module(flat, tensors, trace_joint=True, output_loss_index=0, decompositions=torch._decomp.core_aten_decompositions())
    names = {**{n: p for n, p in flat.named_parameters(remove_duplicate=False)}, **dict(flat.named_buffers(remove_duplicate=False))}
    state = [names[n] for n in [*signature.inputs_to_parameters.values(), *signature.inputs_to_buffers.values()]]
    given = tuple(t.detach() for t in [*state, *tensors])
    outputs = list(tree_leaves(next(n for n in graph.graph.nodes if n.op == "output").args))
    places = {getattr(o, "name", None): i for i, o in enumerate(outputs)}
    backward = signature.backward_signature
    by_parameter = {p: places[o] for o, p in backward.gradients_to_parameters.items()}
    by_input = {i: places[o] for o, i in backward.gradients_to_user_inputs.items()}
    wanted = [by_parameter.get(n) for n, p in flat.named_parameters() if p.requires_grad]
    wanted += [by_input.get(i) for i, t in zip(signature.user_inputs, tensors) if t.requires_grad]
    wanted = [w for w in wanted if w is not None]
    with torch.no_grad():
        program = torch.export.export(graph, given, strict=False)
    return program, given, lambda results: [results[w] for w in wanted]


def in_autocast(module, device):
    """A copy of the module whose forward is a region of autocast, with the same signature."""
    module, kind = copy.deepcopy(module), type(module)

    @functools.wraps(kind.forward)
    def forward(self, *args, **kwargs):
        with cast_of("autocast", device):
            return kind.forward(self, *args, **kwargs)

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return module


class Exported:
    """A subject exported in a type and a direction. `call(run, set)`: through a function of the program's arguments."""

    def __init__(self, module, sets, dtype, direction, dynamic, device="cpu"):
        self.pick, self.direction = list, direction
        args, kwargs = fresh(sets[0])
        if direction == "gradients":
            self.program, self.given, self.pick = joint_program(module, args, kwargs, dtype, device)
            return
        module = in_autocast(module, device) if dtype == "autocast" else copy.deepcopy(module)
        shapes = dynamic
        if isinstance(dynamic, tuple) and len(dynamic) == 2 and isinstance(dynamic[1], dict):
            shapes = self._by_name(module, args, kwargs, dynamic)
        with torch.no_grad():
            self.program = torch.export.export(module, args, kwargs or None, dynamic_shapes=shapes, strict=False)
            if dtype == "autocast":  # the casts are written out
                self.program = self.program.run_decompositions({})

    @staticmethod
    def _by_name(module, args, kwargs, dynamic):
        """torch.export wants {name: shapes}, or a tuple where the arguments are positional only."""
        if not kwargs:
            import inspect

            kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
            return (tuple(dynamic[0]),) if kinds and kinds[0] == inspect.Parameter.VAR_POSITIONAL else tuple(dynamic[0])
        import inspect

        names = list(inspect.signature(module.forward).parameters)
        return {**dict(zip(names, dynamic[0])), **dynamic[1]}

    def has_symbols(self):
        return any(isinstance(size, torch.SymInt) for node in self.program.graph.nodes if node.op == "placeholder"
                   for size in getattr(node.meta.get("val"), "shape", ()))

    def call(self, run, args, kwargs):
        torch.manual_seed(SEED)
        with torch.no_grad():
            if self.direction == "gradients":
                return self.pick(tensors_of(run(*fresh(self.given))))
            args, kwargs = fresh((args, kwargs))
            return tensors_of(run(*args, **kwargs))


def stock(package):
    """The package in stock PyTorch."""
    with tempfile.TemporaryDirectory(prefix="coil-matrix-") as folder:
        path = pathlib.Path(folder) / "model.pt2"
        package.save(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch._inductor.aoti_load_package(str(path))


def emulated(exported, sets, folder):
    """The results of each set by the kernels for CUDA, emulated on the CPU: a list of lists of arrays, or a finished process that failed."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    import emulated_cuda
    import numpy as np
    import zoo

    path, folder = pathlib.Path(folder) / "model.pt2", pathlib.Path(folder)
    torch.export.save(exported.program, path)
    model = emulated_cuda.Emulated(path, folder, 90)
    if model.compiled.returncode:
        return model.compiled, None
    found = []
    for args, kwargs in sets:
        leaves = exported.given if exported.direction == "gradients" else tree_leaves((args, kwargs))
        np.savez(folder / "in.npz", **{f"in_{i}": np.array(zoo.widen(v), order="K") for i, v in enumerate(leaves) if not isinstance(v, str)})
        done, outputs = model.run(folder / "in.npz")
        if done.returncode:
            return done, None
        found.append(exported.pick([torch.from_numpy(np.ascontiguousarray(o)) for o in outputs]))
    return model.compiled, found
