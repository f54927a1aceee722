"""Objects of wrong kinds at every argument of the public Python functions: each is an error with a name, or a good call; never a crash or a bug of coil's."""

import inspect
import os
import pathlib

import numpy as np
import pytest

import harness
import coil

torch = pytest.importorskip("torch")


class Hostile:
    """Whose methods fail, as those of any object may."""

    def __repr__(self):
        raise RuntimeError("no text")

    def __fspath__(self):
        return 7

    def __bool__(self):
        raise RuntimeError("neither")


class Endless(str):
    pass


WRONG = {
    "none": None, "number": 3, "negative": -1, "huge": 2**100, "float": 2.5, "nan": float("nan"), "true": True, "text": "?", "empty": "", "bytes": b"\xff\x00", "zero byte": "a\0b",
    "lone surrogate": "\ud800", "escaped byte": "\udcff", "list": [1, "x"], "tuple": (), "dict": {"x": 1}, "numbers as keys": {1: 2}, "set": {1}, "object": object(), "hostile": Hostile(),
    "class": int, "function": len, "array": np.zeros(3), "strided": memoryview(b"abcdef")[::2], "tensor": torch.zeros(2, 2), "path": pathlib.Path("/nonexistent/x"),
    "long": "x" * 100_000, "folder": "/", "subclass": Endless("cpu"), "range": range(3),
}


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) + self.count


@pytest.fixture(scope="module")
def small():
    x = torch.ones(3, 4)
    return torch.export.export(Small(), (x,)), x


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("arguments") / "small.coil.pt2"
    coil.compile(small[0], path)
    return path


def functions(program, x, package, folder):
    """(name, function, good arguments by name) of what is public and takes anything."""
    model = coil.load(package)
    state = model.new_state()
    profile = coil.profile(calls=1).start()
    profile.stop()
    module_options = dict(program=Small(), args=(x,))
    return [
        ("load", coil.load, {"path": package}),
        ("compile", coil.compile, {"program": program}),
        ("compile a module", coil.compile, module_options),
        ("Model.save", model.save, {"path": folder / "saved.pt2"}),
        ("Model[...]", model.__getitem__, {"program": model.program}),
        ("Model.profile", model.profile, {}),
        ("Model.load_constants", model.load_constants, {"tensors": {}}),
        ("Model.run_flat", model.run_flat, {"flat": [x]}),
        ("State.on", state.on, {"model": model}),
        ("State.restore", state.restore, {"saved": state.save()}),
        ("profile", coil.profile, {}),
        ("Profile.save", profile.save, {"path": folder / "trace.json"}),
        ("Profile.report", profile.report, {"path": folder / "page.html"}),
        ("do_bench", coil.do_bench, {"function": lambda: None, "warmup": 0, "rep": 0}),
        ("report", coil.report, {"path": folder / "page.html", "models": model}),
        ("register_kernel", coil.register_kernel, {"name": "test_arguments::f", "signature": "(Tensor x) -> Tensor", "cpu": "void f() {}", "range": "x.numel()"}),
        ("aoti_compile_and_package", coil.aoti_compile_and_package, {"exported_program": program, "package_path": folder / "aoti.pt2"}),
        ("aoti_load_package", coil.aoti_load_package, {"path": package}),
        ("explain", coil.explain, {"function": len}),
    ]


NAMES = ["load", "compile", "compile a module", "Model.save", "Model[...]", "Model.profile", "Model.load_constants", "Model.run_flat", "State.on", "State.restore", "profile", "Profile.save",
         "Profile.report", "do_bench", "report", "register_kernel", "aoti_compile_and_package", "aoti_load_package", "explain"]


def called(function, arguments):
    """Whether the call is fine; its error has a name otherwise."""
    parameters = inspect.signature(function).parameters
    first = [arguments.pop(n) for n, p in parameters.items() if p.kind == p.POSITIONAL_OR_KEYWORD and n in arguments]
    try:
        function(*first, **arguments)
    except coil.InternalError as error:
        pytest.fail(f"a bug in coil: {error}")
    except coil.Error as error:
        assert str(error).startswith("COIL-E"), error
        str(error).encode()
        return False
    except (TypeError, ValueError, OSError) as error:  # Python's own, of a caller's object
        assert "incompatible function arguments" not in str(error) and "std::bad_cast" not in str(error), error
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_objects_of_wrong_kinds(name, small, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = functions(*small, saved, tmp_path)
    assert [row[0] for row in rows] == NAMES
    _, function, good = rows[NAMES.index(name)]
    refused = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name == "compile a module" and parameter.name in ("program", "args", "kwargs", "dynamic_shapes"):
            continue  # (the latter are torch.export's own)
        for kind, value in WRONG.items():
            if name == "register_kernel":
                good = {**good, "name": f"test_arguments::f{abs(hash((parameter.name, kind)))}"}
            arguments = {**good, parameter.name: value}
            refused += not called(function, arguments)
    assert refused >= 5, "the values are not wrong"


@pytest.mark.parametrize("key", ["dims", "name", "replaceable_constants", "kernels", "warm", "opt_level", "threads", "skip", "dump", "record", "replay", "graphs", "tf32"])
def test_options_of_wrong_kinds(key, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, value in WRONG.items():
        if (key, kind) in (("dump", "text"), ("dump", "long")) or key == "threads" and kind == "huge":
            continue
        called(coil.compile, {"program": small[0], "options": {key: value}})


def test_wrong_tensors_in_calls(small, saved):
    model = coil.load(saved)
    for kind, value in WRONG.items():
        for arguments in ((value,), (value, value), ([value],), ({"x": value},)):
            try:
                model(*arguments)
            except (coil.Error, TypeError, ValueError, BufferError, AttributeError) as error:
                assert not isinstance(error, coil.InternalError) and "incompatible function" not in str(error), (kind, error)
    torch.testing.assert_close(coil.load(saved)(small[1]), Small.forward(restored(small[0]), small[1]), rtol=1e-5, atol=1e-5)


def restored(program):
    module = Small()
    module.load_state_dict(program.state_dict)
    return module


# ---- Names of files

ODD = {"bytes": b"\xff\xfe name", "text": "ünï ☃", "escapes": os.fsdecode(b"\x80\xc3("), "line feed": "a\nb", "escape": "a\x1b[31mb", "long": "n" * 200}


@pytest.mark.parametrize("kind", list(ODD))
def test_files_of_any_name(kind, small, tmp_path):
    """Each name that the system has works: as text with surrogate escapes, as bytes, and as a Path."""
    program, x = small
    name = os.fsencode(ODD[kind])
    source, package, copy = (os.path.join(os.fsencode(tmp_path), name + ending) for ending in (b".pt2", b".coil.pt2", b".copy.coil.pt2"))
    with open(source, "wb") as file:
        torch.export.save(program, file)
    expected = coil.compile(program)(x)
    for form in (os.fsdecode, pathlib.Path, os.fsencode):
        as_form = (lambda p: pathlib.Path(os.fsdecode(p))) if form is pathlib.Path else form
        if form is not os.fsencode:  # bytes are the program itself
            assert torch.equal(coil.compile(as_form(source), as_form(package))(x), expected)
        else:
            coil.compile(program, as_form(package))
        model = coil.load(as_form(package))
        assert torch.equal(model(x), expected)
        model.save(as_form(copy))
        assert model.package_bytes() == pathlib.Path(os.fsdecode(copy)).read_bytes()
        coil.report(as_form(os.path.join(os.fsencode(tmp_path), name + b".html")), model, x, calls=1)
        coil.compile({"one": program}, as_form(package))
        assert coil.load(as_form(package)).programs == ["one"]
    done = harness.coil("inspect", os.fsdecode(package))
    assert done.returncode == 0


@pytest.mark.parametrize("kind", list(ODD))
def test_missing_files_of_any_name(kind, tmp_path):
    name = os.path.join(os.fsencode(tmp_path), os.fsencode(ODD[kind]))
    for function in (coil.load, lambda p: coil.compile(os.fsdecode(p))):
        with pytest.raises(coil.MissingFileError) as raised:
            function(name)
        str(raised.value).encode()  # can be printed anywhere
        assert all(c.isprintable() or c == "\n" for c in str(raised.value))


# ---- Replaceable weights in a package's own files

def test_damaged_indices_of_weights(tmp_path, small):
    import json
    import random
    import zipfile

    module = torch.nn.Linear(4, 2)
    path = tmp_path / "m.coil.pt2"
    coil.compile(torch.export.export(module, (small[1],)), path, options={"replaceable_constants": True})
    with zipfile.ZipFile(path) as archive:
        entries = {i.filename: archive.read(i) for i in archive.infolist()}
    index = next(n for n in entries if n.endswith("coil/constants.json"))
    rows = json.loads(entries[index])
    chance = random.Random(3)
    wrong = [None, -1, 2**70, "x", [], {}, "float32", "load", [2**40, 2**40], 0.5, [True], "\ud800"]
    for number in range(60):
        made = json.loads(json.dumps(rows))
        row = chance.choice(made)
        if number < 6:
            made = [None, 3, {}, [3], made * 50, [[]]][number]
        else:
            row[chance.choice(list(row))] = chance.choice(wrong)
        broken = tmp_path / "broken.coil.pt2"
        with zipfile.ZipFile(broken, "w", zipfile.ZIP_DEFLATED if number % 7 == 0 else zipfile.ZIP_STORED) as archive:
            for name, content in entries.items():
                archive.writestr(name, json.dumps(made) if name == index else content)
        try:
            coil.load(broken)(small[1])
        except coil.InternalError as error:
            pytest.fail(str(error))
        except coil.Error:
            pass
