"""`coil reduce` and `coil diff --save`: small programs that show what a large one does, as files that PyTorch reads too."""

import os
import stat

import numpy as np
import pytest
import torch

import planted
from harness import COIL, DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok, load_outputs


class Deep(torch.nn.Module):
    """Sixteen layers; one of them makes an infinity of what it is given."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(16))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if i == 7:
                x = 1 / torch.relu(x)
        return x, x.sum(), x * 2


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep")
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    torch.export.save(torch.export.export(Deep().eval(), (x,)), folder / "deep.pt2")
    np.savez(folder / "x.npz", in_0=x.numpy())
    return folder / "deep.pt2", folder / "x.npz"


def eager(folder):
    program = torch.export.load(folder / "program.pt2")
    with np.load(folder / "inputs.npz") as arrays:
        inputs = [torch.from_numpy(arrays[f"in_{i}"]) for i in range(len(arrays.files))]
    results = program.module()(*inputs)
    return program, [r.detach().numpy() for r in (results if isinstance(results, (tuple, list)) else [results])]


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def test_a_command_says_what_fails(deep, tmp_path):
    program, inputs = deep
    # Fails: some result is not finite.
    test = script(tmp_path / "fails.sh", f'"{COIL}" run "$1" -i "$2" --json | grep -q \'"not_finite": [1-9]\'\n')
    found = coil_json("reduce", program, "-i", inputs, "--test", f'{test} "$1" "$2"', "-o", tmp_path / "small", env=dict(os.environ, COIL_CACHE=str(tmp_path / "cache")))
    assert found["operators_before"] >= 36 and found["operators"] <= 2 and found["tests"] <= 60
    exported, results = eager(tmp_path / "small")
    targets = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert any("reciprocal" in t or "div" in t for t in targets) and not np.isfinite(results[0]).all()
    coil_ok("run", tmp_path / "small/program.pt2", "-i", tmp_path / "small/inputs.npz", "-o", tmp_path / "out.npz")
    assert np.array_equal(load_outputs(tmp_path / "out.npz")[0], results[0])


@pytest.mark.parametrize("anonymous", [False, True])
def test_a_wrong_kernel_is_cut_out(tmp_path, anonymous):
    made = planted.export(tmp_path)
    program, inputs = made["gelu"]
    # A fault that stays: its kernel is the same function in the part that is cut out.
    (function, options), *_ = planted.planted(program, tmp_path, planted.wrong_constant)
    found = coil_json("reduce", program, "-i", inputs, "--wrong", "--with", " ".join(map(str, options)), "-o", tmp_path / "small", *(["--anonymous"] if anonymous else []))
    assert found["operators"] <= found["operators_before"] and found["anonymous"] == anonymous
    assert coil("diff", tmp_path / "small/program.pt2", "-i", tmp_path / "small/inputs.npz", *options, "-q").returncode == 1
    exported, _ = eager(tmp_path / "small")
    before = torch.export.load(program).state_dict
    weights = {name: w for name, w in exported.state_dict.items()}
    assert weights
    for name, w in weights.items():
        corner = before[name][tuple(slice(0, n) for n in w.shape)]  # of smaller sizes
        assert torch.equal(corner, w) != anonymous
        if w.numel() > 64:
            assert abs(corner.std() - w.std()) < 0.3 * corner.std() + 1e-3
    assert ("planted.py" in (tmp_path / "small/program.pt2").read_bytes().decode("latin1")) != anonymous


def test_a_difference_is_saved_alone(tmp_path):
    made = planted.export(tmp_path)
    program, inputs = made["attend"]
    (function, options), *_ = planted.planted(program, tmp_path, planted.wrong_constant)[-1:]
    done = coil("diff", program, "-i", inputs, *options, "--save", tmp_path / "saved", "--json")
    assert done.returncode == 1, done.stderr
    nodes = [sum(n.op == "call_function" for n in torch.export.load(p).graph.nodes) for p in (tmp_path / "saved/program.pt2", program)]
    assert 0 < nodes[0] < nodes[1]
    again = coil("diff", tmp_path / "saved/program.pt2", "-i", tmp_path / "saved/inputs.npz", *options, "-q")
    assert again.returncode == 1, again.stderr
    assert coil("diff", tmp_path / "saved/program.pt2", "-i", tmp_path / "saved/inputs.npz", "-q").returncode == 0
    eager(tmp_path / "saved")


def test_a_program_that_is_written_is_the_same(deep, tmp_path):
    """Nothing is left out where every part is needed: what is written computes what was read."""
    program, inputs = deep
    test = script(tmp_path / "fails.sh", f'test "$("{COIL}" inspect "$1" --json | grep -c aten.linear)" -ge 1 && test $(stat -c %s "$1") -gt 16000\n')
    found = coil_json("reduce", program, "-i", inputs, "--test", f'{test} "$1"', "--most", "1", "-o", tmp_path / "same")
    assert found["operators"] == found["operators_before"]
    _, results = eager(tmp_path / "same")
    coil_ok("run", program, "-i", inputs, "-o", tmp_path / "out.npz")
    for got, expected in zip(load_outputs(tmp_path / "out.npz"), results):
        np.testing.assert_allclose(got, expected, rtol=1e-4)


class Wide(torch.nn.Module):
    """Heads, a view that joins them, a table of rows: sizes that hang together."""

    def __init__(self):
        super().__init__()
        self.table, self.q = torch.nn.Embedding(100, 48), torch.nn.Linear(48, 48)

    def forward(self, ids):
        x = self.table(ids)
        q = self.q(x).view(3, 20, 4, 12).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(3, 20, 48)
        return torch.cat([y, x], -1) / torch.zeros(1)


def sizes_of(exported):
    return [tuple(n.meta["val"].shape) for n in exported.graph.nodes if n.op in ("placeholder", "call_function")]


def test_sizes_get_smaller(tmp_path):
    torch.manual_seed(0)
    ids = torch.randint(0, 100, (3, 20))
    torch.export.save(torch.export.export(Wide().eval(), (ids,)), tmp_path / "wide.pt2")
    np.savez(tmp_path / "ids.npz", in_0=ids.numpy())
    # Fails: there is an attention, and a result that is not finite.
    test = script(tmp_path / "fails.sh", f'"{COIL}" inspect "$1" | grep -q attention && "{COIL}" inspect "$1" | grep -q embedding && "{COIL}" run "$1" -i "$2" --json | grep -q \'"not_finite": [1-9]\'\n')
    found = coil_json("reduce", tmp_path / "wide.pt2", "-i", tmp_path / "ids.npz", "--test", f'{test} "$1" "$2"', "-o", tmp_path / "small", env=dict(os.environ, COIL_CACHE=str(tmp_path / "cache")))
    exported, results = eager(tmp_path / "small")
    assert not np.isfinite(results[0]).all()
    assert all(n == 1 for shape in found["sizes"].values() for n in shape) and max(max(s, default=1) for s in sizes_of(exported)) <= 4, sizes_of(exported)
    kept = coil_json("reduce", tmp_path / "wide.pt2", "-i", tmp_path / "ids.npz", "--test", f'{test} "$1" "$2"', "--keep-sizes", "-o", tmp_path / "kept", env=dict(os.environ, COIL_CACHE=str(tmp_path / "cache")))
    assert kept["sizes"]["embedding"] == [3, 20, 48]


def test_dynamic_sizes_stay_dynamic(tmp_path):
    class Rows(torch.nn.Module):
        def forward(self, x, y):
            return (x @ y.T).flatten() * 2, x.sum(0)

    shapes = {"x": {0: torch.export.Dim("a", min=2)}, "y": {0: torch.export.Dim("b", min=2)}}
    torch.export.save(torch.export.export(Rows(), (torch.rand(50, 30), torch.rand(70, 30)), dynamic_shapes=shapes), tmp_path / "rows.pt2")
    np.savez(tmp_path / "in.npz", in_0=np.ones((50, 30), np.float32), in_1=np.ones((70, 30), np.float32))
    # Fails: a product of more than 12 numbers.
    test = script(tmp_path / "fails.sh", f'"{COIL}" inspect "$1" | grep -q matmul && "{COIL}" run "$1" -i "$2" -o "$2.out.npz" && "{os.sys.executable}" -c "import numpy, sys; sys.exit(numpy.load(sys.argv[1])[\'out_0\'].size <= 12)" "$2.out.npz"\n')
    found = coil_json("reduce", tmp_path / "rows.pt2", "-i", tmp_path / "in.npz", "--test", f'{test} "$1" "$2"', "-o", tmp_path / "small", env=dict(os.environ, COIL_CACHE=str(tmp_path / "cache")))
    (rows, width), (_, others) = found["sizes"].values()
    assert 12 < rows * others <= 32 and width == 1
    exported, results = eager(tmp_path / "small")
    assert results[0].size == rows * others and exported.range_constraints


def test_the_failure_stays_the_same(tmp_path):
    """A part that fails in another way is not what is looked for: here a process that is ended by another signal."""
    class Two(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x) + torch.cos(x)

    torch.export.save(torch.export.export(Two(), (torch.rand(8, 8),)), tmp_path / "two.pt2")
    np.savez(tmp_path / "x.npz", in_0=np.ones((8, 8), np.float32))
    (function, text), *_ = planted.kernels(tmp_path / "two.pt2", tmp_path)
    bad = tmp_path / "bad.cc"
    at = text.index("const coil_args& a")
    bad.write_text(text[:at] + "__builtin_trap(); " + text[at:])
    found = coil_json("reduce", tmp_path / "two.pt2", "-i", tmp_path / "x.npz", "--crash", "--with", f"--replace-kernel {function}={bad}", "-o", tmp_path / "small")
    assert found["failure"] == "signal 4" and found["operators"] >= 1
    assert coil("run", tmp_path / "small/program.pt2", "-i", tmp_path / "small/inputs.npz", "--replace-kernel", f"{function}={bad}").returncode == -4


def test_a_test_has_limits(deep, tmp_path):
    program, inputs = deep
    greedy = script(tmp_path / "greedy.sh", f'"{os.sys.executable}" -c "bytearray(3 << 30)"\n')
    where = ("-i", inputs, "-o", tmp_path / "none", "--test", str(greedy))
    assert_refused(coil("reduce", program, *where, "--memory", "1GB"), "nothing can be left out", code=402)
    assert_refused(coil("reduce", program, *where, "--memory", "much"), "no amount of memory", code=402)


def test_what_is_asked_wrongly_is_refused(deep, tmp_path):
    program, inputs = deep
    where = ("-i", inputs, "-o", tmp_path / "none")
    assert_refused(coil("reduce", program, *where), "--test COMMAND", code=402)
    assert_refused(coil("reduce", program, *where, "--wrong", "--crash"), "--test COMMAND", code=402)
    assert_refused(coil("reduce", program, *where, "--test", "true", "--with", "-O 0"), "--with", code=402)
    assert_refused(coil("reduce", program, *where, "--test", "false"), "nothing can be left out", code=402)
    assert_refused(coil("reduce", program, *where, "--crash"), "nothing can be left out", code=402)
    assert_refused(coil("reduce", program, *where, "--test", "sleep 5", "--timeout", "0.2"), "nothing can be left out", code=402)
    coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "d.pt2")
    assert_refused(coil("reduce", tmp_path / "d.pt2", "-i", DIGITS_TEST, "-o", tmp_path / "none", "--wrong"), "package", code=402)
    assert not (tmp_path / "none").exists()
