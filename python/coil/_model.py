"""Open packages as callables."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Sequence

from . import _runtime
from ._arguments import buffer_of, flag_of, listed, mapping_of, number_of, path_of, said, text_of
from ._constants import read_constants
from ._errors import InputError, make_error, option_error
from ._memory import with_free_memory
from ._profile import Profile
from ._report import ModelReport
from ._pytree import Spec
from ._strides import run_with_copies


@dataclasses.dataclass(frozen=True)
class Dim:
    """One dimension of an input or a result."""

    symbol: str | None
    """The name of a dynamic dimension ("batch"), an expression of such ("2*batch + 1"), or None when it is fixed."""
    min: int
    max: int | None
    """The largest size; None: no limit."""
    hint: int | None = None
    """The size in the example that the program was exported with, where it is known."""

    def __str__(self) -> str:
        return self.symbol if self.symbol is not None else str(self.min)


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """What a program takes or gives at one place."""

    name: str
    dtype: str
    """"float32", "bfloat16", ..."""
    dims: tuple[Dim, ...]
    number: str | None = None
    """"int", "float" or "bool" where the program takes or gives a Python number instead of a tensor."""
    mutated: bool = False
    """Whether the program writes to this input."""
    whole_storage: bool = False
    """Whether the program counts from the beginning of this input's storage (`as_strided` with an offset), where the tensor then has to begin."""
    exact_strides: bool = False
    """Whether the program counts in this input's memory (`as_strided`), so that a tensor with other strides is refused instead of copied."""

    @property
    def shape(self) -> tuple[int | str, ...]:
        """(“batch”, 3): fixed sizes as numbers, dynamic ones by name."""
        return tuple(d.min if d.symbol is None else d.symbol for d in self.dims)

    def __str__(self) -> str:
        return f"{self.name}: {self.number or f'{self.dtype}[' + ', '.join(map(str, self.dims)) + ']'}"


def _infos(rows: list) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name, dtype, tuple(Dim(*d) for d in dims), *rest) for name, dtype, dims, *rest in rows)


class Model:
    """A compiled program, ready to be called like the function that was exported.

    Arguments are nested as they were then, positional ones may be given by keyword; tensors are torch tensors, NumPy arrays or
    anything with `__dlpack__`, on the device that the model is on. Results are of the kind of the first tensor: torch tensors
    for a torch tensor. They have no gradients. A tensor whose strides are not those that the program was exported for is copied
    (refused where the program writes to it or counts in its memory by `as_strided`). Several threads may call one model at a time; the interpreter's lock is free while
    it computes. On CUDA with torch tensors a call enqueues its work on PyTorch's current stream and returns.

    Make one with `coil.compile` or `coil.load`.
    """

    def __init__(self, runtime: "_runtime.Model", path: str | None = None, package: Any = None, report: dict | None = None):
        self._runtime = runtime
        self._run = runtime.run
        self._path = path
        self._package = package
        self.report = ModelReport(self, report or {})
        """As a dict: what the compilation that made this model measured; empty for a loaded one. Called, `model.report("page.html", x)`:
        writes a page about calls with these arguments (times, graph, lines of the model, memory, code); see `coil.report`."""
        self.inputs: tuple[TensorInfo, ...] = _infos(runtime.inputs)
        """What the program takes, flattened. Arguments that the export fixed are not among them."""
        self.outputs: tuple[TensorInfo, ...] = _infos(runtime.outputs)
        """What the program gives, flattened, without those that are None."""
        self._fixed: dict[int, tuple[str, Any]] = runtime.fixed_inputs
        self._constants = read_constants(package if package is not None else path, runtime.device) if runtime.has_constants else None
        if self._constants is not None:
            if len(self._constants.rows) > len(self.inputs):
                raise make_error(301, f"COIL-E301: the package has {len(self._constants.rows)} replaceable weights, its program {len(self.inputs)} inputs")
            self._run = self._run_with_constants
            self.inputs = self.inputs[: len(self.inputs) - len(self._constants.rows)]
        self._prepare_call()

    def _run_with_constants(self, flat: Sequence[Any]) -> list:
        return self._runtime.run([*flat, *self._constants.active])  # type: ignore[union-attr]

    def _prepare_call(self) -> None:
        runtime = self._runtime
        names = runtime.argument_names
        self._in_spec = Spec(runtime.in_spec) if runtime.in_spec else None
        self._out_spec = Spec(runtime.out_spec) if runtime.out_spec else None
        places = runtime.output_places
        num_results = self._out_spec.num_leaves if self._out_spec else len(places)
        self._places = places if num_results != len(places) else None
        self._num_results = num_results
        self._numbers = [i for i, info in enumerate(self.outputs) if info.number]
        self._whole = [i for i, info in enumerate(self.inputs) if info.whole_storage]
        tree = self._in_spec.tree if self._in_spec else None
        positional = len(tree["children_spec"][0]["children_spec"]) if tree else len(self.inputs)
        self._num_positional = positional
        self._positional_names = names[:positional] if len(names) >= positional else []
        # The common call, f(x, y, ...) -> tensor or tuple of tensors, needs no flattening.
        leaf = lambda node: node["type"] is None  # noqa: E731
        self._plain = not self._fixed and (
            tree is None or (all(map(leaf, tree["children_spec"][0]["children_spec"])) and not tree["children_spec"][1]["children_spec"]))
        out = self._out_spec.tree if self._out_spec else None
        self._single = out is not None and leaf(out) and not self._numbers and len(places) == 1
        self._tuple = (out is None or (out["type"] == "builtins.tuple" and all(map(leaf, out["children_spec"])))) and not self._numbers \
            and self._places is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._run, args, kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a coil.Model is open code, of which there is no deep copy: coil.load(path) opens what model.save(path) wrote once more")

    def __getstate__(self) -> Any:
        raise TypeError("a coil.Model is open code and is not pickled: send the package that model.save(path) writes, and open it by coil.load(path)")

    def __copy__(self) -> "Model":
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _call(self, run: Any, args: tuple, kwargs: dict) -> Any:
        flat = args if self._plain and not kwargs else self._flatten(args, kwargs)
        if self._whole:
            self._check_storage(flat)
        try:
            outputs = run(flat)
        except InputError as error:
            if error.number != 205:
                raise
            outputs = run_with_copies(run, flat, self._may_copy, self._is_written)
        if self._single:
            return outputs[0]
        if self._tuple:
            return tuple(outputs)
        return self._nest(outputs)

    def _check_storage(self, flat: Sequence[Any]) -> None:
        for i in self._whole:
            offset = flat[i].storage_offset() if i < len(flat) and hasattr(flat[i], "storage_offset") else 0
            if offset:
                raise make_error(205, f"COIL-E205: input '{self.inputs[i].name}' begins at element {offset} of its storage, but the program counts from the storage's "
                                 "beginning (as_strided with an offset): pass a tensor that begins there", input=i)

    def _may_copy(self, index: int) -> bool:
        return index >= len(self.inputs) or not (self.inputs[index].mutated or self.inputs[index].exact_strides)

    def _is_written(self, index: int) -> bool:
        """And read and written by coordinates alone, not by addresses."""
        return index < len(self.inputs) and self.inputs[index].mutated and not self.inputs[index].exact_strides

    def _flatten(self, args: tuple, kwargs: dict) -> list:
        if self._in_spec is None:
            if kwargs:
                raise make_error(208, "COIL-E208: the package does not tell the names of its arguments; pass them by position")
            return list(args)
        names = self._positional_names
        if len(args) < len(names) and kwargs:
            moved = []
            kwargs = dict(kwargs)
            for name in names[len(args):]:
                if name not in kwargs:
                    break
                moved.append(kwargs.pop(name))
            args = args + tuple(moved)
        if len(args) != self._num_positional:
            raise make_error(201, f"COIL-E201: the call has {len(args)} positional arguments, the program takes {self._num_positional}"
                             + (f" ({', '.join(names)})" if names else ""))
        leaves = self._in_spec.flatten((args, kwargs))
        if not self._fixed:
            return leaves
        for position, (name, value) in self._fixed.items():
            _check_fixed(name, position, leaves[position], value)
        return [leaf for position, leaf in enumerate(leaves) if position not in self._fixed]

    def _nest(self, outputs: list) -> Any:
        for i in self._numbers:
            outputs[i] = outputs[i].item()
        if self._places is not None:
            results: list = [None] * self._num_results
            for place, output in zip(self._places, outputs):
                results[place] = output
            outputs = results
        return self._out_spec.unflatten(outputs) if self._out_spec else tuple(outputs)

    def run_flat(self, flat: Sequence[Any]) -> list:
        """Flat inputs to flat results, without nesting: None where the program gives None, numbers as 0-d tensors."""
        outputs = self._run(listed(flat, "flat"))
        if self._places is None:
            return outputs
        results: list = [None] * self._num_results
        for place, output in zip(self._places, outputs):
            results[place] = output
        return results

    def constant_names(self) -> list[str]:
        """The weights that `load_constants` can replace: those of a program compiled with {"replaceable_constants": True}."""
        return self._constants.names() if self._constants else []

    def load_constants(self, tensors: Mapping[str, Any], *, check_full_update: bool = False, user_managed: bool = False,
                       allow_h2d_copy: bool = False, inactive: bool = False) -> None:
        """Replaces weights by name, with tensors of the same dtype and sizes.

        `check_full_update`: all of them must be there. `user_managed`: the tensors themselves are used, not copies; they are
        contiguous and stay alive, and writing to them changes the model. `allow_h2d_copy`: tensors from elsewhere are copied to the
        model's device. `inactive`: into the second set, which `swap_constants` makes the first. Calls that run meanwhile end with
        the weights that they began with.
        """
        if self._constants is None:
            raise make_error(105, "COIL-E105: the weights were folded and packed when the program was compiled, and cannot be replaced\n"
                                  '  hint: compile it with options={"replaceable_constants": True}')
        self._constants.load(mapping_of(tensors, "tensors"), *(flag_of(value, name) for name, value in (
            ("check_full_update", check_full_update), ("user_managed", user_managed), ("allow_h2d_copy", allow_h2d_copy), ("inactive", inactive))))

    def swap_constants(self) -> None:
        """Exchanges the weights that calls use with the second set."""
        if self._constants is not None:
            self._constants.swap()

    def package_bytes(self) -> bytes:
        """The package itself."""
        if self._package is not None:
            return bytes(self._package)
        with open(self._path, "rb") as file:  # type: ignore[arg-type]
            return file.read()

    def __getitem__(self, program: str) -> "Model":
        """Another program of the same package, by its name: the weights are in memory once. COIL-E402 where there is none of it."""
        runtime = self._runtime.open_program(text_of(program, "program"))
        return Model(runtime, path=self._path, package=self._package)

    @property
    def programs(self) -> list[str]:
        """What the package calls its programs; ["model"] where there is one without a name."""
        return self._runtime.programs

    @property
    def program(self) -> str:
        """Which of them this is."""
        return self._runtime.program

    def save(self, path: str | os.PathLike) -> None:
        """Writes the package, for `coil.load`, `coil run`, the C library, or `torch._inductor.aoti_load_package`.

        The file appears whole or not at all. A link is written through; an existing file keeps its mode."""
        self._runtime.save(path_of(path, "path"))

    def synchronize(self) -> None:
        """On CUDA: waits for the calls so far, and raises what their kernels found at fault. Nothing on the CPU."""
        self._runtime.synchronize()

    def profile(self, *, calls: int = 0, counters: bool = False, all_calls: bool = False) -> Profile:
        """Records the calls within a `with` statement, kernel by kernel; see `coil.Profile`. `calls`: no more than so many; 0: all.
        `counters`: the processor's cycles, instructions and cache misses too, where the system gives them. `all_calls`: leaves out none of
        many very short calls."""
        return Profile(self._runtime, number_of(calls, "calls"), flag_of(counters, "counters"), flag_of(all_calls, "all_calls"))

    def new_state(self) -> "State":
        """A state of its own (counters, caches), as the exported program begins with it: call it like the model."""
        return State(self, self._runtime.new_state())

    @property
    def state_bytes(self) -> int:
        """Bytes of a state when all of it is in use; 0: the program keeps none."""
        return self._runtime.state_bytes

    def reset_state(self) -> None:
        """Puts mutated buffers (counters, caches) back to what they were in the exported program."""
        self._runtime.reset_state()

    @property
    def name(self) -> str:
        """The package's name."""
        return self._runtime.name

    @property
    def device(self) -> str:
        """"cpu" or "cuda:0"."""
        return self._runtime.device

    @property
    def isa(self) -> str:
        """The code that was chosen for this machine: "x86-64-v4", "sm_90"."""
        return self._runtime.isa

    @property
    def num_threads(self) -> int:
        """Threads that a call may use."""
        return self._runtime.threads

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"<coil.Model {self.name!r} on {self.device} ({self.isa}): ({takes}) -> ({gives})>"


class State:
    """What a model changes from call to call, such as the caches of one conversation; the model's code and weights are shared.

    Called like the model, it reads and changes this state; calls on one state take turns, those on different states run side by side. On the CPU a
    state takes the memory that has been written to, by pages. Made by `Model.new_state`.
    """

    def __init__(self, model: Model, state: "_runtime.State"):
        self.model = model
        self._state = state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model._call(self._run, args, kwargs)

    def _run(self, flat: Sequence[Any]) -> list:
        constants = self.model._constants
        return self.model._runtime.run([*flat, *constants.active] if constants is not None else flat, self._state)

    def fork(self) -> "State":
        """A state of its own with the same contents."""
        return State(self.model, self._state.fork())

    def on(self, model: Model) -> "State":
        """The same state, called with another program of the package. COIL-E213 at the call where that program keeps another one."""
        if not isinstance(model, Model):
            raise option_error(f"'model' is {said(model)}", "a coil.Model")
        return State(model, self._state)

    def reset(self) -> None:
        """Back to what the exported program begins with."""
        self._state.reset()

    def save(self) -> bytes:
        """The contents, without what is zero, for `restore` in any process that has loaded the same package on the same kind of device."""
        return self._state.save()

    def restore(self, saved: Any) -> None:
        """Puts the state to what `save` gave. Raises COIL-E213 for damaged bytes and those of another model; then nothing changes."""
        self._state.restore(buffer_of(saved, "saved"))


def _check_fixed(name: str, position: int, found: Any, wanted: Any) -> None:
    same = type(found) is type(wanted) and found == wanted or (isinstance(wanted, float) and isinstance(found, (int, float)) and found == wanted)
    if not same:
        raise make_error(210, f"COIL-E210: input '{name}' (in_{position}) is {found!r}, but the export fixed it to {wanted!r}\n"
                              "  hint: leave it as it was, or export the program again with the other value")


def load(path: str | os.PathLike, device: Any = None, *, num_threads: int = 0, verify: bool = False, program: str = "") -> Model:
    """Opens a package that coil compiled.

    `device`: "cpu", "cuda", "cuda:1" (or a torch.device); None: the first of the package's targets that this machine can run.
    `num_threads`: of a call; 0: what this process may use, in a pool that all models share.
    `verify`: compare the weights with their checksum, which reads all of them (code always is, and weights up to 64 KiB).
    `program`: of a package of several, by its name; "": the first one. `model["decode"]` is another one of the same package.
    """
    path = path_of(path, "path")
    runtime = with_free_memory(_runtime.Model.open, path, _device_text(device), number_of(num_threads, "num_threads"), flag_of(verify, "verify"), text_of(program, "program"))
    return Model(runtime, path=path)


def _device_text(device: Any) -> str:
    if device is None:
        return ""
    text = device if isinstance(device, str) else str(device) if type(device).__module__ == "torch" else said(device)
    kind, colon, number = text.partition(":")
    if kind not in ("cpu", "cuda") or colon and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise option_error(f"there is no device {said(text)}", "devices: cpu, cuda, cuda:1, ...")
    return text
