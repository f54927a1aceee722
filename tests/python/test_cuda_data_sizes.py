"""Programs for CUDA that go on by what their data says, emulated: sizes that are read, branches, loops. The host waits for the device there; the same
programs on the CPU, and what the operators mean, are tested elsewhere (test_torch_data_sizes.py, the zoo)."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

import harness
from test_cuda_sorts import check


def numbers(*sizes):
    """Whose sums are exact in any order."""
    return torch.randint(-8, 9, sizes).float()


def sets_of(*rows):
    """Sets of inputs (x, mask): so many of 3000 rows are kept."""
    torch.manual_seed(0)
    return [(numbers(3000, 5), (torch.randperm(3000) < kept)) for kept in rows]


KEPT = sets_of(1200, 0, 3000, 1)


def test_rows_by_a_mask(tmp_path):
    check(lambda x, m: (x[m] * 2, x[m].sum(0), m.nonzero()), KEPT, tmp_path)


def test_values_by_a_mask(tmp_path):
    """Blocks of 1024 elements, the last one not whole; none, all and one of them kept; several dtypes."""
    torch.manual_seed(1)
    x = numbers(2, 2500)
    sets = [(x, x.long(), x > limit) for limit in (3, 100, -100)]
    check(lambda x, h, m: (x.to(torch.bfloat16).masked_select(m).float(), h.masked_select(m) + 1, *torch.where(m), m.to(torch.int32).argwhere()), sets, tmp_path)


def test_few_elements(tmp_path):
    sets = [(torch.tensor(values),) for values in ([0, 3, 0, -1], [0, 0, 0, 0], [1, 2, 3, 4])]
    check(lambda x: (x.nonzero(), x[x > 0].cumsum(0)), sets, tmp_path)


def test_repeats(tmp_path):
    torch.manual_seed(2)
    x = numbers(70, 3)
    sets = [(x, torch.randint(0, 5, (70,))), (x, torch.zeros(70, dtype=torch.int64)), (x, torch.ones(70, dtype=torch.int64))]
    check(lambda x, n: (x.repeat_interleave(n, 0), torch.repeat_interleave(n)), sets, tmp_path)


def test_different_values(tmp_path):
    torch.manual_seed(3)
    sets = [(torch.randint(0, most, (500,)),) for most in (20, 1, 100_000)]
    check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), sets, tmp_path)


def test_a_number_as_a_size(tmp_path):
    """Scratch memory whose size has no bound before the number is read, and an output of it."""

    def program(x, n):
        size = n.item()
        torch._check(size >= 0)
        torch._check(size <= 10_000)
        numbers = torch.arange(size, device=x.device) * 3 + 1
        return numbers.float().sort(descending=True)[0], torch.full((size, 2), 7.0) * x[0]

    x = numbers(2)
    check(program, [(x, torch.tensor(n)) for n in (5, 0, 4000)], tmp_path)


def test_slices(tmp_path):
    def program(x, n):
        first = n[0].item()
        torch._check(first >= 0)
        torch._check(first <= x.shape[0])
        return x[:first] + 1, x[first:].sum(0)

    x = numbers(9, 4)
    check(program, [(x, torch.tensor([n])) for n in (0, 4, 9)], tmp_path)


def test_sizes_beside_sizes(tmp_path):
    """A dynamic size of the inputs, and sizes of data that follow from each other."""
    torch.manual_seed(4)

    def program(x):
        kept = x[x > 0]
        return kept, kept[kept > 1].square(), x.sum()

    rows = torch.export.Dim("rows", min=1, max=1 << 16)
    check(program, [(numbers(n),) for n in (700, 1, 5000)], tmp_path, (({0: rows},),))


class Branch(nn.Module):
    """Of which only one may run: the other would find a size below 0."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(numbers(6, 6), requires_grad=False)

    def forward(self, x, flag):
        def few(x):
            return ((x[x[:, 0] > 0] @ self.weight).sum(0),)

        def all_of_them(x):
            return (x.sum(0),)

        return torch.cond(flag, few, all_of_them, (x,))


def test_branches_that_read_sizes(tmp_path):
    torch.manual_seed(5)
    x = numbers(40, 6)
    check(Branch(), [(x, torch.tensor(flag)) for flag in (True, False)], tmp_path)


def loop(x, n):
    def goes_on(step, x):
        return (step < n[0]) & (x.abs().sum() < 1e6)

    def step(step, x):
        return step + 1, x * 1.5 + step

    return torch._higher_order_ops.while_loop(goes_on, step, (torch.zeros((), dtype=torch.int64), x))


def test_loops(tmp_path):
    """Whose end is a number, what they have computed, or at once."""
    torch.manual_seed(6)
    x = numbers(300)
    check(loop, [(x, torch.tensor([n])) for n in (7, 0, 10_000)], tmp_path)


def test_a_loop_around_a_size(tmp_path):
    """How many are left decides the next step, and a branch within the loop."""

    def program(x):
        def goes_on(x, n):
            return n < 6

        def step(x, n):
            positive = x[x > 0].sum()
            x = torch.cond(positive > 3, lambda x: x - 0.25, lambda x: x + 0.125, (x,))
            return x, n + 1

        return torch._higher_order_ops.while_loop(goes_on, step, (x, torch.zeros((), dtype=torch.int64)))

    torch.manual_seed(7)
    check(program, [(numbers(50),), (torch.full((50,), -1.0),)], tmp_path)


def test_many_steps(tmp_path):
    """More than are written out: a loop of the host's, with results of each step."""
    from torch._higher_order_ops.scan import scan

    def program(x, rows):
        return scan(lambda carry, row: (carry * 0.5 + row, carry.sum() + row), x, rows)

    torch.manual_seed(8)
    steps = torch.export.Dim("steps", min=2, max=4096)
    check(program, [(numbers(3), numbers(n, 3)) for n in (700, 2, 3)], tmp_path, ((None, {0: steps}),))


def test_what_is_wrong_is_said(tmp_path):
    """A number below 0 or too large, an assertion, a row that there is not: named, and the next call is right."""

    def program(x, n, rows):
        size = n.item()
        torch._check(size >= 0)
        torch._check(size <= 100)
        return x[rows][:, :1].sum(1), torch.zeros(size) + x[rows[0], 0]

    x = numbers(8, 2)
    rows = torch.tensor([1, 2])
    from emulated_cuda import StatefulProgram

    program = StatefulProgram(torch.export.export(Wrapped(program), (x, torch.tensor(3), rows)))
    for n, rows, text in ((-1, [1, 2], "COIL-E211"), (101, [1, 2], "COIL-E211"), (4, [1, 8], "an index is out of range"), (4, [7, 0], None)):
        if text:
            with pytest.raises(RuntimeError, match=text):
                program(x, torch.tensor(n), torch.tensor(rows))
        else:
            expected = x[rows][:, :1].sum(1), torch.zeros(n) + x[rows[0], 0]
            torch.testing.assert_close(tuple(program(x, torch.tensor(n), torch.tensor(rows))), expected)


def test_routines_of_the_host(tmp_path):
    """What the CPU computes for a GPU: several routines, sizes that calls decide, none of them, and between kernels of the device."""

    def program(x):
        inverse = torch.linalg.inv(x + 9 * torch.eye(3, dtype=x.dtype))
        return inverse * 2, torch.fft.fft(x.sum(0)).real + 1, torch.linalg.eigvalsh(x @ x.mT)

    torch.manual_seed(9)
    sets = [(torch.randn(n, 3, 3, dtype=torch.float64),) for n in (5, 1, 40)]
    batch = torch.export.Dim("batch", min=1, max=100)
    emulated = check(program, sets, tmp_path, (({0: batch},),), tolerance=1e-10)
    with zipfile.ZipFile(emulated.package) as archive:
        kernels = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("kernels.json"))
    assert "the CPU computes it" in kernels
    found = harness.coil_json("check", tmp_path / "program.pt2", "--target", "cuda:sm_90")
    assert found["native"] and {"aten.linalg_inv.default", "aten.fft_fft.default"} <= {op["op"] for op in found["ops"] if op["status"] == "host"}, found
    assert all(op["status"] == "native" for op in harness.coil_json("check", tmp_path / "program.pt2")["ops"])


def test_boxes_that_overlap(tmp_path):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(10)
    corners = torch.rand(30, 2) * 10
    boxes = torch.cat([corners, corners + torch.rand(30, 2) * 8], 1)
    sets = [(boxes, torch.rand(30)), (boxes[:, [0, 1, 0, 1]], torch.rand(30))]
    check(lambda boxes, scores: (torchvision.ops.nms(boxes, scores, 0.4), torchvision.ops.nms(boxes, scores, 0.7).float() + 1), sets, tmp_path)


def test_a_singular_matrix_is_named(tmp_path):
    """In PyTorch's words, with the line; and the next call is right."""
    from emulated_cuda import StatefulProgram

    program = StatefulProgram(torch.export.export(Wrapped(torch.linalg.inv), (torch.eye(3),)))
    with pytest.raises(RuntimeError, match="COIL-E212: .*singular"):
        program(torch.zeros(3, 3))
    torch.testing.assert_close(program(torch.eye(3) * 2)[0], torch.eye(3) / 2)


def test_arrays_of_another_library(tmp_path):
    """Through the Python module: results are arrays of that library, of the sizes that data says."""

    def program(x, m):
        return x[m] * 2, m.nonzero(), x.sum(0)

    emulated, files = check(program, KEPT, tmp_path), []
    for number, inputs in enumerate(KEPT):
        files.append(tmp_path / f"{number}.npz")
        np.savez(files[-1], **{f"in_{i}": t.numpy() for i, t in enumerate(inputs)})
    script = harness.REPO / "tests/python/emulated_arrays.py"
    done = subprocess.run([sys.executable, script, emulated.package, *files, tmp_path / "results.npz"], capture_output=True, text=True, env=emulated.environment())
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(tmp_path / "results.npz") as results:
        for number, inputs in enumerate(KEPT):
            for i, expected in enumerate(program(*inputs)):
                assert np.array_equal(results[f"{number}_{i}"], expected.numpy())


class Wrapped(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *inputs):
        return self.call(*inputs)


def test_such_programs_are_no_graphs(tmp_path):
    """Calls that repeat are launched as CUDA graphs; those that wait are not, and neither is what a graph would record."""
    program = torch.export.export(Wrapped(lambda x: x[x > 0] * 2), (numbers(100),))
    torch.export.save(program, tmp_path / "program.pt2")
    harness.coil_ok("compile", tmp_path / "program.pt2", "--target", "cuda:sm_90", "-o", tmp_path / "p.coil.pt2")
    assert "CUDA graphs" not in harness.coil_ok("inspect", tmp_path / "p.coil.pt2").stdout
    host = harness.coil_ok("inspect", tmp_path / "p.coil.pt2", "--source", "host.cc").stdout
    assert "cd::cuda_read(" in host and "{enqueue, 1, 1, 1, false, nullptr}" in host
