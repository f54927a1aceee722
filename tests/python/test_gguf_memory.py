"""coil import-gguf: programs of 16-bit floats, and memory that does not grow with the file."""

import json
import subprocess
import sys

import pytest
import torch

import coil
import coil.gguf
import harness
from test_gguf import IDS, python, reference, write  # noqa: F401 (python is a fixture)


@pytest.mark.parametrize("kind,dtype", [("F16", "float16"), ("Q4_0", "bfloat16")])
def test_programs_in_16_bits(kind, dtype, tmp_path):
    """Near the logits of the dequantised model; weights of 16 bits take 2 bytes each."""
    floats = write(tmp_path / "m.gguf", kind, "llama", False)
    harness.coil_ok("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "m.coil.pt2", "-O", "1", "--dtype", dtype)
    package = coil.load(tmp_path / "m.coil.pt2")
    with torch.no_grad():
        want = reference(floats, "llama")(IDS).logits
    found = package(IDS, torch.arange(8))
    assert found.dtype == getattr(torch, dtype)
    assert (found.float() - want).abs().max() < (0.05 if dtype == "bfloat16" else 0.01) * want.abs().max()
    shown = harness.coil_ok("inspect", tmp_path / "m.coil.pt2", "--program", "decode", "--json").stdout
    constants, numbers = json.loads(shown)["memory"]["constants_bytes"], sum(v.size for v in floats.values())
    assert constants < 2.3 * numbers, constants / numbers


def test_other_types_are_refused(tmp_path):
    write(tmp_path / "m.gguf", "F16")
    harness.assert_refused(harness.coil("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "x.pt2", "--dtype", "float64"), "float64", code=402)


def test_floats_that_can_stay_are_those_of_the_file(tmp_path):
    write(tmp_path / "m.gguf", "F16", "qwen2", False)
    model = coil.gguf.load_gguf(tmp_path / "m.gguf", dtype="float16")
    mapped = [line.split()[0].split("-") for line in open("/proc/self/maps") if line.rstrip().endswith("m.gguf")]
    for weight in (model.output, model.blk[1].ffn.up):
        address = weight.floats.data_ptr()
        assert any(int(begin, 16) <= address < int(end, 16) for begin, end in mapped)


# Imports a small file, then a large one: how much more memory the process has at most, its own and with that of mapped files, sampled all along.
CHILD = """
import os, sys, threading, time
import coil.gguf

peak = [0, 0]
def watch():
    while True:
        with open("/proc/self/status") as status:
            now = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in status if line.startswith(("RssAnon", "VmRSS"))}
        peak[:] = max(peak[0], now["RssAnon"]), max(peak[1], now["VmRSS"])
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
peaks = []
for path in sys.argv[2:]:
    coil.gguf.import_gguf(path, path + ".coil.pt2", context=16, dtype=sys.argv[1], options={"opt_level": 0})
    peaks.append(list(peak))
print(peaks[1][0] - peaks[0][0], peaks[1][1] - peaks[0][1])
"""


@pytest.mark.parametrize("kind,dtype", [("f16", "float16"), ("q4_0", "float32")])
def test_memory_is_bounded(kind, dtype, tmp_path):
    sys.path.insert(0, str(harness.REPO / "bench"))
    from random_gguf import write as write_random

    files = [tmp_path / "small.gguf", tmp_path / "large.gguf"]
    for file, width, inner in zip(files, (256, 1024), (512, 6144)):
        write_random(dict(hidden_size=width, num_attention_heads=8, num_key_value_heads=4, vocab_size=1000, intermediate_size=inner, num_hidden_layers=5), kind, file)
    done = subprocess.run([sys.executable, "-c", CHILD, dtype, *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (own, whole), weights = map(int, done.stdout.split()), files[1].stat().st_size - files[0].stat().st_size
    most = 0.8 if kind == "q4_0" else 1.2  # of quantised types the file's pages are given back as they are packed
    assert weights > 40e6 and own <= whole <= most * weights, (own / 1e6, whole / 1e6, weights / 1e6)
