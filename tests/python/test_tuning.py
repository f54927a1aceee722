"""The tuner: what it writes, that a record makes the same package again, and that every choice a record can name computes the right thing."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import harness
from tuned_programs import exported_programs, inputs


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return exported_programs(tmp_path_factory.mktemp("tuning"))


@pytest.fixture(scope="module")
def records(programs, tmp_path_factory):
    """name -> a record of a short tuning."""
    folder = tmp_path_factory.mktemp("records")
    made = {}
    for name, (path, _) in programs.items():
        harness.coil_ok("compile", path, "-o", folder / f"{name}.coil.pt2", "--tune", "max", "--tune-budget", "20s", "--record", folder / f"{name}.json",
                        "--tune-log", folder / f"{name}.txt")
        made[name] = folder / f"{name}.json"
    return made


@pytest.mark.parametrize("name", ("net", "mlp"))
def test_a_tuned_package_is_right_and_replays(name, programs, records, tmp_path):
    path, module = programs[name]
    package = records[name].with_suffix("").with_suffix(".coil.pt2")
    for batch in (1, 2, 7, 33, 64):
        x = inputs(name, batch)
        assert harness.max_error(harness.call(package, x, tmp_path), harness.eager(module, x)) < 1e-5
    again = tmp_path / package.name
    harness.coil_ok("compile", path, "-o", again, "--replay", records[name])
    assert again.read_bytes() == package.read_bytes()


def test_what_a_record_and_its_tables_say(records):
    record = json.loads(records["net"].read_text())
    assert record["coil_tuning"] == 1 and record["hardware"]["threads"] >= 1 and record["runs"] > 10
    problems = [p["problem"] for p in record["problems"]]
    assert len(problems) == len(set(problems)) >= 3
    winograd = [t for p in record["problems"] for m in p["measured"] for t in m["timings"] if t["choice"] in ("winograd", "direct")]
    assert winograd and all(t["median_us"] > 0 for t in winograd if "fault" not in t)
    assert not any("fault" in t for p in record["problems"] for m in p["measured"] for t in m["timings"])
    (whole,) = record["whole_program"]
    assert whole["untuned_us"] > 0 and whole["tuned_us"] > 0
    tables = records["net"].with_suffix(".txt").read_text()
    assert "AUTOTUNE conv2d x [2, 16, 24, 24]" in tables and "<- chosen" in tables


CHOICES = ({"method": 1}, {"method": 2}, {"method": 2, "block_tiles": 1, "block_panels": 1}, {"method": 2, "block_tiles": 99, "block_panels": 99}, {"method": 3}, {"threads": 1},
           {"method": 2, "block_tiles": 3, "block_panels": 2, "threads": 1})


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_every_choice_of_convolutions_is_right(choice, programs, records, tmp_path):
    path, module = programs["net"]
    record = json.loads(records["net"].read_text())
    given = 0
    for p in record["problems"]:
        if p["problem"].startswith("fusion"):
            continue
        fits = p["problem"].startswith("conv2d") and (choice.get("method") != 3 or "48, 3, 3]" in p["problem"])
        p["rows"] = [{"up_to": None, "choice": choice if fits else {}, "text": ""}]
        given += fits
    assert given
    (tmp_path / "r.json").write_text(json.dumps(record))
    harness.coil_ok("compile", path, "-o", tmp_path / "p.pt2", "--replay", tmp_path / "r.json")
    assert harness.max_error(harness.call(tmp_path / "p.pt2", inputs("net", 2), tmp_path), harness.eager(module, inputs("net", 2))) < 1e-5


def test_choices_by_size(programs, records, tmp_path):
    path, module = programs["mlp"]
    record = json.loads(records["mlp"].read_text())
    for p in record["problems"]:
        if p["problem"].startswith("fusion"):
            continue
        blocks = {"block_tiles": 2, "block_panels": 1} if p["problem"].startswith("gemm") else {"chunk_work": 2048}
        p["rows"] = [{"up_to": 3, "choice": {"threads": 1}, "text": ""}, {"up_to": 20, "choice": blocks, "text": ""}, {"up_to": None, "choice": {}, "text": ""}]
    (tmp_path / "r.json").write_text(json.dumps(record))
    harness.coil_ok("compile", path, "-o", tmp_path / "p.pt2", "--replay", tmp_path / "r.json")
    for batch in (1, 3, 4, 20, 21, 64):
        x = inputs("mlp", batch)
        assert harness.max_error(harness.call(tmp_path / "p.pt2", x, tmp_path), harness.eager(module, x)) < 1e-5
    shown = harness.coil_ok("inspect", tmp_path / "p.pt2").stdout
    assert "1-3: one thread, 4-20: blocks of 2 tiles x 1 panels, 21-: default" in shown, shown


@pytest.mark.parametrize("name,way", [("net", 1), ("mlp", 1), ("mlp", 2), ("mlp", 3), ("mlp", 4)])
def test_every_way_of_fusion_is_right(name, way, programs, records, tmp_path):
    """A record that asks for it is kept, and what the kernels of such a program lack is tuned."""
    path, module = programs[name]
    record = json.loads(records[name].read_text())
    (fusion,) = [p for p in record["problems"] if p["problem"].startswith("fusion")]
    fusion["rows"] = [{"up_to": None, "choice": {"way": way}, "text": ""}]
    (tmp_path / "r.json").write_text(json.dumps(record))
    tuned, again, own = (tmp_path / folder / "p.pt2" for folder in ("tuned", "again", "own"))
    for package in (tuned, again, own):
        package.parent.mkdir()
    harness.coil_ok("compile", path, "-o", tuned, "--tune", "fast", "--tune-budget", "10s", "--record", tmp_path / "r.json")
    for batch in (1, 7, 64):
        x = inputs(name, batch)
        assert harness.max_error(harness.call(tuned, x, tmp_path), harness.eager(module, x)) < 1e-5
    harness.coil_ok("compile", path, "-o", again, "--replay", tmp_path / "r.json")
    assert again.read_bytes() == tuned.read_bytes()
    kernels = [harness.coil_json("compile", path, "-o", own, *more)["kernels"] for more in ([], ["--replay", tmp_path / "r.json"])]
    assert way != 1 or kernels[1] > kernels[0], kernels


@pytest.mark.parametrize("way,kernels", [(0, {2, 3}), (5, {2}), (6, {4})])
def test_reductions_in_one_step_or_two(way, kernels, tmp_path):
    import torch

    class Sums(torch.nn.Module):
        def forward(self, x, y):
            return x.sum(), y.sum(1)

    args = torch.randn(200000), torch.randn(3, 30000)
    torch.export.save(torch.export.export(Sums(), args), tmp_path / "p.pt2")
    harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / "own.pt2", "--tune", "max", "--tune-budget", "10s", "--record", tmp_path / "r.json")
    record = json.loads((tmp_path / "r.json").read_text())
    (fusion,) = [p for p in record["problems"] if p["problem"].startswith("fusion")]
    fusion["rows"] = [{"up_to": None, "choice": {"way": way} if way else {}, "text": ""}]
    record["problems"] = [fusion]
    (tmp_path / "r.json").write_text(json.dumps(record))
    report = harness.coil_json("compile", tmp_path / "p.pt2", "-o", tmp_path / "q.pt2", "--tune", "fast", "--tune-budget", "10s", "--record", tmp_path / "r.json")
    assert report["kernels"] in kernels, report["kernels"]
    np.savez(tmp_path / "in.npz", in_0=args[0].numpy(), in_1=args[1].numpy())
    harness.coil_ok("run", tmp_path / "q.pt2", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    for got, want in zip(harness.load_outputs(tmp_path / "out.npz"), Sums()(*args), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=2e-3)


def test_records_that_do_not_fit(programs, records, tmp_path):
    path, _ = programs["net"]
    good = json.loads(records["net"].read_text())

    def replay(record):
        (tmp_path / "r.json").write_text(record if isinstance(record, str) else json.dumps(record))
        return harness.coil("compile", path, "-o", tmp_path / "p.pt2", "--replay", tmp_path / "r.json")

    missing = copy.deepcopy(good)
    gone = missing["problems"].pop(1)
    harness.assert_refused(replay(missing), gone["problem"], code=407)
    harness.assert_refused(replay("{"), "r.json", code=407)
    for choice, at in (({"method": 9}, 1), ({"speed": 2}, 1), ({"threads": -1}, 1), ({"way": 99}, 0), ({"speed": 2}, 0)):
        strange = copy.deepcopy(good)
        strange["problems"][at]["rows"] = [{"up_to": None, "choice": choice, "text": ""}]
        harness.assert_refused(replay(strange), "choice for", code=407)
    unordered = copy.deepcopy(good)
    unordered["problems"][0]["rows"] = [{"up_to": 5, "choice": {}, "text": ""}]
    harness.assert_refused(replay(unordered), "do not rise", code=407)
    assert not (tmp_path / "p.pt2").exists()


def test_known_problems_are_not_timed_again(programs, records, tmp_path):
    path, _ = programs["net"]
    record = tmp_path / "r.json"
    record.write_bytes(records["net"].read_bytes())
    report = harness.coil_json("compile", path, "-o", tmp_path / "p.pt2", "--tune", "fast", "--record", record)
    assert report["tuning"]["runs"] == 0
    assert json.loads(record.read_text())["problems"] == json.loads(records["net"].read_text())["problems"]


def test_records_merge(programs, records, tmp_path):
    record = tmp_path / "r.json"
    record.write_bytes(records["mlp"].read_bytes())
    harness.coil_ok("compile", programs["net"][0], "-o", tmp_path / "p.pt2", "--tune", "fast", "--tune-budget", "500ms", "--record", record)
    both = {p["problem"] for p in json.loads(record.read_text())["problems"]}
    for name in ("net", "mlp"):
        kernels = {p["problem"] for p in json.loads(records[name].read_text())["problems"] if not p["problem"].startswith("fusion")}
        assert kernels <= both or name == "net"  # whose loops the record may have fused another way


def test_hints(tmp_path):
    import torch

    module = torch.nn.Sequential(torch.nn.Conv2d(24, 32, 3, padding=1), torch.nn.Conv2d(32, 33, 3, padding=1), torch.nn.Conv2d(33, 48, 1)).eval()
    torch.export.save(torch.export.export(module, (torch.randn(1, 24, 32, 32),)), tmp_path / "conv.pt2")
    hints = harness.coil_json("compile", tmp_path / "conv.pt2")["hints"]
    assert len(hints) == 2 and "24 input channels are no multiple of 16: no Winograd filtering" in hints[0], hints
    assert "33 output channels are no multiple of 16: 31 % of the sums are padding" in hints[1], hints
    assert harness.coil_json("compile", harness.DIGITS, "-o", tmp_path / "digits.pt2")["hints"] == []


def test_hints_for_gpus(tmp_path):
    """Rows that begin between multiples of 16 bytes: of what the call brings; weights of the package are laid out as products read them."""
    import torch

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(1026, 512, dtype=torch.bfloat16)

        def forward(self, x, w):
            return x @ w, self.last(x * 2)

    args = torch.randn(1024, 1026, dtype=torch.bfloat16), torch.randn(1026, 512, dtype=torch.bfloat16)
    torch.export.save(torch.export.export(Product().eval(), args), tmp_path / "odd.pt2")
    (hint, *more) = harness.coil_json("compile", tmp_path / "odd.pt2", "--target", "cuda:sm_90", "-o", tmp_path / "odd.coil.pt2")["hints"]
    assert "rows of 'x' begin 1026 elements apart, no multiple of 8 (16 bytes)" in hint and "pad them to 1032" in hint and "test_tuning.py" in hint, hint
    assert not more, more


def test_memory_bounds_what_the_tuner_adds(programs, tmp_path):
    path, _ = programs["net"]

    def compiled(*options):
        return harness.coil_json("compile", path, "-o", tmp_path / "p.pt2", "--tune", "fast", "--tune-budget", "60s", *options)["tuning"]

    def choices(tuning):
        return {t["choice"] for p in tuning["problems"] for m in p["measured"] for t in m["timings"]}

    much, little = choices(compiled("--tune-memory", "1GiB")), choices(compiled("--tune-memory", "1KB"))
    assert "default" in much and "default" in little, "the budget ended before anything was timed"
    assert much & {"winograd", "direct"} and not little & {"winograd", "direct"}
    harness.assert_refused(harness.coil("compile", path, "--tune", "fast", "--tune-memory", "much"), "64MB", code=402)


def test_options_that_make_no_sense(programs, tmp_path):
    path, _ = programs["mlp"]
    out = ["-o", tmp_path / "p.pt2"]
    for options, text in ((["--tune-budget", "3s"], "need a tuner"), (["--tune-log", "t.txt"], "what a tuner timed"), (["--tune", "hard"], "off, fast or max"), (["--tune", "fast", "--tune-budget", "soon"], "no duration"), (["--tune", "fast", "--warm", "rows=3"], "no dynamic dimension"),
                          (["--tune", "fast", "--warm", "batch=65"], "1 to 64"), (["--tune", "fast", "--warm", "batch"], "NAME=SIZE"), (["--replay", tmp_path / "none.json"], "none.json"),
                          (["--tune", "fast", "--target", "cpu,cuda:sm_90"], "of one device"), (["--tune", "fast", "--target", "cuda:compute_80"], "name one in --target")):
        harness.assert_refused(harness.coil("compile", path, *out, "--dim", "batch=input:0", *options), text)
        assert not (tmp_path / "p.pt2").exists()


def test_from_python(programs, tmp_path):
    import torch

    import coil

    path, module = programs["mlp"]
    record = tmp_path / "r.json"
    model = coil.compile(path, options={"tune": "fast", "tune_budget": "5s", "record": record, "dims": {"rows": "input:0"}, "warm": {"rows": [3, 50]}})
    tried = {m["sizes"]["rows"] for p in json.loads(record.read_text())["problems"] for m in p["measured"]}
    assert {3, 50} <= tried
    x = torch.randn(5, 300)
    torch.testing.assert_close(model(x), module(x), atol=1e-5, rtol=1e-5)
    again = coil.compile(path, tmp_path / "again.pt2", options={"replay": record, "dims": {"rows": "input:0"}})
    torch.testing.assert_close(again(x), model(x), atol=0, rtol=0)
    assert model.report["tuning"]["runs"] > 0


def test_do_bench():
    import time

    import coil

    calls = []

    def call():
        calls.append(0)
        time.sleep(0.002)

    assert coil.do_bench(call, warmup=0, rep=0) >= 2 and len(calls) == 4
    low, high = coil.do_bench(call, warmup=0, rep=20, quantiles=(0.0, 1.0))
    times = coil.do_bench(call, warmup=0, rep=20, return_mode="all")
    assert 2 <= low <= high and times == sorted(times) and len(times) >= 3
    waited = []
    coil.do_bench(lambda: None, warmup=0, rep=0, synchronize=lambda: waited.append(0))
    assert len(waited) == 6
    for wrong in ({"return_mode": "mode"}, {"quantiles": (1.5,)}):
        with pytest.raises(coil.OptionError):
            coil.do_bench(call, **wrong)


def test_stock_pytorch_runs_a_tuned_package(programs, records):
    code = f"""
import torch
model = torch._inductor.aoti_load_package({str(records['net'].with_suffix('').with_suffix('.coil.pt2'))!r})
print(tuple(model(torch.ones(2, 16, 24, 24)).shape))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.stdout.strip() == "(2, 32)", done.stdout + done.stderr
