"""tests/matrix: a seeded sample of its cells, and the machinery: that wrong numbers are seen, that lists are whole, that a run goes on where it stopped."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch

import harness

sys.path.insert(0, str(harness.REPO / "tests/matrix"))
import cells
import doors
import graphs
import judge
import run_cells as run
import subjects
import table

SEED = int(os.environ.get("COIL_MATRIX_SEED", "1"))
SAMPLE, BUDGET = 24, 75  # cells; seconds in which the last one starts


def options(folder, *arguments):
    return run.parse(["--results", str(folder / "rows.jsonl"), "--jobs", str(harness.JOBS), *map(str, arguments)])


def test_a_sample(tmp_path):
    """Each cell is right or has its reason; none is wrong, raises, or ends its process. How many a machine comes to in the time says nothing."""
    given = options(tmp_path, "--sample", SAMPLE, "--seed", SEED, "--budget", BUDGET, "--limit", 120)
    rows = run.run(given, run.wanted_cells(given))
    bad = {name: row for name, row in rows.items() if row["status"] in ("wrong", "error", "crash", "refused")}
    assert not bad, table.text(bad, 0)
    assert any(row["status"] == "right" for row in rows.values()), table.text(rows, 0)  # of what a loaded machine came to
    assert all(row.get("text") for row in rows.values() if row["status"] != "right")


def test_a_run_goes_on_where_it_stopped(tmp_path):
    given = options(tmp_path, "--only", "zoo:sin_mm_cos", "--target", "cpu", "--direction", "forward", "--sizes", "static")
    wanted = run.wanted_cells(given)
    assert len(wanted) == len(cells.DOORS) * len(cells.DTYPES)
    first = run.run(given, wanted)
    assert {row["status"] for row in first.values()} == {"right"}, table.text(first, 0)
    lines = given.results.read_text().splitlines()
    changed = json.loads(lines[0]) | {"status": "wrong", "text": "planted"}
    given.results.write_text("\n".join([json.dumps(changed), *lines[1:-1], lines[-1][:20]]))
    again = run.run(given, wanted)
    assert again[changed["id"]]["text"] == "planted"  # it was known
    assert again[json.loads(lines[-1])["id"]]["status"] == "right"  # its line was cut short
    given.retry = True
    assert run.run(given, wanted)[changed["id"]]["status"] == "right"
    shown = table.text(again, 1)
    assert "planted" in shown and "zoo:sin_mm_cos" in shown
    assert table.summary(again)[0].startswith("| door | target |")


def test_what_is_asked_for():
    done = subprocess.run([sys.executable, harness.REPO / "tests/matrix/run_cells.py", "--dtype", "float8"], capture_output=True, text=True)
    assert done.returncode == 2 and "float8: not of float32, bfloat16, float16, autocast" in done.stderr
    names = subjects.names()
    assert sum(n.startswith("arch:") for n in names) >= 120 and sum(n.startswith("zoo:") for n in names) >= 300
    one, two = (run.wanted_cells(run.parse(["--sample", "40", "--seed", str(seed)])) for seed in (5, 6))
    assert len(one) == len(two) == 40 and set(one) != set(two)
    assert one == run.wanted_cells(run.parse(["--sample", "40", "--seed", "5"]))
    assert all(cells.Cell.of(c.id) == c for c in one)


@pytest.mark.parametrize("direction", ["forward", "gradients"])
def test_wrong_numbers_are_seen(direction):
    torch.manual_seed(0)
    exact = [torch.randn(30, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)]
    eager = [e.float() for e in exact]
    ask = lambda found: (judge.forward if direction == "forward" else judge.gradients)(found, eager, exact, "float32")["status"]
    assert ask(eager) == "right"
    assert ask([eager[0] * (1 + 1e-7), eager[1]]) == "right"
    for spoil in (lambda t: t * 1.01, lambda t: t.double(), lambda t: t.t(), lambda t: torch.where(t == t.max(), float("nan"), t), lambda t: t.roll(1, 0)):
        assert ask([eager[0], spoil(eager[1])]) == "wrong"
    assert ask(eager[:1]) == "wrong"


def test_gradients_may_be_as_rough_as_eagers():
    torch.manual_seed(0)
    exact = [torch.randn(300, dtype=torch.float64)]
    noise = lambda much: [(exact[0] + much * torch.randn(300)).bfloat16()]
    ask = lambda found: judge.gradients(found, noise(0.05), exact, "bfloat16")["status"]
    assert ask(noise(0.05)) == "right" and ask(noise(0.2)) == "wrong"
    nothing = [torch.zeros(300, dtype=torch.float64), exact[0]]  # a gradient that is zero but for rounding
    rows = judge.gradients([torch.full((300,), 1e-9), exact[0].float()], [torch.full((300,), 1e-10), exact[0].float()], nothing, "float32")
    assert rows["status"] == "right"


def test_a_gradient_may_jump_where_eagers_does():
    """The side of a ReLU is decided by a rounding: eager's gradients for numbers that differ in their last bit are the measure."""
    eager = [torch.linspace(1, 2, 64).reshape(8, 8), torch.ones(8)]
    exact = [g.double() for g in eager]
    off = [torch.cat((g[:1] * 0, g[1:])) for g in eager]  # as if the first unit were below zero
    others = [[g.clone() for g in eager], off, [g * (1 + 1e-7) for g in eager]]
    assert judge.gradients(off, eager, exact, "float32")["status"] == "wrong"
    assert judge.gradients(off, eager, exact, "float32", others)["status"] == "right"
    assert judge.gradients([g * 3 for g in off], eager, exact, "float32", others)["status"] == "wrong"


def test_the_reference_is_float64_throughout():
    class Narrowing(torch.nn.Module):
        def forward(self, x):
            return (x.float().exp() + torch.full((3,), 0.1)).to(torch.bfloat16) + torch.arange(3, dtype=torch.float32) / 3

    x = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    found = doors.exact(Narrowing(), [((x,), {})], "forward")[0][0]
    assert found.dtype == torch.float64
    assert torch.equal(found, x.exp() + 0.1 + torch.arange(3, dtype=torch.float64) / 3)
    assert torch.get_default_dtype() == torch.float32


def test_integers_are_compared():
    a = torch.tensor([1, 2, 3])
    assert judge.forward([a], [a], None, "float32")["status"] == "right"
    assert judge.forward([a + 1], [a], None, "float32")["status"] == "wrong"


def test_a_gradient_that_is_nothing_is_a_draw():
    """Its error may be four times the largest of eager's few, of any other gradient twice that."""
    noise = lambda size: [torch.ones(100), torch.full((4,), size)]
    for true, status in ((1e-20, "right"), (1e-6, "wrong")):
        exact = [torch.ones(100).double(), torch.full((4,), true).double()]
        assert judge.gradients(noise(true + 3e-7), noise(true + 1e-7), exact, "float32", [noise(true + 1e-7)])["status"] == status
    assert judge.gradients(noise(5e-7), noise(1e-7), [torch.ones(100).double(), torch.full((4,), 1e-20).double()], "float32", [noise(1e-7)])["status"] == "wrong"


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 9), torch.nn.Linear(9, 3)

    def forward(self, x):
        y = self.first(x)
        return self.second(torch.where(y > 0, y.sin(), y * 0.1)), y > 0


def watch(change=None):
    """What is found in the two graphs of a small module, the results of one kind of graph changed."""
    import coil.dynamo._backend as backend

    compile_graph = backend.compile_graph

    def changed(gm, inputs, **settings):
        run = compile_graph(gm, inputs, **settings)

        def call(arguments):
            results = list(run(arguments))
            return change(settings["kind"], results) or results if change else results

        call._boxed_call = True
        return call

    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x = Masked(), torch.randn(5, 4, 6)
    with mock.patch.object(backend, "compile_graph", changed), graphs.Graphs("float32").watched() as seen:
        torch.compile(module, backend="coil")(x)[0].sin().sum().backward()
    assert seen.calls == 2
    return seen.text


def test_graphs_are_judged_one_by_one():
    assert watch() == ""

    def gradient(kind, results):
        if kind == "backward":
            return [results[0] * 1.001, *results[1:]]

    def flags(kind, results):
        if kind == "forward":
            assert any(r.dtype == torch.bool for r in results)
            return [~r if r.dtype == torch.bool else r for r in results]

    def one_flag(kind, results):
        for r in results if kind == "forward" else ():
            if r.dtype == torch.bool:
                r.view(-1)[0].logical_not_()

    assert watch(gradient).startswith("backward graph with the same arguments: gradient 0")
    assert "elements differ" in watch(flags)
    assert watch(one_flag) == ""  # a tie, decided otherwise


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_batch_norms_as_packages(dtype):
    """Tracing says of new running statistics that they are float32."""
    import coil

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).to(subjects.DTYPE[dtype])
    sets = [((torch.randn(4, 3, 8, 8).to(subjects.DTYPE[dtype]),), {})]
    exported = doors.Exported(module, sets, dtype, "gradients", None)
    found = exported.call(coil.compile(exported.program), *sets[0])
    exact = doors.exact(module.double(), [((sets[0][0][0].double(),), {})], "gradients")[0]
    assert judge.gradients(found, doors.eager(module.to(subjects.DTYPE[dtype]), sets, dtype, "gradients")[0], exact, dtype)["status"] == "right"


def test_packages_of_autocast():
    """The casts are in the program, with sizes that are not known as well."""
    import coil

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.LayerNorm(9), torch.nn.Linear(9, 3)).eval()
    sets = [((torch.randn(n, 6),), {}) for n in (4, 7)]
    exported = doors.Exported(module, sets, "autocast", "forward", (({0: torch.export.Dim.AUTO},), {}))
    package = coil.compile(exported.program)
    for s, wanted in zip(sets, doors.eager(module, sets, "autocast", "forward")):
        found = exported.call(package, *s)
        assert found[0].dtype == torch.bfloat16
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_every_family_is_there():
    """One list of architectures, of all families of timm and torchvision."""
    timm = pytest.importorskip("timm")
    import torchvision
    from architecture_list import ARCHITECTURES

    known = {timm.models._registry._model_to_module[n.split("/")[1]] for n in ARCHITECTURES if n.startswith("timm/")}
    assert not set(timm.list_modules()) - known
    families = {torchvision.models.get_model_builder(n).__module__ for n in torchvision.models.list_models(module=torchvision.models)}
    ours = {torchvision.models.get_model_builder(n.split("/")[1]).__module__ for n in ARCHITECTURES
            if n.startswith("torchvision/") and n.split("/")[1] in torchvision.models.list_models()}
    assert not families - ours - {"torchvision.models.vision_transformer"}  # "vit": a small one of its class
    assert sum(n.startswith("transformers/") for n in ARCHITECTURES) >= 40
    for kind in ("recommender", "graph network", "recurrent", "state space", "speech", "diffusion", "video", "optical flow"):
        assert sum(family == kind for family, _ in ARCHITECTURES.values()) >= 2, kind
