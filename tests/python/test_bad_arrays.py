"""Arrays that are not what the program takes, broken .npy and .npz files, packages in place of programs: a COIL-E error and an exit code of the table."""

import json
import os
import struct
import subprocess
import zipfile

import numpy as np
import pytest

import harness
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_ok
from damaged_programs import write_zip


# The inputs of a call
def run_with(tmp_path, model, *arguments, **arrays):
    np.savez(tmp_path / "in.npz", **arrays)
    return coil("run", model, "--input", tmp_path / "in.npz", *arguments, "--output", tmp_path / "out.npz")


IMAGE = np.zeros((3, 1, 8, 8), np.float32)


@pytest.mark.parametrize("what,arrays,code", [
    ("none", {"labels": IMAGE}, 201), ("two", {"in_0": IMAGE, "in_1": IMAGE}, 201), ("double", {"in_0": IMAGE.astype(np.float64)}, 202),
    ("integer", {"in_0": IMAGE.astype(np.int64)}, 202), ("rank", {"in_0": IMAGE[0]}, 203), ("width", {"in_0": IMAGE[..., :7]}, 204),
    ("batch too large", {"in_0": np.zeros((513, 1, 8, 8), np.float32)}, 204), ("batch zero", {"in_0": IMAGE[:0]}, 204)])
def test_wrong_input(what, arrays, code, tmp_path, digits_package):
    done = run_with(tmp_path, digits_package, **arrays)
    assert_refused(done, code=code)
    assert done.returncode == 6 and not (tmp_path / "out.npz").exists()
    if "batch" in what:
        assert "batch" in done.stderr and "512" in done.stderr and "image" in done.stderr, done.stderr
    assert run_with(tmp_path, digits_package, in_0=IMAGE).returncode == 0, "the next valid call"


def test_wrong_input_name(tmp_path, digits_package):
    np.save(tmp_path / "x.npy", IMAGE)
    assert_refused(coil("run", digits_package, "--input", f"picture={tmp_path / 'x.npy'}", "--output", tmp_path / "o.npz"), "picture", "image", code=208)
    coil_ok("run", digits_package, "--input", f"image={tmp_path / 'x.npy'}", "--output", tmp_path / "o.npz")
    coil_ok("run", digits_package, "--input", tmp_path / "x.npy", "--output", tmp_path / "o.npz")


def test_other_keys_are_noted(tmp_path, digits_package):
    done = run_with(tmp_path, digits_package, in_0=IMAGE, labels=IMAGE)
    assert done.returncode == 0 and "labels" in done.stdout + done.stderr


def test_fortran_order_input(tmp_path, digits_package):
    image = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    for order in "CF":
        np.save(tmp_path / f"{order}.npy", np.array(image, order=order))
        coil_ok("run", digits_package, "--input", tmp_path / f"{order}.npy", "--output", tmp_path / f"{order}.npz")
    assert np.array_equal(*(harness.load_outputs(tmp_path / f"{order}.npz")[0] for order in "CF"))


def test_big_endian_input(tmp_path, digits_package):
    """Converted or refused, never misread."""
    image = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    np.save(tmp_path / "little.npy", image)
    np.save(tmp_path / "big.npy", image.astype(">f4"))
    coil_ok("run", digits_package, "--input", tmp_path / "little.npy", "--output", tmp_path / "little.npz")
    done = coil("run", digits_package, "--input", tmp_path / "big.npy", "--output", tmp_path / "big.npz")
    if done.returncode:
        assert_refused(done, code=15)
    else:
        assert np.array_equal(*(harness.load_outputs(tmp_path / f"{name}.npz")[0] for name in ("little", "big")))


def npy(header, data=b""):
    header = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 8, 8), }", bytes(10)),
                                  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }"),
                                  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 1, 8, 8), }", bytes(768)),
                                  npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(100)),
                                  npy("{'descr': '<U5', 'fortran_order': False, 'shape': (1,), }", bytes(20)),
                                  npy("{" * 5000), npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)), b"\x93NUMPY\x09\x00" + bytes(100)])
def test_bad_npy(data, tmp_path, digits_package):
    (tmp_path / "x.npy").write_bytes(data)
    assert_refused(coil("run", digits_package, "--input", tmp_path / "x.npy", "--output", tmp_path / "o.npz"))
    assert not (tmp_path / "o.npz").exists()


@pytest.mark.parametrize("key", ["kernels", "memory", "arena_bytes"])
def test_a_manifest_that_lacks_what_only_the_tools_read(key, tmp_path, digits_package):
    """The runtime does not need it: `coil run` may go on, what cannot is refused."""
    with zipfile.ZipFile(digits_package) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    changed = {}
    for name in (n for n in contents if n.endswith(("/manifest.json", "/kernels.json"))):
        entry = json.loads(contents[name])
        targets = entry.get("targets", [])
        for part in (entry, entry.get("memory", {}), *targets, *(t.get("memory", {}) for t in targets)):
            part.pop(key, None)
        changed[name] = json.dumps(entry)
    assert len(changed) == 2
    package = write_zip(tmp_path / "m.pt2", contents | changed)
    for command in (("run", package, "--input", DIGITS_TEST), ("bench", package, "--seconds", "0.01"), ("inspect", package, "--memory", "--kernels"), ("inspect", package, "--json")):
        done = coil(*command)
        if done.returncode:
            assert_refused(done, "manifest.json is not what coil writes")
        else:
            assert command[0] == "run" or key == "kernels", command


def test_names_of_files_that_are_no_utf8(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe.pt2")
    with open(path, "wb") as out:
        out.write(DIGITS.read_bytes())
    for command in (("compile", path, "-o", tmp_path / "p.pt2"), ("check", path), ("inspect", path)):
        done = subprocess.run([harness.COIL, *command, "--json"], capture_output=True, check=True)
        assert json.loads(done.stdout)["model"].endswith("\ufffd\ufffd.pt2")


def test_truncated_npz(tmp_path, digits_package):
    data = DIGITS_TEST.read_bytes()
    for cut in (10, 1000, len(data) // 2, len(data) - 30):
        (tmp_path / "x.npz").write_bytes(data[:cut])
        assert_refused(coil("run", digits_package, "--input", tmp_path / "x.npz", "--output", tmp_path / "o.npz"))


def zoo_names(**parameters):
    return ["plain_arguments", "resnet18_b1", "index_one"]


def test_fixed_value_differs(tmp_path):
    import zoo

    folder = zoo.make("plain_arguments")
    with np.load(folder / "example.npz") as file:
        arrays = {name: file[name] for name in file.files if name.startswith("in_")}
    assert_refused(run_with(tmp_path, folder / "plain_arguments.aten.pt2", **arrays | {"in_1": np.asarray(4)}), "3", "4", code=210)


def test_index_out_of_range(tmp_path):
    import zoo

    model = zoo.make("index_one") / "index_one.aten.pt2"
    x = np.zeros((10, 7), np.float32)
    assert_refused(run_with(tmp_path, model, in_0=x, in_1=np.array([0, 1, 2, 3, 10])), "index", code=210)
    assert_refused(run_with(tmp_path, model, in_0=x, in_1=np.array([0, 1, 2, 3, -11])), "index", code=210)


def test_package_for_a_program_and_back(tmp_path, digits_package):
    assert_refused(coil("compile", digits_package, "-o", tmp_path / "o.pt2"))
    assert_refused(coil("check", digits_package))
