"""coil import-gguf: what the compiler reads of a file itself is what Python takes apart, bit for bit, and takes neither memory nor a temporary file."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import coil
import coil.gguf
import harness
from coil._program import TextProgram
from coil.gguf import _import, _layers, _read
from coil.gguf._blocks import _BLOCKS, FileParts

compiler = pytest.importorskip("coil._compiler")
KINDS = sorted(kind for kind in _BLOCKS if compiler.has_block_form(kind))


def random_blocks(kind, rows, blocks):
    """Any bytes; some scales are 0, infinite or no numbers."""
    size = _BLOCKS[kind][0]
    data = np.random.default_rng(7).integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    at = 208 if kind == "Q6_K" else 0
    data[0, :, at:at + 2] = 0
    data[1, 0, at:at + 2] = np.frombuffer(np.float16(np.inf).tobytes(), np.uint8)
    data[1, 1, at:at + 2] = np.frombuffer(np.float16(np.nan).tobytes(), np.uint8)
    if kind in ("Q4_K", "Q5_K"):
        data[2, :, 4:8] = 0  # scales of some groups
    return data.reshape(rows, -1)


def taken_apart(kind, data):
    with np.errstate(all="ignore"):
        numbers, scale, zero = _BLOCKS[kind][1](data.reshape(len(data), -1, _BLOCKS[kind][0]))
    return [None if part is None else np.ascontiguousarray(part.reshape(len(data), -1), dtype) for part, dtype in ((numbers, np.int8), (scale, np.float32), (zero, np.float32))]


def same(found, want):
    """Of the same bits; what is no number may have any of those that are none."""
    if want.dtype == np.float32:
        assert np.array_equal(np.isnan(found), np.isnan(want))
        found, want = np.nan_to_num(found), np.nan_to_num(want)
    return found.tobytes() == want.tobytes()


def test_the_usual_types_are_known():
    assert {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"} <= set(KINDS)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_those_of_python(kind, ordered):
    data = random_blocks(kind, 6, 3)
    order = np.array([4, 0, 2, 2]) if ordered else None
    wanted = taken_apart(kind, data if order is None else data[order])
    numbers, scale, _ = wanted
    rows = FileParts()
    made = rows.rows(kind, data, list(numbers.shape), numbers.shape[1] // scale.shape[1], order)
    for array, want in zip((made.numbers, made.scale, made.zero), wanted):
        assert (array is None) == (want is None)
        if array is None:
            continue
        source = rows.sources[array.__array_interface__["data"][0]]
        assert array.shape == want.shape and array.dtype == want.dtype and len(source) == want.nbytes
        assert same(np.frombuffer(source.read(0, want.nbytes), want.dtype).reshape(want.shape), want)
        flat = want.reshape(-1)
        for begin, count in ((0, 1), (1, 5), (len(flat) - 7, 7), (3, 0), (5, len(flat) - 9)):  # whatever blocks they begin and end in
            item = want.itemsize
            assert same(np.frombuffer(source.read(begin * item, count * item), want.dtype), flat[begin:begin + count])


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0"])
def test_some_rows(kind):
    data = random_blocks(kind, 6, 2)
    numbers, scale, zero = taken_apart(kind, data)
    parts = FileParts()
    made = parts.rows(kind, data, list(numbers.shape), 32, None).cut(2, 5)
    for array, want in zip((made.numbers, made.scale, made.zero), (numbers, scale, zero)):
        if want is not None:
            source = parts.sources[array.__array_interface__["data"][0]]
            assert array.shape == want[2:5].shape and same(np.frombuffer(source.read(0, array.nbytes), want.dtype).reshape(array.shape), want[2:5])


def resident(path):
    """Bytes of a mapped file that are in this process's memory."""
    found, own = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            own = line.rstrip().endswith(str(path))
        elif own and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.parametrize("mode", ["r", "c", "memory"])
def test_pages_of_a_file_are_given_back(mode, tmp_path):
    """Of a file that is mapped for reading; what could have been written to stays as it is."""
    random_blocks("Q4_0", 4096, 512).tofile(tmp_path / "blocks")
    shape = (4096, 512 * 18)
    data = np.fromfile(tmp_path / "blocks", np.uint8).reshape(shape) if mode == "memory" else np.memmap(tmp_path / "blocks", np.uint8, mode, shape=shape)
    if mode != "r":
        data[7] = data[9]  # a page of its own, which no file has
    want = data[:16].copy()
    parts = FileParts()
    made = parts.rows("Q4_0", data, [4096, 512 * 32], 32, None)
    for array in (made.numbers, made.scale):
        source, all_rows = parts.sources[array.__array_interface__["data"][0]], array.nbytes
        for begin in range(0, all_rows, 1 << 20):
            source.read(begin, min(1 << 20, all_rows - begin))
        assert mode != "r" or resident(tmp_path / "blocks") < 8 << 20
        assert mode != "c" or resident(tmp_path / "blocks") > 30 << 20
        wanted = taken_apart("Q4_0", want)[0 if array is made.numbers else 1]
        assert same(np.frombuffer(source.read(0, wanted.nbytes), wanted.dtype).reshape(wanted.shape), wanted)
    assert (data[:16] == want).all()


def test_what_does_not_fit_is_refused():
    data = np.zeros(18 * 4, np.uint8)
    address = data.ctypes.data
    for kind, size, columns, order in (("Q4_0", 72, 33, []), ("Q4_0", 71, 32, []), ("Q4_0", 72, 32, [4]), ("Q4_0", 72, 32, [-1]), ("Q9_9", 72, 32, [])):
        with pytest.raises(coil.Error, match=kind):
            compiler.block_parts(kind, address, size, False, columns, order)
    with pytest.raises(IndexError):
        compiler.block_parts("Q4_0", address, 72, False, 32, [])[0].read(100, 29)


def write_random(path, kind, **sizes):
    sys.path.insert(0, str(harness.REPO / "bench"))
    from random_gguf import write

    write(dict(hidden_size=256, num_attention_heads=8, num_key_value_heads=4, vocab_size=700, intermediate_size=512, num_hidden_layers=4) | sizes, kind, path)


@pytest.mark.parametrize("options", [{}, {"activations": "int8"}])
@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q5_1"])
def test_packages_are_the_same_either_way(kind, options, tmp_path):
    """Logits to the last bit, of a model whose weights Python has taken apart and of one that the compiler reads."""
    write_random(tmp_path / "m.gguf", kind)
    made = []
    for parts in (None, FileParts()):
        model = _import._decoder(tmp_path / "m.gguf", 32, "float32", tmp_path, parts)
        programs = _layers.traced_by_layer(model, _import.programs, parts and parts.sources)
        assert programs and all(isinstance(p, TextProgram) for p in programs.values())
        if parts:
            assert any(parts.sources.get(t.data_ptr()) for t in programs["decode"].tensors.values())
        made.append(coil.compile(programs, tmp_path / f"{len(made)}.pt2", options={"opt_level": 1, **options}))
    assert os.path.getsize(tmp_path / "0.pt2") == os.path.getsize(tmp_path / "1.pt2")
    ids, places = torch.tensor([[3, 14, 15, 92, 65]]), torch.arange(5)
    first, second = (m(ids, places) for m in made)
    assert torch.equal(first, second) and first.std() > 0
    steps = [m["decode"].new_state()(ids[:, :1], places[:1]) for m in made]
    assert torch.equal(*steps) and steps[0].std() > 0


CHILD = """
import os, sys
import coil.gguf
from coil.gguf import _store

written = 0
write = _store.Store.write
def counted(self, at, data):
    global written
    written += len(data)
    return write(self, at, data)
_store.Store.write = counted
def most():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
peaks = []
for path in sys.argv[1:]:
    coil.gguf.import_gguf(path, path + ".coil.pt2", context=16, options={"opt_level": 0})
    peaks.append(most())
print(peaks[1] - peaks[0], written)
"""


@pytest.mark.parametrize("kind", ["q4_0", "q8_0"])
def test_nothing_is_taken_apart_beside_the_file(kind, tmp_path):
    """The peak of memory, the mapped file included, grows by little more than the file; and no temporary file is written."""
    write_random(tmp_path / "small.gguf", kind)
    write_random(tmp_path / "large.gguf", kind, hidden_size=1024, intermediate_size=6144, num_hidden_layers=5)
    done = subprocess.run([sys.executable, "-c", CHILD, tmp_path / "small.gguf", tmp_path / "large.gguf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    grown, written = map(int, done.stdout.split())
    size = (tmp_path / "large.gguf").stat().st_size - (tmp_path / "small.gguf").stat().st_size
    assert written == 0 and size > 60e6 and grown <= 1.2 * size + 30e6, (grown / 1e6, size / 1e6)


def test_a_fused_matrix_is_read_in_parts():
    """Sizes are the file's, of rows that begin within it."""
    data = random_blocks("Q4_0", 8, 2)
    parts = FileParts()
    value = parts.rows("Q4_0", data, [8, 64], 32, None)

    class Shape:
        heads, key_heads, head_size = 2, 1, 2

        class form:
            gated = True

    made = _read._cut("blk.0.attn_qkv.weight", value, Shape)
    wanted = taken_apart("Q4_0", data)[0]
    for name, begin, end in (("q", 0, 4), ("k", 4, 6), ("v", 6, 8)):
        rows = made[f"blk.0.attn_{name}.weight"]
        source = parts.sources[rows.numbers.__array_interface__["data"][0]]
        assert rows.numbers.shape == (end - begin, 64) and source.read(0, len(source)) == wanted[begin:end].tobytes()
