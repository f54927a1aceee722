"""Our zip and .npy code against Python's and PyTorch's: each reads what the other wrote."""
import os
import pathlib
import subprocess
import zipfile

import numpy as np
import pytest

BINARY = pathlib.Path(os.environ.get("COIL_BUILD", "build")).resolve() / "base_tests"

ARRAYS = {
    "f2": np.arange(6, dtype=np.float16).reshape(2, 3), "f4": np.linspace(-1, 1, 7, dtype=np.float32),
    "f8": np.array(np.pi), "i1": np.array([-1, 2], np.int8), "i2": np.array([[-300]], np.int16), "i4": np.arange(5, dtype=np.int32),
    "i8": np.array([2**62, -5]), "u1": np.arange(256, dtype=np.uint8), "b1": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32), "fortran": np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    "big_endian": np.arange(4, dtype=">f4").reshape(2, 2), "strided": np.arange(20)[::3],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("interop")
    np.savez(path / "stored.npz", **ARRAYS)
    np.savez_compressed(path / "deflated.npz", **ARRAYS)
    for name, method in (("py_stored.zip", zipfile.ZIP_STORED), ("py_deflated.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(path / name, "w", method) as z:
            z.comment = b"a comment at the end"
            z.writestr("root/a", b"x" * 1000)
            z.writestr("root/folder/", b"")
            z.writestr("root/empty", b"")
    with open(path / "py_stream.zip", "wb") as f, zipfile.ZipFile(f, "w") as z:  # zip64 local header, forced
        with z.open("root/stream", "w", force_zip64=True) as entry:
            entry.write(b"y" * 5000)
    import torch
    model = torch.nn.Linear(3, 2)
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3),)), path / "torch.pt2")
    environment = dict(os.environ, COIL_INTEROP_FOLDER=str(path))
    environment.pop("GTEST_OUTPUT", None)
    result = subprocess.run([BINARY, "--gtest_filter=Interop.*"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert "4 tests." in result.stdout and "SKIPPED" not in result.stdout
    return path


@pytest.mark.parametrize("name", ["stored", "deflated"])
def test_arrays(folder, name):
    back = np.load(folder / f"{name}_ours.npz")
    assert set(back.files) == set(ARRAYS)
    for key, array in ARRAYS.items():
        assert back[key].dtype == array.dtype.newbyteorder("="), key
        assert back[key].shape == array.shape, key
        np.testing.assert_array_equal(back[key], array)


def test_python_reads_our_archive(folder):
    with zipfile.ZipFile(folder / "ours.zip") as z:
        assert z.testzip() is None
        assert z.namelist() == ["root/a.txt", "root/data/empty", "root/data/big"]
        assert z.read("root/a.txt") == b"text"
        assert z.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)


def test_python_reads_many_entries(folder):
    with zipfile.ZipFile(folder / "many.zip") as z:
        assert len(z.namelist()) == 70000


def test_unzip_tools_agree_on_alignment(folder):
    with open(folder / "ours.zip", "rb") as f, zipfile.ZipFile(f) as z:
        for info in z.infolist():
            f.seek(info.header_offset + 26)
            name, extra = np.frombuffer(f.read(4), "<u2")
            assert (info.header_offset + 30 + int(name) + int(extra)) % 64 == 0
