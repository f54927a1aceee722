"""Every form of loops and every choice of attention that the CPU's tuner may take computes what eager does."""

import copy
import json

import numpy as np
import pytest

import harness


def loop_module():
    """Loops of all kinds, of sizes of their own so that they stay apart: turned in one and in two operands, sums and extremes of rows and of columns."""
    import torch

    class Loops(torch.nn.Module):
        def forward(self, a, b, c, d, rows, columns, e, f):
            turned = (a.transpose(1, 2) * 2 + b).contiguous(), (c.t() + d.relu().t()).contiguous(), torch.add(e, 1).bfloat16().t().contiguous(), f.permute(2, 0, 1).contiguous()
            of_rows = torch.softmax(rows, -1), rows.var(-1), rows.argmax(-1), rows.amin(-1), (rows > 0).any(-1)
            of_columns = columns.sum(0), columns.argmin(0), columns.var(0), (columns.double() * columns).sum(0), (columns.abs() > 3).all(0)
            return *turned, *of_rows, *of_columns

    return Loops()


def loop_inputs():
    r = np.random.default_rng(3)
    shapes = {"a": (3, 83, 37), "b": (3, 37, 83), "c": (45, 70), "d": (45, 70), "rows": (29, 207), "columns": (301, 133), "e": (65, 80), "f": (17, 19, 48)}
    made = {name: r.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name in made:
        made[name][1, 5] = np.nan
    return made


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """A program, a record of own rules for it, and what eager computes."""
    import torch

    folder, module, arrays = tmp_path_factory.mktemp("loops"), loop_module(), loop_inputs()
    args = tuple(torch.from_numpy(a) for a in arrays.values())
    torch.export.save(torch.export.export(module, args), folder / "loops.pt2")
    np.savez(folder / "in.npz", **arrays)
    harness.coil_ok("compile", folder / "loops.pt2", "-o", folder / "own.pt2", "--tune", "fast", "--tune-budget", "1s", "--record", folder / "r.json")
    record = json.loads((folder / "r.json").read_text())
    for p in record["problems"]:
        p["rows"] = [{"up_to": None, "choice": {}, "text": ""}]
    return folder, record, [t.numpy() if t.dtype != torch.bfloat16 else t.float().numpy() for t in module(*args)]


def with_choice(record, choice, path, compiled, kind="loop "):
    """Asks a choice of all problems of a kind that have it, as `compiled` finds out with the record at `path`; how many these are."""
    asked = [p for p in record["problems"] if p["problem"].startswith(kind)]
    for p in asked:
        p["rows"] = [{"up_to": None, "choice": choice, "text": ""}]
    while True:  # those that do not have it are named one by one
        path.write_text(json.dumps(record))
        done = compiled()
        if done.returncode == 0:
            return sum(p["rows"][0]["choice"] == choice for p in asked)
        harness.assert_refused(done, f"choice for '{kind}", code=407)
        (gone,) = [p for p in asked if f"'{p['problem']}'" in done.stderr]
        assert gone["rows"][0]["choice"], done.stderr
        gone["rows"][0]["choice"] = {}


FORMS = [(1, n) for n in (1, 2, 3, 4, 8)] + [(2, 1), (2, 2)] + [(3, 2), (4, 0), (4, 2)]


@pytest.mark.parametrize("form,size", FORMS)
@pytest.mark.parametrize("isa", ("v3", "v4"))
def test_every_form_of_loops_is_right(form, size, isa, loops, monkeypatch):
    if isa == "v4" and "avx512vl" not in open("/proc/cpuinfo").read():
        pytest.skip("no AVX-512")
    folder, own, wanted = loops
    monkeypatch.setenv("COIL_ISA", isa)
    choice = {"form": form, "size": size} if size else {"form": form}
    record = copy.deepcopy(own)
    record["hardware"]["isa"] = isa
    assert with_choice(record, choice, folder / "f.json", lambda: harness.coil("compile", folder / "loops.pt2", "-o", folder / "f.pt2", "--replay", folder / "f.json"))
    harness.coil_ok("run", folder / "f.pt2", "--input", folder / "in.npz", "--output", folder / "out.npz")
    for i, (got, want) in enumerate(zip(harness.load_outputs(folder / "out.npz"), wanted, strict=True)):
        np.testing.assert_allclose(np.asarray(got, dtype=want.dtype), want, rtol=1e-5, atol=1e-4, err_msg=f"result {i}")


@pytest.mark.parametrize("choice", [{"block_tiles": 1}, {"block_panels": 2}, {"block_tiles": 3, "block_panels": 4}, {"threads": 1, "block_tiles": 99, "block_panels": 99}], ids=str)
def test_every_choice_of_attention_is_right(choice, tmp_path):
    import torch

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    length = torch.export.Dim("length", min=1, max=512)
    args = [torch.randn(2, 3, 70, 48) for _ in range(3)]
    torch.export.save(torch.export.export(Attention(), tuple(args), dynamic_shapes=({2: length},) * 3), tmp_path / "p.pt2")
    harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / "own.pt2", "--tune", "fast", "--tune-budget", "500ms", "--record", tmp_path / "r.json")
    record = json.loads((tmp_path / "r.json").read_text())
    assert with_choice(record, choice, tmp_path / "r.json", lambda: harness.coil("compile", tmp_path / "p.pt2", "-o", tmp_path / "q.pt2", "--replay", tmp_path / "r.json"), "attention ") == 1
    for n in (1, 5, 70, 301):
        args = [torch.randn(2, 3, n, 48) for _ in range(3)]
        np.savez(tmp_path / "in.npz", **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
        harness.coil_ok("run", tmp_path / "q.pt2", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        assert harness.max_error(harness.load_outputs(tmp_path / "out.npz")[0], Attention()(*args).numpy()) < 1e-5
