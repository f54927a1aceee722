"""What the Python tests share: calling the command and comparing with eager."""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "models"))

# What other runs kept must not decide what a test sees.
os.environ["COIL_CACHE"] = "off"

BUILD = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build"))
COIL = pathlib.Path(os.environ.get("COIL_BIN", BUILD / "coil"))
PYTHON_PATH = BUILD.resolve() / "python"  # the package `coil`
sys.path.insert(0, str(PYTHON_PATH))
# Programs that tests start import this build's package as the tests do, whatever the caller's environment says.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PYTHON_PATH), os.environ.get("PYTHONPATH")]))
DIGITS = REPO / "examples/digits/digits.pt2"
DIGITS_TEST = REPO / "examples/digits/digits_test.npz"
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2  # processes that a test may keep busy: beside other tests one
EXIT_INTERNAL = 70  # a bug in coil


@contextlib.contextmanager
def one_at_a_time(lock):
    """What several processes of tests would otherwise make at once; `lock` is a file."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def coil(*arguments, timeout=300, **options):
    """Runs the command and returns the finished process; its text is decoded."""
    return subprocess.run([COIL, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=timeout, **options)


def coil_ok(*arguments, **options):
    done = coil(*arguments, **options)
    assert done.returncode == 0, f"coil {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def coil_json(*arguments, **options):
    return json.loads(coil_ok(*arguments, "--json", **options).stdout)


def assert_refused(done, *texts, code=None):
    """A user error: a COIL-E code on stderr, an exit code of the table, and the given texts in the message (any letter case)."""
    message = done.stdout + done.stderr
    assert 2 <= done.returncode < 128, f"exit code {done.returncode}: {message}"
    assert done.returncode != EXIT_INTERNAL, f"an internal error: {message}"
    assert "COIL-E" in done.stderr, message
    if code is not None:
        assert f"COIL-E{code:03}" in done.stderr, f"wanted COIL-E{code:03}: {message}"
    for text in texts:
        assert text.lower() in message.lower(), f"'{text}' is not in: {message}"


MEASURED = """
import os, resource, sys
space, rest = int(sys.argv[1]), sys.argv[2:]
child = os.fork()
if child == 0:
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    os.execv(rest[0], rest)
_, status, usage = os.wait4(child, 0)
os.write(2, f"\\n{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}".encode())
"""


def coil_measured(*arguments, space=8 << 30, timeout=60, **options):
    """(exit code, text, most memory in KB) of the command within so many bytes of address space. (A small process starts it: a child begins with what its parent had.)"""
    done = subprocess.run([sys.executable, "-S", "-c", MEASURED, str(space), COIL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, **options)
    text, _, last = done.stdout.decode(errors="replace").rpartition("\n")
    code, memory = map(int, last.split())
    return code, text, memory


def load_outputs(path):
    """The arrays of an .npz that `coil run` wrote, in order."""
    with np.load(path) as file:
        return [file[name] for name in file.files]


@functools.lru_cache(maxsize=None)
def has_aarch64():
    """Whether this coil was built with code for aarch64."""
    with tempfile.TemporaryDirectory() as folder:
        done = coil("compile", DIGITS, "-q", "-O", "0", "--target", "aarch64:neon", "-o", os.path.join(folder, "x.pt2"))
    return "without code for aarch64" not in done.stderr


def load_expected(path):
    with np.load(path) as file:
        return [file[f"out_{i}"] for i in range(sum(name.startswith("out_") for name in file.files))]


def max_error(actual, expected):
    """The largest difference, relative to the largest finite magnitude expected. NaN and infinities must be in the same places."""
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isnan(actual), np.isnan(expected)), f"NaN in other places: {actual[np.isnan(actual) != np.isnan(expected)][:5]}"
    assert np.array_equal(actual[~finite & ~np.isnan(expected)], expected[~finite & ~np.isnan(expected)]), "infinities differ"
    assert np.isfinite(actual[finite]).all(), "an infinity where eager is finite"
    if not finite.any():
        return 0.0
    difference = np.abs(actual[finite] - expected[finite]).max()
    return float(difference / max(np.abs(expected[finite]).max(), 1e-30)) if difference else 0.0


def compare(actual, expected, tolerance, label=""):
    """Asserts that two lists of arrays agree; returns the largest relative error of the floating ones."""
    assert len(actual) == len(expected), f"{label}: {len(actual)} outputs instead of {len(expected)}"
    worst = 0.0
    for i, (a, e) in enumerate(zip(actual, expected)):
        where = f"{label} output {i}"
        assert a.shape == e.shape, f"{where}: shape {a.shape} instead of {e.shape}"
        if np.issubdtype(e.dtype, np.complexfloating):  # by their parts
            assert a.dtype == e.dtype, f"{where}: dtype {a.dtype} instead of {e.dtype}"
            part = np.float32 if e.dtype == np.complex64 else np.float64
            a, e = np.ascontiguousarray(a).view(part), np.ascontiguousarray(e).view(part)
        if not np.issubdtype(e.dtype, np.floating):
            assert a.dtype == e.dtype, f"{where}: dtype {a.dtype} instead of {e.dtype}"
            wrong = np.argwhere(a != e)
            assert len(wrong) == 0, f"{where}: {len(wrong)} of {e.size} differ, first at {wrong[0]}: {a[tuple(wrong[0])]} instead of {e[tuple(wrong[0])]}"
            continue
        assert np.issubdtype(a.dtype, np.floating), f"{where}: dtype {a.dtype} instead of {e.dtype}"
        assert a.dtype == e.dtype, f"{where}: dtype {a.dtype} instead of {e.dtype}"
        try:
            error = max_error(a, e)
        except AssertionError as problem:
            raise AssertionError(f"{where}: {problem}") from None
        assert error <= tolerance, f"{where}: relative error {error:.2e} > {tolerance:.0e}\n got {a.ravel()[:6]}\n not {e.ravel()[:6]}"
        worst = max(worst, error)
    return worst


def cosine(a, b):
    """The smallest cosine between corresponding rows."""
    a, b = a.reshape(-1, a.shape[-1]).astype(np.float64), b.reshape(-1, b.shape[-1]).astype(np.float64)
    return float(((a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))).min())


def call(package, x, folder):
    """The first result of a package of one input, both as arrays."""
    np.save(folder / "x.npy", x)
    coil_ok("run", package, "--input", folder / "x.npy", "--output", folder / "y.npz")
    return load_outputs(folder / "y.npz")[0]


def eager(module, x):
    """The same of a module."""
    import torch

    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


def run_sets(model, sets, package=None):
    """Runs `model` on each npz of {tag: path}: {tag: (finished process, arrays or None)}. Compiles first if there are several."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="coil-test-"))
    try:
        if len(sets) > 1 or package:
            target = package or folder / "model.coil.pt2"
            done = coil("compile", model, "-o", target)
            if done.returncode != 0:
                return {tag: (done, None) for tag in sets}
            model = target
        results = {}
        for tag, inputs in sets.items():
            done = coil("run", model, "--input", inputs, "--output", folder / "out.npz")
            results[tag] = (done, load_outputs(folder / "out.npz") if done.returncode == 0 else None)
        return results
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def zoo_meta(folder):
    return json.loads((folder / "meta.json").read_text())
