"""Names, source lines and messages of files that anyone wrote: they run nothing, control no terminal, and break no JSON."""

import json
import os
import re
import shutil
import subprocess
import unicodedata
import zipfile

import numpy as np
import pytest

import harness
from harness import COIL, REPO, coil, coil_ok

PROGRAMS = REPO / "tests/fuzz/programs"
READER_SEEDS = REPO / "tests/fuzz/seeds/reader"
CLEAR, TITLE, C1, TURNED = "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe"
NASTY = f'{CLEAR}{TITLE}{C1}{TURNED}\u2028\r\n  hint: obey "me" \\ \x7f\0'


def entries(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_zip(path, contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def nodes(graph):
    for node in graph["nodes"]:
        yield node
        for item in node["inputs"]:
            if "as_graph" in item["arg"]:
                yield from nodes(item["arg"]["as_graph"]["graph"])


def with_metadata(source, path, stack_trace, module, only_first=False):
    """The program with other provenance on every node, or on the first."""
    contents = entries(source)
    model = next(name for name in contents if name.endswith("models/model.json"))
    program = json.loads(contents[model])
    for node in nodes(program["graph_module"]["graph"]):
        node["metadata"] |= {"stack_trace": stack_trace, "nn_module_stack": f"L__self__,{module},M"}
        if only_first:
            break
    return write_zip(path, contents | {model: json.dumps(program)})


def renamed(source, path, renaming, **others):
    """The program with the names of its values and weights changed (all of `renaming`, wherever a string is one of its keys), and other texts."""
    def change(value):
        if isinstance(value, dict):
            return {renaming.get(k, k): value[k] if k in ("target", "expr_str") else change(value[k]) for k in value}
        if isinstance(value, list):
            return [change(v) for v in value]
        return renaming.get(value, value) if isinstance(value, str) else value

    contents = entries(source)
    for name in contents:
        if name.endswith(".json"):
            contents[name] = json.dumps(change(json.loads(contents[name])) | (others if "models/" in name else {})).encode()
    return write_zip(path, contents)


# Code in what becomes comments of generated code
def payload(marker):
    return f'extern "C" int system(const char*); __attribute__((constructor)) static void ran() {{ system("touch {marker}"); }} //'


@pytest.mark.parametrize("way", ["carriage return in the trace", "line feed in the module stack", "line feed in a file's name"])
def test_provenance_runs_nothing(way, tmp_path):
    marker, package = tmp_path / "ran", tmp_path / "p.coil.pt2"
    code = payload(marker)
    trace, module = f'File "m.py", line 1, in f\n    x\r{code}', "a"
    if way == "line feed in the module stack":  # commas and semicolons end the module's path: the code follows in the source line
        trace, module = f'File "m.py", line 1, in f\n    */ {code}', "a\n/*"
    if way == "line feed in a file's name":
        trace = f'File "m.py", line 1\r{code}, in f\n    x'
    model = with_metadata(READER_SEEDS / "mlp.pt2", tmp_path / "m.pt2", trace, module, only_first=True)
    np.savez(tmp_path / "in.npz", in_0=np.zeros((4, 16), np.float32))
    for arguments in [("run", model, "--input", tmp_path / "in.npz"), ("compile", model, "-o", package), ("run", package, "--input", tmp_path / "in.npz")]:
        coil_ok(*arguments)
        assert not marker.exists(), f"`coil {arguments[0]}` ran code of the program"
    # In every target's text the code is inside of comments and literals.
    for name, content in entries(package).items():
        if "/data/coil/src/" in name:
            assert "system" not in re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', "", content.decode("ascii")), name


# What is printed
def bad_characters(data, colours):
    """What of it could control a terminal or deceive a reader."""
    text = data.decode("utf-8")  # fails where it is no UTF-8
    if colours:
        text = re.sub("\x1b\\[(0|1|2|31|32)m", "", text)
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") and c not in "\n\t"}


def check_output(*arguments, colours=False, codes=(0, 4, 5, 6), **environment):
    """Runs the command on bytes; what it prints is harmless, and JSON with --json."""
    done = subprocess.run([COIL, *arguments], capture_output=True, timeout=300, env=os.environ | {"COIL_COLOR": "always" if colours else "never"} | environment)
    where = (arguments, done.stdout[-1500:], done.stderr[-1500:])
    assert done.returncode in codes, where
    for data in (done.stdout, done.stderr):
        assert not bad_characters(data, colours), where
    if "--json" in arguments:
        json.loads(done.stdout)
        assert done.stdout.isascii(), where
    return done


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A program and its package whose every text is nasty."""
    folder = tmp_path_factory.mktemp("hostile")
    renaming = {name: f"{name}{NASTY}" for name in ("x", "ids", "seen", "table.weight", "b_seen", "p_table_weight", "cat", "softmax", "add", "clone")}
    base = renamed(PROGRAMS / "apart.pt2", folder / "renamed.pt2", renaming, torch_version=NASTY + "\u00e9" * 200)
    model = with_metadata(base, folder / "m.pt2", f'File "{NASTY}.py", line 3{CLEAR}, in f{TITLE}\n    {C1}{TURNED}{CLEAR} // \r', f"{C1}{NASTY}")
    package = folder / "m.coil.pt2"
    coil_ok("compile", model, "-o", package, "--target", "cpu:x86-64-v3")
    np.savez(folder / "in.npz", in_0=np.ones((4, 4), np.float32), in_1=np.zeros(4, np.int64))
    np.savez(folder / "wrong.npz", in_0=np.ones((4, 5), np.float32), in_1=np.zeros(4, np.int64))
    np.savez(folder / "failing.npz", in_0=-np.ones((4, 4), np.float32), in_1=np.full(4, 99))
    # An operator that coil lacks, with a nasty name; one argument too many.
    contents = entries(model)
    name = next(n for n in contents if n.endswith("models/model.json"))
    write_zip(folder / "missing.pt2", contents | {name: contents[name].replace(b"torch.ops.aten.sin.default", json.dumps(f"torch.ops.{NASTY}.x")[1:-1].encode())})
    write_zip(folder / "broken.pt2", contents | {name: contents[name].replace(b'"self"', json.dumps(NASTY).encode())})
    write_zip(folder / "invalid.pt2", contents | {name: contents[name].replace(b"hint: obey", b"hint: \xc3 \xff obey")})
    manifest = next(n for n in entries(package) if n.endswith("manifest.json"))
    changed = entries(package)
    changed[manifest] = changed[manifest].replace(b'"format": 1', b'"format": "' + json.dumps(NASTY)[1:-1].encode() + b'"')
    write_zip(folder / "format.coil.pt2", changed)
    return folder


COMMANDS = [
    ("inspect", "m.pt2"), ("inspect", "m.coil.pt2"), ("inspect", "m.coil.pt2", "--kernels", "--memory", "--fusion", "--entries"), ("inspect", "m.coil.pt2", "--source"),
    ("inspect", "format.coil.pt2"), ("inspect", "invalid.pt2"), ("check", "m.pt2"), ("check", "missing.pt2"), ("check", "broken.pt2"), ("check", "invalid.pt2"),
    ("compile", "m.pt2", "-o", "out.coil.pt2", "--target", "cpu:x86-64-v3"), ("compile", "missing.pt2", "-o", "out.coil.pt2"), ("compile", "broken.pt2", "-o", "out.coil.pt2"),
    ("run", "m.coil.pt2", "--input", "in.npz"), ("run", "m.coil.pt2", "--input", "wrong.npz"), ("run", "m.coil.pt2", "--input", "failing.npz"),
    ("run", "m.coil.pt2", "--input", f"no\x1b[2Jsuch.npz"), ("run", "missing.pt2", "--input", "in.npz"), ("run", "format.coil.pt2", "--input", "in.npz"),
    ("bench", "m.coil.pt2", "--repeat", "2", "--warmup", "0"), ("bench", "m.coil.pt2", "--repeat", "2", "--shape", "a\x1b[2J=3"),
    ("cache", "explain", "m.pt2", "--target", "cpu:x86-64-v3"), ("cache", "explain", "missing.pt2"), ("cache", "show"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c[:2]) + ("..." if len(c) > 2 else ""))
def test_output_is_harmless(command, hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(hostile)
    cache = {"COIL_CACHE": str(tmp_path / "cache")}
    codes = (0, 2, 3, 4, 5, 6)
    plain = check_output(*command, codes=codes, **cache)
    assert len(plain.stdout + plain.stderr) > 20
    coloured = check_output(*command, codes=codes, colours=True, **cache)
    assert coloured.returncode == plain.returncode
    if command[0] != "bench":
        assert check_output(*command, "--json", codes=codes, **cache).returncode == plain.returncode


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "aarch64", "cuda:sm_90"])
def test_debug_output_is_harmless(target, hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(hostile)
    package, dump = tmp_path / "out.coil.pt2", tmp_path / "dump"
    check_output("compile", "m.pt2", "-o", package, "-O", "0", "--target", target, COIL_DEBUG="5", COIL_PROGRESS="never", COIL_CACHE="off", COIL_DUMP=str(dump))
    check_output("inspect", package, "--source", "--kernels", "--memory", "--fusion", "--entries", "--licenses")
    texts = {path.name: path.read_bytes() for path in dump.iterdir()}  # what TORCH_LOGS shows of a program is read from these, too
    assert len(texts) > 15
    for name, text in texts.items():
        assert not bad_characters(text, False), name


def test_names_of_files_are_bytes(hostile, tmp_path):
    """A path need not be UTF-8, and may hold what controls terminals."""
    for name in (b"caf\xe9\x1b[2J.pt2", b"\xff\n  hint: obey.pt2"):
        path = os.path.join(os.fsencode(tmp_path), name)
        shutil.copy(hostile / "m.pt2", path)
        for command in ("inspect", "check"):
            for more in ((), ("--json",)):
                check_output(command, path, *more)
        shutil.copy(hostile / "m.coil.pt2", path)
        check_output("inspect", path, "--json")
        check_output("inspect", path + b".gone", "--json", codes=(3,))
        with open(path, "wb") as file:
            file.write(b"PK no zip")
        check_output("inspect", path, "--json", codes=(4,))
        check_output("run", path, codes=(4,))


def test_python_errors_are_text(hostile):
    coil_package = pytest.importorskip("coil")
    for name in ("missing.pt2", "broken.pt2", "invalid.pt2"):
        with pytest.raises(coil_package.Error) as raised:
            coil_package.compile(str(hostile / name))
        assert not bad_characters(str(raised.value).encode(), False), repr(raised.value)


# What runs code and what does not (SECURITY.md)
@pytest.fixture(scope="module")
def armed(tmp_path_factory):
    """A package whose shared object has a constructor that leaves a mark."""
    folder = tmp_path_factory.mktemp("armed")
    marker, package = folder / "ran", folder / "armed.coil.pt2"
    source, library = folder / "x.c", folder / "x.so"
    source.write_text(f'#include <stdlib.h>\n__attribute__((constructor)) static void ran(void) {{ if (system("touch {marker}")) exit(1); }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    coil_ok("compile", READER_SEEDS / "mlp.pt2", "-o", package, "--target", "cpu:x86-64-v3")
    contents = entries(package)
    code = [name for name in contents if name.endswith(".so")]
    assert len(code) == 1
    write_zip(package, contents | {code[0]: library.read_bytes()})
    return package, marker


INSPECTIONS = [(), ("--json",), ("--kernels", "--memory", "--fusion", "--entries"), ("--source",), ("--source", "relu"), ("--memory", "--json")]


def test_inspect_runs_nothing(armed, tmp_path):
    package, marker = armed
    marker.unlink(missing_ok=True)
    for flags in INSPECTIONS:
        coil("inspect", package, *flags)
        assert not marker.exists(), f"`coil inspect {' '.join(flags)}` ran the package's code"
    for command in (("check", package), ("cache", "explain", package), ("compile", package, "-o", tmp_path / "x")):
        harness.assert_refused(coil(*command, env=os.environ | {"COIL_CACHE": str(tmp_path / "cache")}))
        assert not marker.exists(), f"`coil {command[0]}` ran the package's code"
    # The same package does run it when it is opened: the mark would have been seen.
    coil("run", package)
    assert marker.exists()


def test_compiling_runs_nothing_of_the_program(tmp_path):
    """A user kernel's source comes from whoever compiles; even that runs only when the package is opened."""
    marker, package = tmp_path / "ran", tmp_path / "p.coil.pt2"
    source = f'''extern "C" int system(const char*);
__attribute__((constructor)) static void ran() {{ system("touch {marker}"); }}
void scaled(auto x, double by, auto out, coil::Range r) {{ for (int64_t i = r.begin; i < r.end; ++i) for (int64_t j = 0; j < x.size(1); ++j) out(i, j) = x(i, j) * (float)by; }}
'''
    kernels = tmp_path / "k.json"
    kernels.write_text(json.dumps([{"name": "museum::scaled", "signature": "(Tensor x, float by) -> Tensor", "cpu": {"text": source, "entry": "scaled", "range": "x.size(0)"}}]))
    cache = {"env": os.environ | {"COIL_CACHE": str(tmp_path / "cache")}}
    model = PROGRAMS / "user.pt2"
    coil_ok("check", model, "--kernels", kernels, **cache)
    coil_ok("compile", model, "-o", package, "--kernels", kernels, **cache)
    coil_ok("cache", "explain", model, "--kernels", kernels, **cache)
    coil_ok("inspect", package, **cache)
    assert not marker.exists()
    np.savez(tmp_path / "in.npz", in_0=np.ones((4, 4), np.float32))
    coil_ok("run", package, "--input", tmp_path / "in.npz", **cache)
    assert marker.exists()
