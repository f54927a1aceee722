"""`coil explain` and `--require`: what a compilation decided, out of what it recorded, and conditions that a build checks."""

import json
import math

import pytest

import planted
from harness import assert_refused, coil, coil_json, coil_ok


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(program, package, manifest)"""
    folder = tmp_path_factory.mktemp("explain")
    program, _ = planted.export(folder)["gelu"]
    coil_ok("compile", program, "-q", "-o", folder / "gelu.coil.pt2")
    return program, folder / "gelu.coil.pt2", coil_json("inspect", folder / "gelu.coil.pt2")


def explain(*arguments):
    return coil_ok("explain", *arguments).stdout


def test_fused_and_not_fused(made):
    program, package, manifest = made
    first = manifest["kernels"][0]
    assert first["ops"][0] == "linear" and "gelu" in first["ops"]
    assert f"gelu and mul are one kernel, {first['function']}" in explain(package, "--fusion", "gelu", "mul")
    assert first["function"] in explain(package, "--fusion", "first", "gelu"), "a module's name"
    assert "not one kernel" in explain(package, "--fusion", "first", "second") or "was not fused into" in explain(package, "--fusion", "first", "second")
    # Every recorded reason is said, of the pair and in the overview.
    overview = explain(package)
    for note in manifest["not_fused"]:
        sentence = f"{note['producer']} was not fused into {note['consumer']}: {note['reason']}."
        assert sentence in overview and sentence in explain(package, "--fusion", note["producer"], note["consumer"])
    assert explain(program, "--fusion", "gelu", "mul") == explain(package, "--fusion", "gelu", "mul")


def test_memory_of_equal_layers_is_told_once(tmp_path):
    torch = pytest.importorskip("torch")

    class Layers(torch.nn.Module):
        def forward(self, x):
            for _ in range(2):
                x = torch.nn.functional.scaled_dot_product_attention(x, x.flip(2), x.sin())
            return x

    torch.export.save(torch.export.export(Layers(), (torch.randn(1, 4, 300, 64),)), tmp_path / "layers.pt2")
    coil_ok("compile", tmp_path / "layers.pt2", "-q", "-o", tmp_path / "layers.coil.pt2")
    told = [line for line in explain(tmp_path / "layers.coil.pt2", "--memory").splitlines() if line.startswith("attention_scratch")]
    assert len(told) == 1 and told[0].endswith("2 times one after the other.")


def test_what_an_option_kept_apart(made, tmp_path):
    program, _, _ = made
    value = "gelu"
    text = explain(program, "--without", f"fusion:{value}", "--fusion", "gelu", "mul")
    assert "an option keeps them apart" in text


def test_choices_sizes_and_memory(made, tmp_path):
    program, package, manifest = made
    assert "default rules" in explain(package, "--choice", "gelu") and "not tuned" in explain(package, "--choice", "gelu")
    memory = explain(package, "--memory")
    assert manifest["memory"]["arena_bytes"] in memory and "at its peak" in memory
    largest = max(manifest["memory"]["arena"], key=lambda b: math.prod(map(int, b["shape"])))
    assert largest["name"] in memory.splitlines()[1]


def test_a_tuned_choice(made, tmp_path):
    program, _, _ = made
    coil_ok("compile", program, "-q", "--tune", "fast", "--tune-budget", "2s", "--record", tmp_path / "r.json", "-o", tmp_path / "t.pt2")
    manifest = coil_json("inspect", tmp_path / "t.pt2")
    for k in manifest["kernels"]:
        text = explain(tmp_path / "t.pt2", "--choice", k["name"])
        if "choices" in k:
            assert "tuner chose so" in text and k["choices"]["rows"][0]["run"] in text
        else:
            assert "default rules" in text


def test_requirements(made, tmp_path):
    program, package, manifest = made
    n = len(manifest["kernels"])
    peak = manifest["memory"]["example"]["peak_bytes"]
    met = [f"kernels <= {n}", f"kernels == {n}", f"kernels < {n + 1}", "fused(gelu, mul)", "not fused(first, second)", f"peak <= {peak}", f"peak <= {peak / 1000}KB", "copies == 0", "replaced == 0",
           "kernels(gelu) == 1", "weights <= 1MB", "scratch >= 1", "state == 0"]
    arguments = [a for text in met for a in ("--require", text)]
    coil_ok("inspect", package, *arguments)
    coil_ok("compile", program, "-q", *arguments, "-o", tmp_path / "x.pt2")
    rows = json.loads(coil_ok("explain", package, *arguments, "--json").stdout)["requirements"]
    assert [r["requirement"] for r in rows] == met and all(r["met"] for r in rows)
    for text, found in ((f"kernels < {n}", f"{n} kernel"), ("not fused(gelu, mul)", "one kernel"), ("fused(first, second)", "not"), (f"peak < {peak}", "B"), ("weights <= 1KB", "KB")):
        for command in (("inspect", package), ("explain", package), ("compile", program, "-q", "-o", tmp_path / "y.pt2")):
            done = coil(*command, "--require", text, "--require", "copies == 0")
            assert done.returncode == 1 and f"requirement '{text}' is not met" in done.stderr and found in done.stderr
            assert "copies" not in done.stderr
    assert (tmp_path / "y.pt2").exists(), "the package is there to be looked at"


@pytest.mark.parametrize("text", ["", "kernels", "kernels <= ", "kernels <= many", "kernels <= 4 apples", "nothing <= 3", "fused(a)", "fused(gelu)", "peak(x) <= 3", "time(batch=1) <= 3", "kernels <= 1e5",
                                  "(" * 2000, "kernels <= " + "9" * 400, "\x1b[31m <= 3"])
def test_what_is_no_requirement_is_refused(made, text):
    assert_refused(coil("inspect", made[1], "--require", text), "--require", code=402)


def test_names_that_nothing_has(made):
    assert_refused(coil("explain", made[1], "--fusion", "gelu", "nothing"), "'nothing'", "gelu", code=402)
    assert_refused(coil("explain", made[1], "--choice", "nothing"), "'nothing'", code=402)
    assert_refused(coil("explain", made[1], "--size", "nothing=3"), "nothing")
    assert_refused(coil("inspect", made[1], "--require", "fused(gelu, nothing)"), "'nothing'", code=402)
