"""What the tools say of programs of unusual kinds (integers, loops, sizes from data, nothing to fuse), and of what is asked wrongly."""

import os

import pytest
import torch

from harness import assert_refused, coil, coil_json, coil_ok


class Integers(torch.nn.Module):
    def forward(self, x):
        return (x * 3 // 2) % 7, x.cumsum(-1), x.sort(-1)[0], x.t().contiguous().reshape(-1)


class Positions(torch.nn.Module):
    def forward(self, x):
        return x.nonzero(), x.exp()


class Loop(torch.nn.Module):
    def forward(self, x, n):
        i, y = torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, torch.sin(y) * 1.1), (torch.tensor(0), x))
        return y, i


class Scalars(torch.nn.Module):
    def forward(self, x, y):
        return torch.sin(x) * y, x > y


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """{name: (program, package)}"""
    folder, made = tmp_path_factory.mktemp("inside"), {}
    inputs = {"integers": (Integers(), (torch.randint(-9, 99, (64, 100)),)), "positions": (Positions(), (torch.ones(8, 300),)),
              "loop": (Loop(), (torch.randn(4, 5), torch.tensor(3))), "scalars": (Scalars(), (torch.tensor(1.5), torch.tensor(2.0)))}
    for name, (module, args) in inputs.items():
        made[name] = folder / f"{name}.pt2", folder / f"{name}.coil.pt2"
        torch.export.save(torch.export.export(module, args), made[name][0])
        coil_ok("compile", made[name][0], "-q", "-o", made[name][1])
    return made


def test_only_what_moves_data_is_said_to(models):
    """Integers have no floating-point operations, and are computed all the same; so do comparisons."""
    for name, expected in (("integers", 1), ("scalars", 0), ("loop", None)):
        kernels = coil_json("inspect", models[name][1])["kernels"]
        moves = [k for k in kernels if k.get("moves")]
        assert expected is None or len(moves) == expected, kernels
        assert not [k for k in moves if set(k["ops"]) & {"cumsum", "sort", "mul", "remainder", "sum", "gt", "sin"}]
    said = coil_ok("explain", models["scalars"][1], "--why-slow").stdout
    assert "only move" not in said and "The other kernels take 0.0 %" not in said


def test_sizes_from_data_and_counters_are_nobodys_choice(models):
    for name in ("positions", "loop"):
        done = coil_ok("bench", models[name][1])
        assert "choose with --shape" not in done.stderr and "u0=8" not in done.stdout and "step0" not in done.stdout
    assert coil_json("profile", models["positions"][1])["models"][0]["sizes"]["u0"] > 8  # as the call found it
    assert coil_json("profile", models["loop"][1])["models"][0]["sizes"] == {}
    text = coil_ok("inspect", models["positions"][1]).stdout
    assert "known when the program has run" in text and "step0" not in coil_ok("inspect", models["loop"][1]).stdout
    assert_refused(coil("bench", models["positions"][1], "--shape", "u0=5"), "follows from the inputs' elements", code=106)
    assert_refused(coil("bench", models["loop"][1], "--shape", "step0=5"), "no dynamic dimension 'step0'", code=106)
    assert "bytes" in coil_ok("inspect", models["positions"][1], "--memory", "--shape", "u0=5").stdout


def test_one_of_something_is_one(models):
    """Sentences of advice have their nouns and verbs in the right number."""
    for program, package in models.values():
        for sentence in coil_ok("explain", package, "--why-slow").stdout.splitlines():
            assert not sentence.startswith("1 kernels") and not sentence.startswith("1 products") and not sentence.startswith("1 long kernels"), sentence


def test_a_sort_is_not_measured_by_bandwidth(tmp_path):
    """What a sort takes is comparisons: neither arithmetic nor memory says anything of it."""
    class Sorts(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x, -1)[0]

    torch.export.save(torch.export.export(Sorts(), (torch.randn(64, 4096),)), tmp_path / "s.pt2")
    said = coil_ok("explain", tmp_path / "s.pt2", "--why-slow").stdout
    assert "It sorts: its time is that of comparisons" in said and "Neither arithmetic" not in said, said


def test_nothing_to_fuse_is_said(models):
    assert coil_ok("explain", models["scalars"][1]).stdout == "2 kernels: no two of them compute what one kernel could have computed.\n"


def test_a_condition_about_an_unknown_name_says_so(models):
    done = coil_ok("explain", models["scalars"][1], "--require", "kernels(nothere) <= 3")
    assert "is met: 0 kernels; no operator, module or kernel is called 'nothere'" in done.stdout
    assert coil_ok("explain", models["positions"][1], "--require", "peak <= 2GB", "--shape", "u0=7").returncode == 0


def test_a_dump_that_cannot_be_written_is_refused(models, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        done = coil("compile", models["scalars"][0], "-o", tmp_path / "x.pt2", env=dict(os.environ, COIL_DUMP=str(folder)))
        assert_refused(done, "cannot be made", "COIL_DUMP", code=3)
    assert_refused(coil("debug", models["scalars"][0], "-o", tmp_path / "file" / "x"), "cannot be made", code=3)


def test_messages_name_what_was_asked(models, tmp_path):
    program, package = models["scalars"]
    assert_refused(coil("debug", tmp_path / "nothere"), "does not exist", code=1)
    assert_refused(coil("report", package, package, package), "model takes at most 2 values, not 3", code=402)
    assert_refused(coil("reduce", program, "--wrong", "-o", tmp_path / "small"), "`coil diff` of it finds no difference", code=402)
    assert_refused(coil("reduce", program, "--crash", "-o", tmp_path / "small"), "`coil run` of it", code=402)
    assert_refused(coil("explain", package, "--size", "batch"), "--size 'batch'", code=402)
    (tmp_path / "python").write_text("#!/bin/sh\necho Traceback >&2\necho ModuleNotFoundError: no torch >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    done = coil("diff", program, "--torch", env=dict(os.environ, COIL_TORCH=str(tmp_path / "python")))
    assert_refused(done, "ended with 1: ModuleNotFoundError: no torch", code=402)
    assert "Traceback" not in done.stderr and "\\n" not in done.stderr
