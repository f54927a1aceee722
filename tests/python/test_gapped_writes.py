"""Inputs with gaps that a program writes to, as some columns of a matrix or every other row: what lies in the gaps is others' and stays, behind every door."""

import pytest
import torch

import coil
import emulated_cuda

N = torch.randn
MATRICES = {
    "columns": lambda: N(8, 10)[:, 2:5], "steps": lambda: N(16, 10)[1::2, ::2], "turned": lambda: N(3, 40)[:, 2:29:4].t(), "one": lambda: N(8, 10)[:, 2:3],
    "bfloat16": lambda: N(8, 10).bfloat16()[:, ::3], "complex": lambda: N(8, 10, dtype=torch.complex64)[:, ::3], "int64": lambda: torch.randint(9, (8, 10))[:, ::3],
    "uint8": lambda: torch.randint(9, (8, 10), dtype=torch.uint8)[:, ::3], "bool": lambda: (N(8, 10) > 0)[:, ::3], "empty": lambda: N(8, 10)[:, 2:2]}
WRITES = {
    "in_place": lambda x: x.add_(x),  # each element by itself
    "reversed": lambda x: x.copy_(x.flip(0)),
    "product": lambda x: x.copy_(x @ x.t() @ x),
    "sorted": lambda x: x.copy_(x.sort(0)[0]),
    "running": lambda x: x.copy_(x.cumsum(0)),
    "some": lambda x: x[1].zero_(),
    "twice": lambda x: (x.copy_(x.roll(1, 0)), x.mul_(2))[1],
}


class Program(torch.nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write

    def forward(self, *inputs):
        results = self.write(*inputs)
        return results if isinstance(results, list) else results.clone()


def twin(x):
    """A tensor that lies alike in a copy of the whole memory."""
    return torch.as_strided((x if x._base is None else x._base).clone(), x.shape, x.stride(), x.storage_offset())


def same(found, wanted):
    bound = 3e-2 if wanted.dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


def listed(results):
    return list(results) if isinstance(results, (list, tuple)) else [results.clone()]


def judge(program, write, *inputs):
    """The same results, values and neighbours as eager's."""
    theirs, ours = [twin(x) for x in inputs], [twin(x) for x in inputs]
    wanted, found = listed(write(*theirs)), listed(program(*ours))
    for mine, eagers in zip(found, wanted, strict=True):
        same(mine, eagers)
    for mine, eagers in zip(ours, theirs):
        same(mine._base, eagers._base)


def takes(write, x):
    try:
        WRITES[write](twin(x))
        return True
    except (RuntimeError, TypeError):
        return False  # no booleans, say


def all_of(write):
    """The matrices that eager writes so, and a program for all of them."""
    torch.manual_seed(0)
    found = [x for x in (make() for make in MATRICES.values()) if takes(write, x)]
    return found, lambda *inputs: [WRITES[write](x).clone() for x in inputs]


@pytest.mark.parametrize("write", WRITES)
def test_packages(write):
    inputs, function = all_of(write)
    judge(coil.compile(torch.export.export(Program(function), tuple(twin(x) for x in inputs))), function, *inputs)


@pytest.mark.parametrize("write", ["in_place", "reversed", "product", "some"])
def test_torch_compile(write, fresh_compiles):
    inputs, function = all_of(write)
    judge(torch.compile(function, backend="coil", dynamic=False), function, *inputs)
    assert coil.compile_stats().fallbacks == {}


@pytest.mark.parametrize("write", ["in_place", "reversed", "product"])
def test_sizes_of_a_call(write):
    rows = torch.export.Dim("rows", min=1, max=64)
    program = coil.compile(torch.export.export(Program(WRITES[write]), (N(8, 10)[:, 2:5],), dynamic_shapes=(({0: rows},),)))
    for count in (8, 1, 5, 64):
        judge(program, WRITES[write], N(count, 10)[:, 2:5])


def test_a_failed_call_changes_nothing():
    for write in (lambda x, i: x.copy_(x[i]), lambda x, i: x.add_(N(8, 3)[i])):
        x, rows = N(8, 10)[:, 2:5], torch.arange(8)
        program = coil.compile(torch.export.export(Program(write), (twin(x), rows.clone())))
        before = x._base.clone()
        with pytest.raises(coil.Error, match="out of range"):
            program(x, rows + 1)
        assert torch.equal(x._base, before)
        program(x, rows.flip(0).contiguous())
        assert not torch.equal(x, before[:, 2:5]) and torch.equal(x._base[:, 5:], before[:, 5:])


def test_expanded_inputs_are_refused():
    """As eager does: several elements would be in one place."""
    with pytest.raises(coil.UnsupportedError, match="several of its elements are in one place"):
        coil.compile(torch.export.export(Program(WRITES["in_place"]), (N(1, 3).expand(4, 3),)))


def test_stock_pytorch(tmp_path):
    for write in ("in_place", "reversed"):
        x = MATRICES["columns"]()
        coil.compile(torch.export.export(Program(WRITES[write]), (twin(x),)), f"{tmp_path}/{write}.pt2")
        judge(torch._inductor.aoti_load_package(f"{tmp_path}/{write}.pt2"), WRITES[write], x)


@pytest.mark.parametrize("write", ["in_place", "reversed"])
def test_emulated_cuda(write):
    """With what may fail, where the host asks no kernel, and without."""
    x = MATRICES["steps"]()
    judge(emulated_cuda.StatefulProgram(torch.export.export(Program(WRITES[write]), (twin(x),))), WRITES[write], x)
    chosen = (lambda x, i: x.add_(x[i])) if write == "in_place" else (lambda x, i: x.copy_(x.flip(0)[i]))
    rows = torch.arange(8)
    program = emulated_cuda.StatefulProgram(torch.export.export(Program(chosen), (twin(x), rows.clone())))
    judge(program, chosen, x, rows)
    before = x._base.clone()
    with pytest.raises(RuntimeError, match="out of range"):
        program(x, rows + 3)
    assert torch.equal(x._base, before)
