"""Hostile and broken files: a COIL-E error and an exit code of the table; no crash, no partial output; the next call is right."""

import json
import random
import struct
import zipfile

import numpy as np
import pytest

import harness
from written_program import Program
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_ok
from damaged_programs import CONFIG, MODEL, WEIGHT, changed, compile_refused, entries, program, survives, write_zip


# The archive
@pytest.mark.parametrize("part", range(4))
def test_truncated(part, tmp_path):
    data = DIGITS.read_bytes()
    cuts = sorted({0, 1, 3, 4, 21, 22, 30, 63, 64, *(len(data) * i // 40 for i in range(40)), *(len(data) - i for i in (1, 2, 20, 22, 40, 56, 98, 120))})
    for cut in cuts[part::4]:
        path = tmp_path / f"cut{cut}.pt2"
        path.write_bytes(data[:cut])
        assert_refused(coil("check", path), code=10) if cut < 22 else survives(coil("compile", path, "-o", tmp_path / "o.pt2"), tmp_path / "o.pt2")
        assert cut == len(data) or not (tmp_path / "o.pt2").exists(), f"a program cut at {cut} compiled"


@pytest.mark.parametrize("seed", range(4))
def test_bit_flips(seed, tmp_path):
    data, rng = DIGITS.read_bytes(), random.Random(seed)
    directory = data.rfind(b"PK\1\2", 0, len(data) - 4096)
    for i in range(15):
        at = rng.randrange(directory, len(data)) if i % 2 else rng.randrange(len(data))
        path, out = tmp_path / "flipped.pt2", tmp_path / "o.pt2"
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        out.unlink(missing_ok=True)
        survives(coil("compile", path, "-o", out), out)


def test_flipped_weight_is_noticed(tmp_path):
    data = DIGITS.read_bytes()
    at = data.find(entries()[WEIGHT]) + 1000
    path = tmp_path / "x.pt2"
    path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
    compile_refused(path, tmp_path, "weight_3")


@pytest.mark.parametrize("seed", range(3))
def test_damaged_package(seed, tmp_path, digits_package):
    data, rng = digits_package.read_bytes(), random.Random(seed)
    for i in range(12):
        path = tmp_path / "damaged.pt2"
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] if i % 3 == 0 else data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        # inspect never runs code; running damaged machine code is not tried
        survives(coil("inspect", path))


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "digits/../../evil", "digits\\..\\evil", "digits/./x", "digits//x", "a" * 5000])
def test_path_traversal(name, tmp_path):
    path = write_zip(tmp_path / "x.pt2", entries() | {name: b"evil"})
    survives(coil("compile", path, "-o", tmp_path / "o.pt2"))
    assert sorted(p.name for p in tmp_path.iterdir()) in (["x.pt2"], ["o.pt2", "x.pt2"])


@pytest.mark.parametrize("offset,value", [(20, 0xFFFFFFF0), (24, 0xFFFFFFF0), (42, 0xFFFFFFF0), (24, 0), (28, 0xFFFF), (30, 0xFFFF), (10, 99)])
def test_absurd_directory(offset, value, tmp_path):
    data = bytearray(DIGITS.read_bytes())
    start = struct.unpack_from("<I", data, data.rfind(b"PK\5\6") + 16)[0]
    at = data.find(b"PK\1\2", start + 4)  # the second entry's record
    struct.pack_into("<H" if offset in (10, 28, 30) else "<I", data, at + offset, value)
    path = tmp_path / "x.pt2"
    path.write_bytes(data)
    compile_refused(path, tmp_path)


@pytest.mark.parametrize("field,size", [(8, 2), (10, 2), (12, 4), (16, 4)])
def test_absurd_end_record(field, size, tmp_path):
    data = bytearray(write_zip(tmp_path / "plain.pt2", entries()).read_bytes())
    at = data.rfind(b"PK\5\6")
    data[at + field : at + field + size] = b"\xfe" * size
    path = tmp_path / "x.pt2"
    path.write_bytes(data)
    if field == 8:  # the count of entries on this disk: readers may go by the total alone
        survives(coil("check", path))
    else:
        compile_refused(path, tmp_path)


def test_zip_bomb(tmp_path):
    path = write_zip(tmp_path / "x.pt2", entries() | {MODEL: b" " * 300_000_000}, zipfile.ZIP_DEFLATED)
    compile_refused(path, tmp_path)


def test_deflated_is_fine(tmp_path):
    path = write_zip(tmp_path / "x.pt2", entries(), zipfile.ZIP_DEFLATED)
    coil_ok("run", path, "--input", DIGITS_TEST, "--output", tmp_path / "a.npz")
    coil_ok("run", DIGITS, "--input", DIGITS_TEST, "--output", tmp_path / "b.npz")
    assert np.array_equal(harness.load_outputs(tmp_path / "a.npz")[0], harness.load_outputs(tmp_path / "b.npz")[0])


def test_not_an_archive(tmp_path):
    for i, data in enumerate([b"", b"hello", b"\x7fELF" + bytes(100), b"PK\5\6" + bytes(18), bytes(100_000)]):
        path = tmp_path / f"{i}.pt2"
        path.write_bytes(data)
        compile_refused(path, tmp_path)


def test_missing_and_odd_files(tmp_path):
    assert_refused(coil("compile", tmp_path / "none.pt2", "-o", tmp_path / "o.pt2"), "none.pt2", code=1)
    assert_refused(coil("compile", tmp_path, "-o", tmp_path / "o.pt2"))
    assert_refused(coil("compile", "/dev/null", "-o", tmp_path / "o.pt2"))
    assert_refused(coil("run", DIGITS, "--input", tmp_path / "none.npz", "--output", tmp_path / "o.npz"), "none.npz", code=1)


@pytest.mark.parametrize("gone", ["digits/models/model.json", "digits/data/weights/model_weights_config.json", "digits/data/weights/weight_3"])
def test_missing_entry(gone, tmp_path):
    contents = entries()
    del contents[gone]
    compile_refused(write_zip(tmp_path / "x.pt2", contents), tmp_path)


# The JSON
@pytest.mark.parametrize("text", ["", "{", "[" * 1_000_000, '{"a":' * 200_000, "null", "[]", "3", '{"graph_module": 3}', "{}", '"' + "a" * 1000, "\x00\x01", "{\"a\": 1e999}",
                                  '{"graph_module": {"graph": {"nodes": ' + "[" * 50_000 + "]" * 50_000 + "}}}"])
def test_bad_json(text, tmp_path):
    compile_refused(changed(tmp_path / "x.pt2", MODEL=text), tmp_path)


def paths_of(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from paths_of(child, (*path, key))


def replace_at(value, path, new):
    for key in path[:-1]:
        value = value[key]
    if new is KeyError:
        del value[path[-1]]
    else:
        value[path[-1]] = new


@pytest.mark.parametrize("seed", range(6))
def test_mutated_json(seed, tmp_path):
    """Removes or replaces random parts of the program; wrong sizes, names, kinds. Metadata is left out: it cannot hurt."""
    rng, text = random.Random(seed), entries()[MODEL]
    for node in (base := json.loads(text))["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    paths = [p for p in paths_of(base) if p]
    for _ in range(12):
        model = json.loads(json.dumps(base))
        path = rng.choice(paths)
        replace_at(model, path, rng.choice([KeyError, None, -1, 0, 2**62, 2**64, 1.5, "", "x", [], {}, True, [[]], {"as_int": -5}]))
        out = tmp_path / "o.pt2"
        out.unlink(missing_ok=True)
        done = coil("compile", changed(tmp_path / "x.pt2", MODEL=json.dumps(model)), "-o", out)
        try:
            survives(done, out)
        except AssertionError as problem:
            raise AssertionError(f"at {path}: {problem}") from None


@pytest.mark.parametrize("schema", [{"major": 99, "minor": 0}, {"major": 1, "minor": 0}])
def test_schema_version(schema, tmp_path):
    model = program() | {"schema_version": schema}
    compile_refused(changed(tmp_path / "x.pt2", MODEL=json.dumps(model)), tmp_path, "schema", str(schema["major"]), "8", code=101)


@pytest.mark.parametrize("least,most", [(9, 3), (0, -1), (2**62, 2**63 - 1), (2**40, 2)])
def test_ranges_of_sizes_that_hold_none(least, most, tmp_path):
    """An error of the file's, not a bug in coil."""
    p = Program()
    p.output(p.op("aten.relu.default", [x := p.symbol("s0", 6), 8], self=p.input(x, 8)))
    p.ranges["s0"] = {"min_val": least, "max_val": most}
    assert_refused(coil("compile", p.save(tmp_path / "x.pt2"), "-o", tmp_path / "x.coil.pt2"), "the range of", code=104)


@pytest.mark.parametrize("op", ["sgn", "exp", "neg", "conj_physical", "sqrt"])
def test_complex_results_that_are_said_to_be_real(op, tmp_path):
    p = Program()
    p.output(p.op(f"aten.{op}.default", [4, 8], "f64", self=p.input(4, 8, dtype="c64")))
    assert_refused(coil("compile", p.save(tmp_path / "x.pt2"), "-o", tmp_path / "x.coil.pt2"), f"aten.{op}", code=104)


@pytest.mark.parametrize("op", ["asin", "exp", "sigmoid", "rsqrt"])
@pytest.mark.parametrize("said", ["i64", "bool"])
def test_fractions_that_are_said_to_be_integers(op, said, tmp_path):
    p = Program()
    p.output(p.op(f"aten.{op}.default", [4, 8], said, self=p.input(4, 8)))
    assert_refused(coil("compile", p.save(tmp_path / "x.pt2"), "-o", tmp_path / "x.coil.pt2"), f"aten.{op}", code=104)


@pytest.mark.parametrize("op,given,said", [("tril", "f32", "f16"), ("triu", "f32", "f64"), ("acosh", "c64", "bool"), ("relu", "f32", "i64"), ("gelu", "f32", "bool"), ("neg", "i64", "bool")])
def test_results_of_other_types(op, given, said, tmp_path):
    """An answer of the type that is said, or an error that names the operator; never a bug in coil."""
    p = Program()
    p.output(p.op(f"aten.{op}.default", [4, 8], said, self=p.input(4, 8, dtype=given)))
    done = coil("compile", p.save(tmp_path / "x.pt2"), "-o", tmp_path / "x.coil.pt2", "-O0")
    if done.returncode != 0:
        assert_refused(done, f"aten.{op}", code=104)


def test_unknown_op(tmp_path):
    model = program()
    model["graph_module"]["graph"]["nodes"][2]["target"] = "torch.ops.mylib.frobnicate.default"
    path = changed(tmp_path / "x.pt2", MODEL=json.dumps(model))
    compile_refused(path, tmp_path, "mylib", "frobnicate", "train.py:", code=102)
    done = coil("check", path)
    assert done.returncode != 0 and "frobnicate" in done.stdout + done.stderr and "train.py:" in done.stdout + done.stderr


def test_unknown_value_name(tmp_path):
    model = program()
    model["graph_module"]["graph"]["nodes"][2]["inputs"][0]["arg"] = {"as_tensor": {"name": "nobody"}}
    compile_refused(changed(tmp_path / "x.pt2", MODEL=json.dumps(model)), tmp_path, "nobody", code=104)


def test_unsupported_dtype(tmp_path):
    import torch

    class HalfComplex(torch.nn.Module):
        def forward(self, x):
            return x.to(torch.complex32).cumsum(0).real  # nor has eager on the CPU

    torch.export.save(torch.export.export(HalfComplex(), (torch.rand(3, 2),)), tmp_path / "x.pt2")
    compile_refused(tmp_path / "x.pt2", tmp_path, "complex")


def test_data_dependent_size(tmp_path):
    import torch

    class Rows(torch.nn.Module):
        def forward(self, x):
            return x.unique(dim=0)

    torch.export.save(torch.export.export(Rows(), (torch.rand(3, 65),)), tmp_path / "x.pt2")  # slices of up to 64 have code
    compile_refused(tmp_path / "x.pt2", tmp_path, "unique_dim", "test_bad_input.py:")


# The weights
WEIGHT_CHANGES = {
    "pickled": {"use_pickle": True}, "elsewhere": {"path_name": "../../../etc/passwd"}, "absent": {"path_name": "weight_999"},
    "huge size": {("tensor_meta", "sizes", 0): {"as_int": 2**62}}, "negative size": {("tensor_meta", "sizes", 0): {"as_int": -1}},
    "huge offset": {("tensor_meta", "storage_offset"): {"as_int": 2**62}}, "negative offset": {("tensor_meta", "storage_offset"): {"as_int": -8}},
    "huge stride": {("tensor_meta", "strides", 0): {"as_int": 2**61}}, "negative stride": {("tensor_meta", "strides", 0): {"as_int": -144}},
    "other rank": {("tensor_meta", "strides"): []}, "odd dtype": {("tensor_meta", "dtype"): 99}, "symbolic": {("tensor_meta", "sizes", 0): {"as_name": "s0"}},
}


@pytest.mark.parametrize("what", WEIGHT_CHANGES)
def test_bad_weight_config(what, tmp_path):
    config = json.loads(entries()[CONFIG])
    row = next(row for row in config["config"].values() if row["path_name"] == "weight_3")
    for path, value in WEIGHT_CHANGES[what].items():
        replace_at(row, path if isinstance(path, tuple) else (path,), value)
    compile_refused(changed(tmp_path / "x.pt2", CONFIG=json.dumps(config)), tmp_path)


def test_short_weight(tmp_path):
    compile_refused(changed(tmp_path / "x.pt2", WEIGHT=entries()[WEIGHT][:-4]), tmp_path, "weight", code=14)
