#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: tests/fuzz/make_seeds.py FOLDER, a folder of small exported programs; tests/fuzz/make_seeds.py --coil
build/coil makes those of packages, records, the cache, user kernels and arrays from what coil writes of the programs that are seeds already.

For fuzz_reader each program becomes up to two seeds: the archive itself, and its JSON entries as text with a line "----" between them (the fuzz
target puts those into an archive of its own, so that a mutation does not fail at a checksum). Programs of PyTorch 2.7 give the
archive and the pickle of their weights.
"""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"
TARGET = SEEDS / "reader"
KERNELS = [
    {"name": "a::b", "signature": "(Tensor x, Tensor? bias, Tensor(a!) count, SymInt n, float by=2.0, bool b=False, int[] list=[1]) -> (Tensor, Tensor)",
     "configs": [{"BLOCK": 64, "UP": True}, {"BLOCK": 128, "UP": False}], "key": "x.numel()",
     "cpu": {"source": "b.cc", "headers": ["c.h"], "range": "cdiv(out0.numel(), BLOCK) + max(n, x.size(-1) % 3)", "work": 4},
     "cuda": {"text": "t", "grid": [1, "out.size(0) // BLOCK"], "block": "BLOCK", "shared": "UP * 4"}},
    {"name": "c::d", "signature": "(Tensor x) -> Tensor", "contiguous": False, "cpu": {"text": "t", "entry": "e", "range": "x.dim()"}},
]
IMAGE = {"config": 0, "sm": 90, "threads": 128, "cluster": 1, "shared": 0, "symbol": "scaled_kernel", "code": "AAAA", "ptx": False, "aligned": False, "divisible": [],
         "params": [["ptr", "x"], ["fp32", "by"], ["ptr", "out"], ["null"]]}
IMAGES = {"name": "museum::scaled", "signature": "(Tensor x, float by) -> Tensor", "configs": [{"BLOCK": 64}, {"BLOCK": 128}],
          "cuda": {"images": [{**IMAGE, "config": 1, "aligned": True}, {**IMAGE, "config": 1}, {**IMAGE, "config": 1, "sm": 80}, IMAGE], "grids": [["x.numel()"], ["cdiv(x.numel(), BLOCK)", "1", "2"]]}}
FIRST = {"name": "museum::scaled", "signature": "(Tensor x, float by) -> Tensor", "initial": ["x"], "configs": [{}],
         "cuda": {"images": [{**IMAGE, "params": [["ptr", "out"], ["fp64", "by"]]}], "grids": [["out.size(0)"]]}}
TEXTS = [
    'j{"a": [1, -2.5e3, true, null, "x\\u00e9"], "b": {"c": []}}', 'j[18446744073709551615, -9223372036854775808, 0e-30, "Infinity"]',
    "eAdd(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-1))",
    "eFloorDiv(Pow(Add(Symbol('s0'), Integer(1)), Integer(2)), Max(Integer(4), Symbol('s1')))", "eModularIndexing(Symbol('s0'), Integer(2), Integer(3))",
    "eTruncToInt(IntTrueDiv(Mul(Rational(1, 3), Symbol('a')), Float('2.0', precision=53)))",
    "cAnd(GreaterThan(Symbol('s0'), Integer(2)), Not(Equality(Mod(Symbol('s0'), Integer(8)), Integer(0))))", "cOr(StrictLessThan(Symbol('a'), Symbol('b')), true)",
]
ENTRIES = ("models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
MAX_ARCHIVE = 15_000


def shorten(value):
    """Without the metadata that only costs bytes."""
    if isinstance(value, dict):
        return {k: shorten(v) for k, v in value.items() if k not in ("torch_fn", "from_node", "source_fn_stack")}
    return [shorten(v) for v in value] if isinstance(value, list) else value


def main(folder):
    TARGET.mkdir(parents=True, exist_ok=True)
    for path in sorted(pathlib.Path(folder).glob("*.pt2")):
        if path.stat().st_size <= MAX_ARCHIVE:
            (TARGET / path.name).write_bytes(path.read_bytes())
        archive = zipfile.ZipFile(path)
        if "serialized_state_dict.pt" in archive.namelist():
            weights = zipfile.ZipFile(io.BytesIO(archive.read("serialized_state_dict.pt")))
            (TARGET / f"{path.stem}.pkl").write_bytes(weights.read("archive/data.pkl"))
            continue
        root = archive.namelist()[0].split("/")[0]
        parts = [json.dumps(shorten(json.loads(archive.read(f"{root}/{e}"))), separators=(",", ":")) for e in ENTRIES]
        (TARGET / f"{path.stem}.txt").write_text("\n----\n".join(parts))


def write(folder, name, content):
    (SEEDS / folder).mkdir(parents=True, exist_ok=True)
    (SEEDS / folder / name).write_bytes(content)


def small_package(path):
    """The package without its code and weights, which nobody reads before they are loaded."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as package, zipfile.ZipFile(out, "w") as small:
        for entry in package.infolist():
            code = entry.filename.endswith((".so", ".constants"))
            small.writestr(zipfile.ZipInfo(entry.filename), b"\1" * 64 if code else package.read(entry))
    return out.getvalue()


def made_by(coil):
    """Manifests, packages, records and entries of the cache, each of a small program."""
    for name in ("mlp_dynamic", "branch", "counter"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            package, record = folder / "m.pt2", folder / "r.json"
            subprocess.run([coil, "compile", TARGET / f"{name}.pt2", "-o", package, "--tune", "fast", "--tune-budget", "500ms", "--record", record, "-q"],
                           check=True, env=dict(os.environ, COIL_CACHE=str(folder / "cache")))
            archive = zipfile.ZipFile(package)
            manifest, kernels = (json.loads(archive.read(next(n for n in archive.namelist() if n.endswith(entry)))) for entry in ("/manifest.json", "/kernels.json"))
            manifest |= kernels
            write("package", f"{name}.json", json.dumps(manifest, separators=(",", ":")).encode())
            write("tuning", f"{name}.json", json.dumps(json.loads(record.read_text()), separators=(",", ":")).encode())
            if name == "mlp_dynamic":
                write("package", f"{name}.pt2", small_package(package))
            for entry in sorted(folder.glob("cache/tuning/*/*.entry"))[:1]:
                write("cache", f"{name}.entry", entry.read_bytes())


def several_programs():
    """Two programs that are seeds, as one archive and as the text of its entries."""
    sources = {name: zipfile.ZipFile(TARGET / f"{name}.pt2") for name in ("branch", "counter")}
    entries = {}
    for name, archive in sources.items():
        for entry in archive.namelist():
            _, _, rest = entry.partition("/")
            content = archive.read(entry)
            if rest.endswith(".json") and "model" in rest:
                rest, content = rest.replace("/model", f"/{name}", 1), json.dumps(shorten(json.loads(content)), separators=(",", ":")).encode()
            entries.setdefault(rest, content)
    out, text = io.BytesIO(), b""
    with zipfile.ZipFile(out, "w") as both:
        for name, content in entries.items():
            both.writestr(zipfile.ZipInfo(f"both/{name}"), content)
            text += b"==== both/%s\n%s\n" % (name.encode(), content if name.endswith(".json") or content.isascii() else b"weight")
    write("archives", "both.pt2", out.getvalue())
    write("archives", "both.txt", text)


def saved_state(length, runs, identity=7):
    """As src/runtime/saved_state.cc writes one."""
    head = b"COILSTA1" + b"".join(int(n).to_bytes(8, "little") for n in (identity, length, len(runs), *(n for run in runs for n in run)))
    return head + b"".join(bytes(1 + i % 255 for i in range(n)) for _, n in runs)


def others():
    several_programs()
    for name, registration in (("scaled", IMAGES), ("initial", FIRST)):
        write("images", f"{name}.json", json.dumps(registration).encode())
    for name, state in (("empty", (0, [])), ("zeros", (5000, [])), ("page", (8192, [(4096, 4096)])), ("runs", (40000, [(0, 96), (4096, 33), (36864, 3136)]))):
        write("states", f"{name}.bin", saved_state(*state))
    import numpy as np

    write("kernels", "both.json", json.dumps(KERNELS).encode())
    for i, line in enumerate(TEXTS):
        write("languages", f"{i}.txt", line.encode())
    arrays = {"f32": np.ones((2, 3), "<f4"), "i64": np.arange(4, dtype=">i8"), "fortran": np.asfortranarray(np.ones((2, 3))), "bool": np.zeros((0, 2), "?")}
    for name, array in arrays.items():
        out = io.BytesIO()
        np.save(out, array)
        write("arrays", f"{name}.npy", out.getvalue())
    out = io.BytesIO()
    np.savez(out, **arrays)
    write("arrays", "all.npz", out.getvalue())


if __name__ == "__main__":
    if sys.argv[1] == "--coil":
        made_by(sys.argv[2])
        others()
    else:
        main(sys.argv[1])
