"""Tokens that a device chooses are those that the host chooses of the same logits, by every rule; several steps without looking give the same text."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import coil.llm
import emulated_cuda
import harness
import sampled_table

ROWS = 5
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
HERE = pathlib.Path(__file__)


def emulated(table, dtype, folder):
    sampled_table.export(table, DTYPES[dtype], folder / "table.pt2")
    program = emulated_cuda.Emulated(folder / "table.pt2", folder, level="-O1")
    assert program.compiled.returncode == 0, program.compiled.stderr
    return program


def compared(program, cases):
    """What main() of sampled_table.py finds."""
    path = program.folder / "cases.json"
    path.write_text(json.dumps(cases))
    done = subprocess.run([sys.executable, HERE.with_name("sampled_table.py"), program.package, path], capture_output=True, text=True, env=dict(program.environment(), PYTHONPATH=str(harness.PYTHON_PATH)), timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def random_cases(vocabulary, count, seed):
    random = np.random.default_rng(seed)

    def some(value, share=0.5):
        return value if random.random() < share else None

    cases = []
    for _ in range(count):
        bias = {str(int(t)): float(b) for t, b in zip(random.integers(0, vocabulary, 3), random.standard_normal(3) * 5)}
        rules = {"temperature": float(random.choice([0, 0.3, 1, 2.5])), "top_k": some(int(random.choice([1, 3, 40, vocabulary + 5]))),
                 "top_p": some(float(random.choice([1e-6, 0.3, 0.9, 0.999]))), "min_p": some(float(random.choice([0.01, 0.2])), 0.3),
                 "repetition_penalty": some(float(random.choice([0.7, 1.3])), 0.4), "bias": some(bias, 0.3), "seed": int(random.integers(0, 2**62))}
        cases.append({"prompt": [int(t) for t in random.integers(0, vocabulary, 4)], "count": int(random.integers(1, 9)), "allow": vocabulary > 1 and bool(random.random() < 0.15),
                      "sampling": {k: v for k, v in rules.items() if v is not None}})
    return cases


SMALL = [(1, "f32", "plain"), (2, "bf16", "ties"), (31, "f16", "never"), (257, "bf16", "infinite"), (1030, "f32", "equal"), (3000, "bf16", "far")]


@pytest.mark.parametrize("vocabulary, dtype, kind", SMALL)
def test_small_vocabularies(vocabulary, dtype, kind, tmp_path):
    program = emulated(sampled_table.logits_of(kind, ROWS, vocabulary, 7), dtype, tmp_path)
    cases = random_cases(vocabulary, 25 if vocabulary > 1000 else 60, vocabulary)
    for case, found in zip(cases, compared(program, cases)):
        assert found["device"] == [found["host"]] * 2, case
        assert found["host"][1] == "" and len(found["host"][0]) == case["count"], case


@pytest.mark.parametrize("vocabulary, dtype", [(32000, "bf16"), (128256, "f32")])
def test_vocabularies_of_models(vocabulary, dtype, tmp_path):
    program = emulated(sampled_table.logits_of("plain", ROWS, vocabulary, 3), dtype, tmp_path)
    rules = [{}, {"temperature": 1.0, "seed": 1}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 2}]
    cases = [{"prompt": [5, 6], "count": 3, "sampling": s, "steps": [0]} for s in rules]
    for case, found in zip(cases, compared(program, cases)):
        assert found["device"] == [found["host"]] and len(found["host"][0]) == 3, case
    texts = [f["host"][0] for f in compared(program, [{**cases[1], "sampling": {"temperature": 1.0, "seed": s}, "steps": []} for s in range(4)])]
    assert len({tuple(t) for t in texts}) > 1, "seeds that say one thing prove little"


def test_stops_errors_and_full_caches(tmp_path):
    table = sampled_table.logits_of("plain", ROWS, 40, 11)
    table[4] = np.nan  # after tokens 4, 9, 14, ...
    table[3] = -np.inf
    table[0:3, 3::5] = table[0:3, 4::5] = -50
    program = emulated(table, "f32", tmp_path)
    free = {"prompt": [0], "count": 20, "sampling": {"temperature": 1.5, "seed": 3}, "steps": [0, 1, 7, 64]}
    text = compared(program, [free])[0]["host"][0]
    cases = [free, {**free, "stop": [text[4], text[11]]}, {**free, "stop": [text[0]]}, {**free, "prompt": [4]}, {**free, "prompt": [3]},
             {**free, "count": sampled_table.CONTEXT + 5}, {**free, "sampling": {"bias": {"9": 100.0}}}]
    found = compared(program, cases)
    for case, one in zip(cases, found):
        assert all(d[0] == one["host"][0] for d in one["device"]), case
        assert all(d[1].split(":")[0] == one["host"][1].split(":")[0] for d in one["device"]), case
    assert [len(f["host"][0]) for f in found] == [20, text.index(text[4]) + 1, 1, 0, 0, sampled_table.CONTEXT, 1]
    assert "NaN" in found[3]["device"][0][1] and "allowed" in found[4]["device"][0][1] and "caches are full" in found[5]["device"][2][1], found
    assert "NaN" in found[6]["device"][0][1]


@pytest.mark.parametrize("form", ["int32", "start", "tensor", "single", "programs"])
def test_forms_of_programs(form, tmp_path):
    """The device writes the next token and its place where the program reads them, whatever their types; a prompt may have a program of its own."""
    table = sampled_table.logits_of("plain", ROWS, 90, 21)
    sampled_table.export(table, torch.float32, tmp_path / "table.pt2", "places" if form == "programs" else form)
    more = []
    if form == "programs":
        sampled_table.export(table, torch.float32, tmp_path / "single.pt2", "single")
        more = [tmp_path / "single.pt2"]
    program = emulated_cuda.Emulated(tmp_path / "table.pt2", tmp_path, options=more)
    assert program.compiled.returncode == 0, program.compiled.stderr
    greedy = {"prompt": [3, 1, 4], "count": 12, "sampling": {}, "steps": [0, 1, 5]}
    cases = [greedy, {**greedy, "sampling": {"temperature": 1.0, "repetition_penalty": 1.2, "seed": 4}}, {**greedy, "count": sampled_table.CONTEXT + 9}]
    for case, found in zip(cases, compared(program, cases)):
        assert [d[0] for d in found["device"]] == [found["host"][0]] * 3 and len(found["host"][0]) == min(case["count"], sampled_table.CONTEXT - 2), case
        assert all(d[1].split(":")[0] == found["host"][1].split(":")[0] for d in found["device"]), found


def test_several_conversations_in_a_call(tmp_path):
    sampled_table.export_slots(sampled_table.logits_of("ties", ROWS, 300, 5), torch.bfloat16, 3, tmp_path / "table.pt2")
    program = emulated_cuda.Emulated(tmp_path / "table.pt2", tmp_path, level="-O1")
    assert program.compiled.returncode == 0, program.compiled.stderr
    cases = random_cases(300, 8, 17)
    for case, found in zip(cases, compared(program, cases)):
        assert found["device"] == [found["host"]] * 2 and len(found["host"][0]) == case["count"], case


def test_a_seed_means_the_same_on_cpu_and_device(tmp_path):
    program = emulated(sampled_table.logits_of("plain", ROWS, 3000, 5), "f32", tmp_path)
    harness.coil_ok("compile", tmp_path / "table.pt2", "-q", "-o", tmp_path / "cpu.pt2")
    cases = random_cases(3000, 10, 99)
    generator = coil.llm.Generator(tmp_path / "cpu.pt2")
    assert not generator._generator.chooses
    on_cpu = [sampled_table.tokens_of(generator, case, None)[:2] for case in cases]
    assert [f["device"][0] for f in compared(program, cases)] == on_cpu


@pytest.mark.skipif(not any(pathlib.Path(p).exists() for p in ("/usr/local/cuda/lib64/libnvrtc.so.13", os.environ.get("COIL_NVRTC", "/no"))), reason="needs NVRTC")
def test_nvrtc_takes_the_kernels(tmp_path):
    sampled_table.export(sampled_table.logits_of("plain", ROWS, 50, 1), torch.float16, tmp_path / "table.pt2")
    harness.coil_ok("compile", tmp_path / "table.pt2", "--target", "cuda:sm_80,cuda:sm_90", "-q", "-o", tmp_path / "m.pt2")
    shown = harness.coil_ok("inspect", tmp_path / "m.pt2", "--json").stdout
    assert "sm_80" in shown and "sm_90" in shown
