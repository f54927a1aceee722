"""`--require "time <= ..."` and `coil explain --why-slow`: what calls take, beside a record and in sentences."""

import json
import re

import pytest

import planted
from harness import DIGITS, assert_refused, coil, coil_json, coil_ok


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(program, package, inputs)"""
    folder = tmp_path_factory.mktemp("times")
    program, inputs = planted.export(folder)["silu"]
    coil_ok("compile", program, "-q", "-o", folder / "silu.coil.pt2")
    return program, folder / "silu.coil.pt2", inputs


@pytest.fixture
def record(tmp_path):
    return tmp_path / "r.json"


def explain(model, *arguments):
    return coil("explain", model, "--threads", 1, *arguments)


def require(model, text, *arguments):
    return explain(model, "--require", text, *arguments)


def test_a_limit_of_its_own(made):
    _, package, _ = made
    done = require(package, "time <= 10 s")
    assert done.returncode == 0 and "requirement 'time <= 10 s' is met" in done.stdout and "median" in done.stdout
    done = require(package, "time < 0.001 us")
    assert done.returncode == 1 and "requirement 'time < 0.001 us' is not met" in done.stderr and "the limit 1 ns" in done.stderr
    rows = json.loads(require(package, "time <= 5000 ms", "--require", "copies == 0", "--json").stdout)["requirements"]
    assert [(r["requirement"], r["met"]) for r in rows] == [("copies == 0", True), ("time <= 5000 ms", True)]


def test_a_record_is_written_compared_with_and_replaced(made, record):
    _, package, _ = made
    wish = "time <= 1.5 * record"
    done = require(package, wish, "--time-record", record)
    assert_refused(done, str(record), "--update-times", code=402)
    assert done.returncode == 2 and not record.exists()
    done = require(package, wish, "--time-record", record, "--update-times")
    assert done.returncode == 0 and "the record now" in done.stdout
    [row] = json.loads(record.read_text())["times"]
    assert row["sizes"] == {} and row["low_us"] <= row["us"] <= row["high_us"] and "1 thread" in row["machine"]
    # The same calls are within twenty times of themselves, whatever else the machine does; and they are not a hundredth.
    assert require(package, "time <= 20 * record", "--time-record", record).returncode == 0
    assert json.loads(record.read_text())["times"] == [row], "comparing does not write"
    record.write_text(json.dumps({"times": [dict(row, us=row["us"] / 1000)]}))
    done = require(package, "time <= 10*record", "--time-record", record)
    assert done.returncode == 1 and "the record is" in done.stderr and "the limit" in done.stderr
    assert require(package, "time <= 10*record", "--time-record", record, "--update-times").returncode == 0
    [again] = json.loads(record.read_text())["times"]
    assert again["us"] > row["us"] / 20


def test_a_record_of_another_machine_or_of_other_threads_is_no_record(made, record):
    _, package, _ = made
    require(package, "time <= 2 * record", "--time-record", record, "--update-times")
    [row] = json.loads(record.read_text())["times"]
    other = dict(row, machine="A machine\x1b[31m, v9, 1 thread", us=1e-3)
    record.write_text(json.dumps({"times": [other]}))
    done = require(package, "time <= 2 * record", "--time-record", record)
    assert_refused(done, "of another machine", "A machine", row["machine"], "--update-times", code=402)
    assert done.returncode == 2 and "\x1b" not in done.stderr
    # Both are kept; each machine compares with its own.
    assert require(package, "time <= 2 * record", "--time-record", record, "--update-times").returncode == 0
    assert {t["machine"] for t in json.loads(record.read_text())["times"]} == {row["machine"], other["machine"]}
    assert require(package, "time <= 20 * record", "--time-record", record).returncode == 0
    assert coil("explain", package, "--threads", 2, "--require", "time <= 20 * record", "--time-record", record).returncode == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"times": 3}', '{"times": [3]}', '{"times": [{"us": "fast", "machine": "m", "sizes": {}}]}', '{"times": [{"us": 3}]}', "\0\0", "[" * 100000])
def test_a_damaged_record_is_refused_and_stays_as_it_is(made, record, text):
    _, package, _ = made
    record.write_text(text)
    for more in ([], ["--update-times"]):
        assert_refused(require(package, "time <= 2 * record", "--time-record", record, *more), str(record), "record of times")
        assert record.read_text() == text


def test_a_record_that_cannot_be_written(made, tmp_path):
    done = require(made[1], "time <= 2 * record", "--time-record", tmp_path / "none" / "r.json", "--update-times")
    assert_refused(done, "r.json")


@pytest.mark.parametrize("text", ["time", "time <= ", "time <= 3", "time <= 3 apples", "time == 3 ms", "time >= 3 ms", "time(batch=1 <= 3 ms", "time <= 0 * record", "time <= record * 2", "time <= -1 ms",
                                  "time <= " + "9" * 40 + " ms", "time(" + "(" * 2000, "time <= 1e3 ms"])
def test_what_is_no_requirement_about_time_is_refused(made, text):
    assert_refused(require(made[1], text), "--require", code=402)


def test_sizes_have_records_of_their_own(record):
    """The digits have a dynamic batch."""
    name = "batch"
    for size in (1, 64):
        assert require(DIGITS, f"time({name}={size}) <= 1.2 * record", "--time-record", record, "--update-times").returncode == 0
    times = {t["sizes"][name]: t["us"] for t in json.loads(record.read_text())["times"]}
    assert set(times) == {1, 64} and times[64] > times[1]
    assert require(DIGITS, f"time({name}=64) <= 20 * record", "--require", f"time({name} = 1) <= 20 * record", "--time-record", record).returncode == 0
    assert_refused(require(DIGITS, f"time({name}=3) <= 20 * record", "--time-record", record), "no time of such calls", code=402)
    assert_refused(require(DIGITS, "time(nothing=3) <= 5 ms"), "nothing")
    assert_refused(require(DIGITS, f"time({name}=many) <= 5 ms"), "many")


def test_the_record_lies_beside_the_model(made, tmp_path):
    program, package, _ = made
    done = coil("compile", program, "-q", "-o", tmp_path / "m.coil.pt2", "--require", "time <= 1.2 * record", "--update-times")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.coil.times.json").exists()
    done = coil("compile", program, "-q", "-o", tmp_path / "m.coil.pt2", "--require", "time < 0.001 us")
    assert done.returncode == 1 and (tmp_path / "m.coil.pt2").exists(), "the package is there to be looked at"


def test_why_slow_says_what_a_calls_time_is_made_of(made):
    program, package, inputs = made
    for model in (program, package):
        text = coil_ok("explain", model, "--why-slow", "-i", inputs, "--threads", 1).stdout
        first = text.splitlines()[0]
        found = re.search(r"A call takes .*: ([\d.]+) % in (\d+) kernels?, ([\d.]+) % in the host", first)
        assert found and abs(float(found[1]) + float(found[3]) - 100) <= 1.1, first
        functions = [k["name"] for k in coil_json("inspect", package)["kernels"]]
        assert int(found[2]) == len(functions) and any(f in text for f in functions)
        assert "default rules" in text or "not tuned" in text, "who chose the variants"
    rows = json.loads(coil_ok("explain", package, "--why-slow", "--json").stdout)
    assert "A call takes" in rows["text"] and rows["requirements"] == []


def test_why_slow_names_the_slow_kernel_first(made, tmp_path):
    """Of a program in which one kernel wastes milliseconds."""
    program, _, inputs = made
    (function, options), *_ = planted.planted(program, tmp_path, planted.slow)
    sentences = coil_ok("explain", program, "--why-slow", "-i", inputs, "--threads", 1, *options).stdout.splitlines()
    name = next(k["name"] for k in coil_json("inspect", made[1])["kernels"] if k["function"] and function.startswith(k["function"][:-9]))
    assert name in sentences[1], sentences


def test_why_slow_of_what_has_no_kernels_and_of_wrong_inputs(tmp_path, made):
    import torch

    class Same(torch.nn.Module):
        def forward(self, x):
            return x.view(-1)

    torch.export.save(torch.export.export(Same(), (torch.ones(3, 2),)), tmp_path / "same.pt2")
    assert "A call takes" in coil_ok("explain", tmp_path / "same.pt2", "--why-slow").stdout
    assert_refused(coil("explain", made[1], "--why-slow", "-i", tmp_path / "none.npz"), "none.npz")
