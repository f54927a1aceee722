"""A sample of the conformance run (tests/conformance): what docs/coverage.md says is right must be, nothing may be wrong or crash."""

import sys

import pytest

import harness

sys.path.insert(0, str(harness.REPO / "tests/conformance"))

WANTED = 56  # pairs that are right, spread over the table
OTHERS = 8  # pairs that are refused
SECONDS = 240  # no new pair is begun after these
THROUGH_TORCH = 20  # entries of each kind through torch.compile
REFUSALS = {"errors": 3, "dtypes": 8, "zeros": 8}  # entries of each kind of errors.py
KNOWN_FAULTS = 0  # entries of what is kept that are not right yet
WAYS = {"compiled": "compiled", "gradient": "gradients"}  # columns and what judges them


def table():
    """{(entry, dtype or one of WAYS): mark} of docs/coverage.md."""
    lines = (harness.REPO / "docs/coverage.md").read_text().split("## Pairs")[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {(row[0], dtype): mark for row in rows[1:] for dtype, mark in zip(rows[0][1:], row[1:]) if mark}


def spread(pairs, count):
    """So many of them, in equal steps."""
    return [pairs[i * len(pairs) // count] for i in range(min(count, len(pairs)))]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    import run

    marks = table()
    marks = {pair: mark for pair, mark in marks.items() if pair[1] not in WAYS}
    chosen = [*spread([p for p, mark in marks.items() if mark == "✓"], WANTED), *spread([p for p, mark in marks.items() if mark[0].isdigit()], OTHERS)]
    path = tmp_path_factory.mktemp("conformance") / "results.jsonl"
    run.judge_all(chosen, harness.JOBS, path, SECONDS)
    return marks, run.read_results(path)


def test_enough_pairs_ran(results):
    assert len(results[1]) >= WANTED // 2


def test_right_stays_right(results):
    marks, found = results
    lost = {pair: (r["status"], r["reason"]) for pair, r in found.items() if marks[pair] == "✓" and r["status"] != "right"}
    assert not lost


def test_what_fails_is_refused(results):
    marks, found = results
    bad = {pair: (r["status"], r["reason"]) for pair, r in found.items() if r["status"] not in ("right", "refused")}
    assert not bad


@pytest.mark.parametrize("column", WAYS)
def test_through_torch_compile(tmp_path, column):
    import run

    right = [(name, "float32") for (name, what), mark in table().items() if what == column and mark == "✓"]
    chosen = spread(right, THROUGH_TORCH)
    assert len(chosen) == THROUGH_TORCH
    run.judge_all(chosen, harness.JOBS, tmp_path / "results.jsonl", way=WAYS[column])
    found = run.read_results(tmp_path / "results.jsonl")
    assert {pair: (r["status"], r["reason"]) for pair, r in found.items()} == {pair: ("right", "") for pair in chosen}


def test_what_eager_refuses_is_refused(tmp_path):
    """A part of errors.py: entries of its three kinds whose calls reach coil, spread over what is kept."""
    import errors
    import run

    kept = run.read_results(run.KEPT / "errors.jsonl.xz")
    faults = {pair: r["reason"] for pair, r in kept.items() if r["status"] != "right"}
    assert len(kept) > 1500 and len(faults) <= KNOWN_FAULTS, faults
    chosen = []
    for kind, count in REFUSALS.items():
        asked = [pair for pair, r in kept.items() if pair[1] == kind and r["status"] == "right" and 0 < sum(n for s, n in r["calls"].items() if s not in ("eager", "export")) <= 8]
        chosen += spread(asked, count)
    assert len(chosen) == sum(REFUSALS.values())
    run.judge_all(chosen, harness.JOBS, tmp_path / "results.jsonl", SECONDS, way="errors")
    found = run.read_results(tmp_path / "results.jsonl")
    assert len(found) >= len(chosen) // 2
    assert {pair: r["reason"] for pair, r in found.items() if r["status"] != "right"} == {}
    assert sum(sum(r["calls"].get(s, 0) for s in ("refused", "raised", "right")) for r in found.values()) >= len(found)
    assert errors.OF_ERRORS[0] == "answers"


def test_an_answer_to_what_eager_refuses_is_seen(tmp_path, monkeypatch):
    """A program that computes something else than the call that eager refuses."""
    import errors
    import samples
    import torch

    entry = samples.entries()["add"]
    call = next(c.call for c in errors.zero_cases(entry))
    refusing = errors.Case("error", call)
    answers = errors.eager(call)
    results = iter([(None, RuntimeError("refused")), answers, answers])
    monkeypatch.setattr(errors, "eager", lambda *_: next(results))
    monkeypatch.setattr(errors, "ends_the_process", lambda call: False)
    assert errors.judge(refusing, tmp_path)[0] == "answers"
    assert torch.is_tensor(answers[0][0])


def test_a_wrong_gradient_is_seen():
    import gradients
    import torch

    x = torch.tensor([1.0, 2.0, float("nan")])
    assert gradients.difference([x.clone(), None], [x, None], None, None) is None
    assert gradients.difference([None], [torch.zeros(3)], None, None) is None
    for ours in (x + 1, x.double(), x[:2], None):
        assert gradients.difference([ours], [x], None, None)


def test_a_wrong_result_is_seen():
    """The comparison itself: another value, dtype, shape, or NaN is no match."""
    import evaluate
    import torch

    x = torch.tensor([1.0, 2.0, float("nan")])
    assert evaluate.close(x.clone(), x, x.double(), None) is None
    assert evaluate.close(x + 1, x, x.double(), None)
    assert evaluate.close(x.double(), x, x.double(), None)
    assert evaluate.close(x[:2], x, x.double(), None)
    assert evaluate.close(torch.tensor([1.0, 2.0, 3.0]), x, x.double(), None)
    assert evaluate.close(torch.tensor([1, 2]), torch.tensor([1, 3]), None, None)


def test_results_are_kept(tmp_path, monkeypatch):
    """New rows take the place of old ones of their pairs, and equal rows give equal bytes."""
    import json

    import run

    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    rows = [{"name": name, "dtype": "float32", "status": "right", "reason": "", "seconds": 1.5, "day": "2026-01-01"} for name in ("exp", "abs")]
    file = tmp_path / "new.jsonl"
    written = []
    for order in (rows, rows[::-1]):
        file.write_text("".join(json.dumps(r) + "\n" for r in order))
        run.keep("standalone", file)
        written.append((tmp_path / "kept/standalone.jsonl.xz").read_bytes())
    assert written[0] == written[1]
    file.write_text(json.dumps({**rows[0], "status": "wrong", "reason": "1 instead of 2", "day": "2026-02-02"}) + "\n")
    run.keep("standalone", file)
    kept = run.read_results(tmp_path / "kept/standalone.jsonl.xz")
    assert {pair[0]: r["status"] for pair, r in kept.items()} == {"abs": "right", "exp": "wrong"}
    run.write_report(tmp_path / "coverage.md")
    text = (tmp_path / "coverage.md").read_text()
    assert "1 of 2 pairs right" in text and "| float32 | 1 | 2 | 50.0 % | 2026-01-01 to 2026-02-02 |" in text and "- exp float32: wrong: 1 instead of 2" in text
