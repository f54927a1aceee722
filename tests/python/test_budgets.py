"""Files that make a parser eat the machine: what is read is bounded by the file. Memory stays below that of an ordinary file plus 256 MB plus 64 times the
file, a budget that is exceeded is a named error, and nothing takes long. Each kind of file has a generator with a size, so that a test can grow it."""

import io
import json
import os
import struct
import zipfile

import numpy as np
import pytest

import harness
from harness import DIGITS
from damaged_programs import CONFIG, MODEL, entries, write_zip

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def run(*arguments):
    return harness.coil_measured(*arguments, env=dict(os.environ, COIL_THREADS="2"))


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    """What the commands take for a small program."""
    package = tmp_path_factory.mktemp("ordinary") / "p.pt2"
    code, text, memory = run("compile", DIGITS, "-o", package)
    assert code == 0, text
    return memory


def within(path, ordinary, *arguments, refused=None):
    code, text, memory = run(*arguments)
    bound = ordinary + 256 * 1024 + 64 * path.stat().st_size // 1024
    assert memory < bound, f"{memory} KB for a file of {path.stat().st_size} bytes: {text[:500]}"
    assert code in range(0, 9), f"exit code {code}: {text[:500]}"  # no signal, no bug (70)
    if refused is not None:
        assert code != 0 and refused in text, text[:1000]
    return code, text


def zipped(contents, method=DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return out.getvalue()


# ---- Pickles: old programs keep their weights so
OLD = harness.REPO / "tests/fuzz/seeds/reader/mlp_dynamic_torch_2.7.pt2"
HEAD = b"\x80\x02}q\x00"
STORAGE = b"ctorch\nFloatStorage\nq\x05"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def old_program(tmp_path, pickle, storages=None, inner=STORED, outer=STORED):
    with zipfile.ZipFile(OLD) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    weights = {"archive/data.pkl": pickle, "archive/byteorder": "little"} | {f"archive/data/{k}": v for k, v in (storages or {}).items()}
    contents["serialized_state_dict.pt"] = zipped(weights, inner)
    return write_zip(tmp_path / "x.pt2", contents, outer)


def storage_again(n):
    """Names one storage n times, three bytes each."""
    return HEAD + b"(" + text("storage") + STORAGE + text("0") + text("cpu") + b"K\x01tq\x01Q" + b"h\x01Q" * n + b"."


def sized_tensors(n):
    """n tensors of 64 dimensions, some ten bytes each."""
    sizes = b"(" + b"K\x01" * 64 + b"tq\x03"
    tensor = b"h\x04(h\x02K\x00h\x03h\x03tR"
    make = b"(" + text("storage") + STORAGE + text("0") + text("cpu") + b"K\x01tQq\x02" + sizes + b"ctorch._utils\n_rebuild_tensor_v2\nq\x04"
    return HEAD + make + tensor * n + b"."


PICKLES = {
    "storages": lambda: (storage_again(760), {"0": bytes(25_000_000)}, DEFLATED),
    "empty tuples": lambda: (HEAD + b")" * 4_000_000 + b".", None, STORED),
    "dictionaries": lambda: (HEAD + b"}" * 4_000_000 + b".", None, STORED),
    "marks": lambda: (HEAD + b"(" * 4_000_000 + b".", None, STORED),
    "pairs of pairs": lambda: (HEAD + b"h\x00" * 2_000_000 + b"\x86" * 1_000_000 + b".", None, STORED),
    "memo": lambda: (HEAD + b"".join(b"r" + struct.pack("<I", i) for i in range(600_000)) + b".", None, STORED),
    "names": lambda: (HEAD + b"c\n\n" * 1_000_000 + b".", None, STORED),
    "tensors": lambda: (sized_tensors(300_000), {"0": b"\0\0\0\0"}, STORED),
    "deflated": lambda: (HEAD + b")" * 200_000_000 + b".", None, DEFLATED),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles(name, ordinary, tmp_path):
    pickle, storages, method = PICKLES[name]()
    path = old_program(tmp_path, pickle, storages, method)
    code, _ = within(path, ordinary, "check", path)
    assert code != 0


def test_the_budget_of_pickles_is_told(ordinary, tmp_path):
    path = old_program(tmp_path, sized_tensors(300_000), {"0": b"\0\0\0\0"})
    within(path, ordinary, "check", path, refused="pickled weights")


def test_archives_in_archives(ordinary, tmp_path):
    """The inner archive inflates to more than the outer one may."""
    path = old_program(tmp_path, storage_again(3), {"0": bytes(300_000_000)}, DEFLATED, DEFLATED)
    within(path, ordinary, "check", path, refused="limit")


# ---- JSON
def many_polynomials(n):
    """Size expressions of 136 terms each, in 350 characters."""
    def total(i):
        return "Add(" + ",".join(f"Symbol('a{(i + k) % 4000}')" for k in range(16)) + ")"

    values = {f"v{i}": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": f"Mul({total(i)},{total(37 * i + 5)})", "hint": None}}], "requires_grad": False,
                        "device": {"type": "cpu", "index": None}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7} for i in range(n)}
    program = json.loads(entries()[MODEL])
    graph = program["graph_module"]["graph"]
    graph["tensor_values"].update(values)
    for i in range(n):
        graph["nodes"].append({"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": f"v{i - 1}" if i else graph["inputs"][-1]["as_tensor"]["name"]}}, "kind": 1}],
                               "outputs": [{"as_tensor": {"name": f"v{i}"}}], "metadata": {}, "is_hop_single_tensor_return": None})
    return json.dumps(program)


PROGRAMS = {
    "numbers": lambda: (f'{{"x": [{",".join("1" * 4_000_000)}]}}', STORED),
    "lists": lambda: (f'{{"x": [{",".join(["[]"] * 2_000_000)}]}}', STORED),
    "objects": lambda: (f'{{"x": [{",".join(["{}"] * 2_000_000)}]}}', STORED),
    "strings": lambda: ('{"x": [' + ",".join(['""'] * 2_000_000) + "]}", STORED),
    "members": lambda: ("{" + ",".join(['"":0'] * 2_000_000) + "}", STORED),
    "deep": lambda: ("[" * 4_000_000, STORED),
    "deflated": lambda: ("[" + "1," * 25_000_000 + "1]", DEFLATED),
    "polynomials": lambda: (many_polynomials(8000), STORED),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, ordinary, tmp_path):
    content, method = PROGRAMS[name]()
    path = write_zip(tmp_path / "x.pt2", entries() | {MODEL: content}, method)
    code, text = within(path, ordinary, "check", path)
    assert code != 0 or name == "polynomials", text
    if name == "deflated":
        assert "COIL-E011" in text and "limit" in text and MODEL in text


def test_the_budget_of_sizes_is_told(ordinary, tmp_path):
    path = write_zip(tmp_path / "x.pt2", entries() | {MODEL: many_polynomials(8000)})
    within(path, ordinary, "check", path, refused="size expressions")


@pytest.mark.parametrize("sizes", [[5_000_000_000], [1 << 40], [1 << 31, 1 << 31, 1 << 31], [40_000_000, 9]])
def test_weights_larger_than_the_file(sizes, ordinary, tmp_path):
    """A stride of 0 makes any size of four bytes."""
    config, program = json.loads(entries()[CONFIG]), json.loads(entries()[MODEL])
    meta = config["config"]["conv1.weight"]["tensor_meta"]
    for m in (meta, program["graph_module"]["graph"]["tensor_values"]["p_conv1_weight"]):
        m.update(sizes=[{"as_int": n} for n in sizes], strides=[{"as_int": 0}] * len(sizes))
    path = write_zip(tmp_path / "x.pt2", entries() | {CONFIG: json.dumps(config), MODEL: json.dumps(program)})
    within(path, ordinary, "compile", path, "-o", tmp_path / "p.pt2", refused="conv1")


# ---- Arrays and archives
def test_inputs(ordinary, tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros((200_000_000,), "u1"))
    within(path, ordinary, "run", DIGITS, "--input", path, "--output", tmp_path / "o.npz", refused="deflated entries")
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 400_000 + "), }"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header.encode())
    within(tmp_path / "x.npy", ordinary, "run", DIGITS, "--input", tmp_path / "x.npy", "--output", tmp_path / "o.npz", refused="dimensions")
    huge = "{'descr': '<f4', 'fortran_order': True, 'shape': (4611686018427387904, 4611686018427387904, 0), }"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(huge)) + huge.encode())
    within(tmp_path / "x.npy", ordinary, "run", DIGITS, "--input", tmp_path / "x.npy", "--output", tmp_path / "o.npz", refused="COIL-E")


def test_moderately_compressed_inputs_are_read(tmp_path):
    with np.load(harness.DIGITS_TEST) as file:
        arrays = dict(file)
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    harness.coil_ok("run", DIGITS, "--input", tmp_path / "x.npz", "--output", tmp_path / "o.npz")


def test_many_entries(ordinary, tmp_path):
    path = write_zip(tmp_path / "x.pt2", {f"{i}": b"" for i in range(60_000)})
    within(path, ordinary, "inspect", path)
    within(path, ordinary, "check", path)


def test_manifests(ordinary, tmp_path):
    harness.coil_ok("compile", DIGITS, "-o", tmp_path / "digits.pt2")
    with zipfile.ZipFile(tmp_path / "digits.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in contents if n.endswith("manifest.json"))
    manifest = contents[name].decode().rstrip()[:-1]
    for filler, method in (("[]," * 1_500_000 + "0", STORED), ("1," * 50_000_000 + "0", DEFLATED)):
        path = write_zip(tmp_path / "x.pt2", contents | {name: f'{manifest}, "filler": [{filler}]}}'}, method)
        for command in (["inspect"], ["inspect", "--json"], ["run", "--input", harness.DIGITS_TEST, "--output", tmp_path / "o.npz"]):
            within(path, ordinary, command[0], path, *command[1:])


def test_records_and_registrations(ordinary, tmp_path):
    path = tmp_path / "x.json"
    for content in ("[" + "[]," * 1_500_000 + "0]", '{"entries": [' + "{}," * 1_500_000 + "{}]}", '{"name": "' + "x" * 4_000_000 + '"}'):
        path.write_text(content)
        within(path, ordinary, "compile", DIGITS, "-o", tmp_path / "p.pt2", "--replay", path, refused="COIL-E")
        within(path, ordinary, "compile", DIGITS, "-o", tmp_path / "p.pt2", "--kernels", path, refused="COIL-E")
