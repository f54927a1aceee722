"""Where a file is expected, what is none: pipes that nobody writes to, folders, devices without an end, links in a circle, files of 20 GB that hold nothing.
Each command says what it is, at once, and whatever lies in the cache costs no more than a compilation."""

import os
import resource
import shutil

import numpy as np
import pytest

import harness

SECONDS = 30
MOST_BYTES = 6 << 30  # of addresses: LLVM's and what a thread pool reserves


def make_pipe(path):
    os.mkfifo(path)


def make_circle(path):
    os.symlink(os.path.basename(path), path)


def make_sparse(path):
    with open(path, "wb") as file:
        file.truncate(20 << 30)


def make_link(target):
    return lambda path: os.symlink(target, path)


KINDS = {"pipe": make_pipe, "folder": os.mkdir, "circle": make_circle, "sparse": make_sparse, "dangling": make_link("/nowhere/x"), "zeros": make_link("/dev/zero"),
         "full": make_link("/dev/full"), "memory": make_link("/proc/self/mem")}
READS = [("compile", "IT", "-o", "OUT"), ("check", "IT"), ("inspect", "IT"), ("run", "IT"), ("run", "PACKAGE", "--input", "IT"), ("bench", "IT"),
         ("compile", harness.DIGITS, "-o", "OUT", "--kernels", "IT"), ("compile", harness.DIGITS, "-o", "OUT", "--replay", "IT"), ("diff", harness.DIGITS, "-i", "IT"),
         ("cache", "unpack", "IT"), ("explain", "IT"), ("report", "IT", "-o", "OUT"), ("profile", "IT"), ("debug", "IT"),
         ("reduce", "IT", "-i", "INPUT", "--test", "true", "-o", "OUT")]
WRITES = [("compile", harness.DIGITS, "-q", "-O", "0", "-o", "IT"), ("run", "PACKAGE", "--input", "INPUT", "--output", "IT"),
          ("profile", "PACKAGE", "--calls", "1", "-o", "IT")]


@pytest.fixture(scope="module")
def files(tmp_path_factory, digits_package):
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "in.npz", in_0=np.zeros((1, 1, 8, 8), np.float32))
    return {"PACKAGE": digits_package, "INPUT": folder / "in.npz"}


def command(words, files, it, out, cache="off"):
    names = {**files, "IT": it, "OUT": out}
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    return harness.coil(*(names.get(word, word) for word in words), env=dict(os.environ, COIL_CACHE=str(cache)), timeout=SECONDS, preexec_fn=limit)


@pytest.mark.parametrize("kind", KINDS)
def test_read(kind, files, tmp_path):
    it = tmp_path / kind
    KINDS[kind](it)
    for words in READS:
        done = command(words, files, it, tmp_path / "out")
        folder_of_kernels = kind == "folder" and "--kernels" in words
        assert 0 < done.returncode < 100 and ("COIL-E" in done.stderr or folder_of_kernels), f"{words}: {done.returncode}\n{done.stderr}"
        assert "Invalid argument" not in done.stderr and "bug in coil" not in done.stderr, f"{words}\n{done.stderr}"
        assert not (tmp_path / "out").exists(), words
    said = {"pipe": "is a pipe", "folder": "is a folder", "zeros": "a device", "circle": "Too many levels", "dangling": "does not exist"}
    assert said.get(kind, "COIL-E") in command(("inspect", "IT"), files, it, tmp_path / "out").stderr


@pytest.mark.parametrize("kind", ["pipe", "folder", "circle", "full"])
def test_written(kind, files, tmp_path):
    it = tmp_path / kind
    KINDS[kind](it)
    before = os.lstat(it)
    for words in WRITES:
        done = command(words, files, it, tmp_path / "out")
        harness.assert_refused(done, "cannot write", code=3)
        assert os.lstat(it).st_mode == before.st_mode and os.listdir(tmp_path) == [kind], words


@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_the_cache(kind, files, tmp_path):
    """The package is the same, byte for byte, whatever lies where the entries were, and where the folders of entries were."""
    words = ("compile", harness.DIGITS, "-q", "-O", "0", "-o", "OUT")
    cache, first = tmp_path / "cache", tmp_path / "first.pt2"
    assert command(words, files, None, first, cache).returncode == 0
    entries = [path for path in cache.rglob("*.entry")]
    assert len(entries) >= 2
    for replaced in (entries, [entries[0].parent], [cache / "object"]):
        for path in replaced:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            KINDS[kind](path)
        done = command(words, files, None, tmp_path / "second.pt2", cache)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "second.pt2").read_bytes() == first.read_bytes(), kind
