"""Choices for CUDA without a GPU: every way to hand out a loop that a record can name computes what eager does, under the emulator; and what a
machine without a device leaves to be timed."""

import json
import os

import numpy as np
import pytest

import emulated_cuda
import harness
import test_loop_forms

POINTS = [{"way": 1, "threads": t, "points": n} for t, n in ((32, 1), (64, 2), (128, 4), (256, 8), (512, 4), (1024, 16), (256, 32))]
REDUCTIONS = ([{"way": 3, "threads": n} for n in (32, 64, 256, 1024)] + [{"way": 4, "threads": n} for n in (4, 8, 16, 32)] + [{"way": 5, "threads": n} for n in (32, 128, 512)]
              + [{"way": 6, "threads": n} for n in (32, 128, 1024)]
              + [{"way": way, "threads": threads, "points": n} for way, threads in ((4, 32), (4, 8), (5, 128)) for n in (2, 4)])
WAYS = [{}, *POINTS, {"way": 2, "points": 32}, {"way": 2, "points": 64}, *REDUCTIONS]
NONE = [{"way": 7}, {"way": 1, "threads": 100, "points": 1}, {"way": 1, "threads": 256, "points": 3}, {"way": 2, "points": 16}, {"way": 3, "threads": 16}, {"way": 4, "threads": 64}, {"way": 4, "threads": 32, "points": 3}, {"way": 5, "threads": 64, "points": 16}, {"split": 2}]


def emulating(*more):
    return {**os.environ, "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so"), **dict(more)}


def programs():
    """name -> (function, shapes). Pointwise loops beside one another share a launch, which leaves nothing to choose: they are programs of their own."""
    import torch

    def reductions(rows, columns, x):
        of_rows = torch.softmax(rows, -1), rows.var(-1), rows.argmax(-1), (rows > 0).any(-1)
        return *of_rows, columns.sum(0), columns.argmin(0), (columns.double() * columns).sum(0), (columns.abs() > 3).all(0), x.cumsum(1), x.sum(1)

    def side_by_side(x, y, z):
        images = x.permute(0, 3, 1, 2)
        pooled, indices = torch.ops.aten.max_pool2d_with_indices(images, [3, 3], [2, 2], [1, 1])
        gradient = torch.ops.aten.max_pool2d_with_indices_backward(pooled * 2, images, [3, 3], [2, 2], [1, 1], [1, 1], False, indices)
        of_columns = z.sum(0), (z.double() * z).sum(0), z.amax(0), (z > 3).any(0)
        return pooled.permute(0, 2, 3, 1).contiguous(), gradient.permute(0, 2, 3, 1).contiguous(), y.sum(1), y.argmax(1), (y > 0).all(1), *of_columns

    return {
        "side_by_side": (side_by_side, ((2, 9, 11, 12), (30, 7, 12), (301, 12))),
        "reductions": (reductions, ((29, 207), (301, 133), (5, 4099))),
        "turned": (lambda a, b: (a.transpose(1, 2) * 2 + b).contiguous(), ((3, 83, 37), (3, 37, 83))),
        "both_turned": (lambda c, d: (c.t() + d.relu().t()).contiguous(), ((45, 70), (45, 70))),
        "narrow": (lambda e: torch.add(e, 1).bfloat16().t().contiguous(), ((65, 80),)),
        "flat": (lambda x, y: torch.where(x > 0, x.exp(), y), ((7, 1003), (7, 1003))),
        "broadcast": (lambda x, y: x[:, None, :] * y[None, :, None], ((9, 40), (33,))),
    }


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """Programs, each with the record of what there is to choose in it and what eager computes: (program, inputs, record, outputs)."""
    import torch

    from case import Function

    made = []
    for name, (function, shapes) in programs().items():
        folder = tmp_path_factory.mktemp(name)
        arrays = [np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)]
        arrays[0][(1, 5, 0, 0)[: arrays[0].ndim]] = np.nan
        args = tuple(torch.from_numpy(a) for a in arrays)
        torch.export.save(torch.export.export(Function(function), args), folder / "p.pt2")
        np.savez(folder / "in.npz", **{f"in_{i}": a for i, a in enumerate(arrays)})
        done = harness.coil("compile", folder / "p.pt2", "-o", folder / "own.pt2", "--target", "cuda:sm_90", "--tune", "max", "--record", folder / "r.json", env=emulating())
        assert done.returncode == 0, done.stderr
        results = Function(function)(*args)
        results = results if isinstance(results, tuple) else (results,)
        wanted = [t.numpy() if t.dtype != torch.bfloat16 else t.float().numpy() for t in results]
        made.append((folder / "p.pt2", folder / "in.npz", json.loads((folder / "r.json").read_text()), wanted))
    return made


def fresh(record):
    record = json.loads(json.dumps(record))
    record.pop("untimed")
    record["problems"] = [{**{k: v for k, v in p.items() if k != "to_time"}, "rows": [{"up_to": None, "choice": {}, "text": ""}]} for p in record["problems"]]
    return record


@pytest.mark.parametrize("name,ways", [("rows", [{3}]), ("columns", [{4, 5}, {4}]), ("turned", [{1, 2}]), ("flat", [{1}]), ("scan", [{6}]), ("small", [set()])])
def test_what_is_left_to_be_timed(name, ways, tmp_path):
    """A machine without a device builds the few ways that are worth timing; loops that take no longer than their launch have none.
    Few columns are summed in parts, and then the parts."""
    import torch

    functions = {"rows": lambda x: torch.softmax(x, -1), "columns": lambda x: x.sum(0), "turned": lambda x: (x.t() + 1).contiguous(), "flat": torch.exp,
                 "scan": lambda x: x.cumsum(-1), "small": lambda x: x[:2].exp()}

    class Module(torch.nn.Module):
        def forward(self, x):
            return functions[name](x)

    torch.export.save(torch.export.export(Module(), (torch.empty(4096, 1000),)), tmp_path / "p.pt2")
    done = harness.coil("compile", tmp_path / "p.pt2", "-o", tmp_path / "p.coil.pt2", "--target", "cuda:sm_90", "--tune", "max", "--record", tmp_path / "r.json", env=emulating())
    assert done.returncode == 0, done.stderr
    left = [problem.get("to_time", []) for problem in json.loads((tmp_path / "r.json").read_text())["problems"]]
    assert [{w["way"] for w in choices} for choices in left] == ways and all(len(choices) <= 4 for choices in left), left


@pytest.mark.parametrize("choice", WAYS, ids=lambda c: "-".join(f"{k}{v}" for k, v in c.items()) or "own")
def test_every_way_of_loops_is_right(choice, loops, tmp_path):
    given = 0
    for program, inputs, record, wanted in loops:
        made = []

        def compiled():
            made[:] = [emulated_cuda.Emulated(program, tmp_path, 90, ("--replay", tmp_path / "r.json"))]
            return made[0].compiled

        count = test_loop_forms.with_choice(fresh(record), choice, tmp_path / "r.json", compiled)
        given += count
        if count == 0:
            continue
        done, outputs = made[0].run(inputs)
        assert done.returncode == 0, done.stderr[-3000:]
        for i, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
            np.testing.assert_allclose(np.asarray(got, dtype=want.dtype), want, rtol=1e-5, atol=1e-4, err_msg=f"{program.parent.name}, result {i}")
    assert given, "no loop has this way"


@pytest.mark.parametrize("choice", NONE, ids=str)
def test_ways_that_do_not_exist(choice, loops, tmp_path):
    program, _, record, _ = loops[1]
    record = fresh(record)
    for p in record["problems"]:
        p["rows"][0]["choice"] = choice
    (tmp_path / "r.json").write_text(json.dumps(record))
    done = harness.coil("compile", program, "-o", tmp_path / "p.pt2", "--target", "cuda:sm_90", "--replay", tmp_path / "r.json", env=emulating())
    harness.assert_refused(done, "choice for 'loop ", code=407)


def test_choices_by_size_and_architecture(tmp_path):
    """A table over a dynamic size; a package of two architectures has the choices in the tuned one's code only."""
    import torch

    class Sum(torch.nn.Module):
        def forward(self, x):
            return (x * 2).sum(-1)

    rows = torch.export.Dim("rows", min=1, max=4096)
    torch.export.save(torch.export.export(Sum(), (torch.randn(8, 300),), dynamic_shapes=({0: rows},)), tmp_path / "sum.pt2")
    target = ("--target", "cuda:sm_80,cuda:sm_90")
    record = tmp_path / "r.json"
    assert harness.coil("compile", tmp_path / "sum.pt2", "-o", tmp_path / "own.pt2", "--target", "cuda:sm_80", "--tune", "fast", "--record", record, env=emulating()).returncode == 0
    tuned = fresh(json.loads(record.read_text()))
    (problem,) = [p for p in tuned["problems"] if p["problem"].startswith("loop ")]
    problem["rows"] = [{"up_to": 900, "choice": {"way": 3, "threads": 128}, "text": ""}, {"up_to": None, "choice": {"way": 5, "threads": 64}, "text": ""}]
    record.write_text(json.dumps(tuned))
    packages = [tmp_path / name / "p.pt2" for name in ("a", "b")]
    for package in packages:
        package.parent.mkdir()
        done = harness.coil("compile", tmp_path / "sum.pt2", "-o", package, *target, "--replay", record, env=emulating())
        assert done.returncode == 0, done.stderr
    assert packages[0].read_bytes() == packages[1].read_bytes()
    shown = harness.coil_ok("inspect", packages[0]).stdout
    assert "1-900: rows of 128 threads, 901-: a row a thread, 64 threads" in shown, shown
    source, names = emulated_cuda.kernels_of(packages[0])
    assert len(names) == 3, names
    emulated_cuda.build_kernels(source, names, tmp_path / "kernels.so")
    for sm in (80, 90):
        for n in (1, 3, 4, 70):
            x = torch.randn(n, 300)
            np.savez(tmp_path / "in.npz", x=x.numpy())
            done = harness.coil("run", packages[0], "--device", "cuda:0", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz",
                                env=emulated_cuda.environment(tmp_path / "kernels.so", sm))
            assert done.returncode == 0, done.stderr
            np.testing.assert_allclose(harness.load_outputs(tmp_path / "out.npz")[0], Sum()(x).numpy(), rtol=1e-5, atol=1e-4)


ATTENTION = ([{"kind": 1, "rows": r, "columns": c} for r in (32, 64, 128) for c in (16, 32, 64) if r >= c and (r, c) != (128, 64)] + [{"kind": 2, "rows": r, "columns": c} for r in (64, 128) for c in (32, 64, 128) if r >= c]
             + [{"kind": 7, "rows": r, "split": s} for r, s in ((1, 1), (2, 2), (4, 1), (4, 8))])


@pytest.fixture(scope="module")
def attentions(tmp_path_factory):
    """name -> (program, inputs, record, output, tolerance)"""
    import torch

    class Module(torch.nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.options = options

        def forward(self, q, k, v, mask=None):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, **self.options)

    made = {}
    for name, dtype, dim, causal, heads, mask in (("f32", torch.float32, 64, True, 4, None), ("f32_mask", torch.float32, 40, False, 2, torch.bool), ("bf16", torch.bfloat16, 64, True, 2, None),
                                                  ("f16_mask", torch.float16, 128, False, 4, torch.float16)):
        torch.manual_seed(1)
        q, k, v = torch.randn(2, 4, 77, dim), torch.randn(2, heads, 77, dim), torch.randn(2, heads, 77, dim)
        args = [t.to(dtype) for t in (q, k, v)]
        if mask:
            args.append(torch.rand(77, 77) > 0.2 if mask == torch.bool else torch.randn(77, 77).to(mask))
        folder = tmp_path_factory.mktemp(name)
        module = Module(is_causal=causal, enable_gqa=heads < 4)
        torch.export.save(torch.export.export(module, tuple(args)), folder / "p.pt2")
        np.savez(folder / "in.npz", **{f"in_{i}": a.float().numpy() if a.dtype == torch.bfloat16 else a.numpy() for i, a in enumerate(args)})
        done = harness.coil("compile", folder / "p.pt2", "-o", folder / "own.pt2", "--target", "cuda:sm_90", "--tune", "max", "--record", folder / "r.json", env=emulating())
        assert done.returncode == 0, done.stderr
        wanted = module(*(a.float() if a.is_floating_point() else a for a in args)).numpy()
        made[name] = (folder / "p.pt2", folder / "in.npz", json.loads((folder / "r.json").read_text()), wanted, 1e-5 if dtype == torch.float32 else 2e-2)
    return made


@pytest.mark.parametrize("choice", ATTENTION, ids=lambda c: "-".join(f"{k}{v}" for k, v in c.items()))
def test_every_way_of_attention_is_right(choice, attentions, tmp_path):
    given = 0
    for name, (program, inputs, record, wanted, tolerance) in attentions.items():
        made = []

        def compiled():
            made[:] = [emulated_cuda.Emulated(program, tmp_path, 90, ("--replay", tmp_path / "r.json"), "-O1" if "split" in choice else "-O0")]
            return made[0].compiled

        if test_loop_forms.with_choice(fresh(record), choice, tmp_path / "r.json", compiled, "attention ") == 0:
            continue
        given += 1
        assert any("attention_" + {1: "simt", 2: "mma", 7: "decode"}[choice["kind"]] in n for n in made[0].names), made[0].names
        done, outputs = made[0].run(inputs)
        assert done.returncode == 0, done.stderr[-3000:]
        assert harness.max_error(np.asarray(outputs[0], dtype=np.float32), wanted) < tolerance, name
    assert given, "no attention has this way"


def test_ways_of_attention_that_are_left_to_be_timed(attentions):
    kinds = {name: {w["kind"] for p in record["problems"] if p["problem"].startswith("attention") for w in p["to_time"]} for name, (_, _, record, _, _) in attentions.items()}
    assert kinds["f32"] == {1} and kinds["bf16"] == {2}, kinds  # 77 keys are few for Hopper's kernel, as 77 queries are many for that of few
