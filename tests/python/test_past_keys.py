"""Attention over a cache and what a call adds to it (src/schedule/past_keys.h): the cache is read where it lies, its copy is made on the way."""

import re

import coil
import pytest
import torch
import torch.nn.functional as F

import harness

MOST_KEYS, MOST_QUERIES = 5120, 512


class Decoder(torch.nn.Module):
    """One attention; `results`: which joined caches the program gives."""

    def __init__(self, results="kv", rows_first=False, grouped=1, mask=None, causal=False, spelled=False, rotate=False, merged=False):
        super().__init__()
        self.results, self.rows_first, self.grouped, self.mask = results, rows_first, grouped, mask
        self.causal, self.spelled, self.rotate, self.merged = causal, spelled, rotate, merged

    def forward(self, q, cache_k, cache_v, k, v, mask):
        if self.rotate:  # what is added is computed
            k = k * 0.5 + k.sin()
        k, v = (torch.cat([a, b], dim=1 if self.rows_first else 2) for a, b in ((cache_k, k), (cache_v, v)))
        results = [x for x, name in ((k, "k"), (v, "v")) if name in self.results]
        if self.rows_first:
            k, v = k.transpose(1, 2), v.transpose(1, 2)
        if self.grouped > 1:
            k, v = (x[:, :, None].expand(-1, -1, self.grouped, -1, -1).reshape(x.shape[0], -1, x.shape[2], x.shape[3]) for x in (k, v))
        mask = mask[:, :, :q.shape[2], :k.shape[2]]
        mask = {None: None, "bool": mask > -0.5, "float": mask}[self.mask]
        if self.spelled:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf")) if self.mask == "bool" else scores + mask
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return [y, *results, *([k.sum(-1)] if "sum" in self.results else [])]


def arguments(past, new, batch=2, heads=3, grouped=1, dim=16, v_dim=None, rows_first=False, dtype=torch.float32, queries=None):
    g = torch.Generator().manual_seed(past * 7 + new)
    make = lambda h, rows, d: torch.randn(*((batch, rows, h, d) if rows_first else (batch, h, rows, d)), generator=g).to(dtype)
    queries = new if queries is None else queries
    return (torch.randn(batch, heads * grouped, queries, dim, generator=g).to(dtype), make(heads, past, dim), make(heads, past, v_dim or dim), make(heads, new, dim),
            make(heads, new, v_dim or dim), torch.randn(batch, 1, MOST_QUERIES + 1, MOST_KEYS, generator=g).to(dtype))


def compiled(module, args, folder, dynamic=()):
    """The model, and the plan's lines of its attention."""
    axis = 1 if getattr(module, "rows_first", False) else 2
    past, new = torch.export.Dim("past", min=0, max=4096), torch.export.Dim("new", min=1, max=MOST_QUERIES)
    shapes = None
    if dynamic:
        p = {axis: past} if "past" in dynamic else {}
        n = {axis: new} if "new" in dynamic else {}
        shapes = {"q": {2: new} if n else {}, "cache_k": p, "cache_v": p, "k": n, "v": n, "mask": None}
    program = torch.export.export(module.eval(), args, dynamic_shapes=shapes)
    torch.export.save(program, folder / "program.pt2")
    dump = folder / "dump"
    harness.coil_ok("compile", folder / "program.pt2", "-o", folder / "model.pt2", env=harness.os.environ | {"COIL_DUMP": str(dump)})
    plan = next(dump.glob("*_plan.txt")).read_text()
    lines = re.findall(r"^  template attention .*$(?:\n  (?:reads|with) .*$)*", plan, re.M)
    assert len(lines) == 1, plan
    return coil.load(folder / "model.pt2"), lines[0]


def check(model, module, args):
    with torch.no_grad():
        got, want = model(*args), module(*(a.double() for a in args))
    assert len(got) == len(want)
    rounding = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[args[0].dtype]
    for i, (a, b) in enumerate(zip(got, want)):
        assert a.shape == b.shape
        if 0 < i and i <= len([r for r in getattr(module, "results", "") if r in "kv"]) and not getattr(module, "rotate", False):
            assert torch.equal(a.double().nan_to_num(7), b.nan_to_num(7))  # a copy
        else:
            torch.testing.assert_close(a.double(), b, rtol=rounding, atol=2 * rounding, equal_nan=True)


@pytest.mark.parametrize("results, kept", [("kv", 2), ("", 0), ("k", 1), ("v", 1)])
@pytest.mark.parametrize("rows_first", [False, True])
def test_results(results, kept, rows_first, tmp_path):
    module = Decoder(results, rows_first)
    args = arguments(100, 1, rows_first=rows_first)
    model, line = compiled(module, args, tmp_path)
    assert "100 rows before them" in line and line.count(" kept") == kept
    check(model, module, args)
    if not results:  # nothing is copied
        assert not list(tmp_path.glob("dump/*cat*")) and "kernel cat" not in next(tmp_path.glob("dump/*_plan.txt")).read_text()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("case", [
    dict(), dict(mask="bool"), dict(mask="float", spelled=True), dict(causal=True), dict(grouped=4), dict(grouped=2, mask="float", rows_first=True), dict(rotate=True),
    dict(results="", rotate=True, mask="bool"), dict(results="", rows_first=True)], ids=lambda c: "-".join(f"{k}={v}" for k, v in c.items()) or "plain")
def test_sizes(case, dtype, tmp_path):
    """Any cache, the empty one as well, and any number of new rows: few queries, many, blocks of them."""
    module = Decoder(**case)
    sizes = dict(grouped=case.get("grouped", 1), rows_first=case.get("rows_first", False), dtype=dtype)
    model, line = compiled(module, arguments(50, 4, **sizes), tmp_path, ("past", "new"))
    assert "rows before them" in line
    for past, new in [(0, 1), (1, 1), (31, 2), (255, 1), (256, 1), (257, 3), (700, 1), (0, 64), (1, 64), (300, 65), (513, 130), (90, 17)]:
        check(model, module, arguments(past, new, **sizes))


@pytest.mark.parametrize("dim, v_dim", [(1, 1), (7, 33), (80, 64), (129, 250)])
def test_head_sizes(dim, v_dim, tmp_path):
    module = Decoder()
    model, line = compiled(module, arguments(50, 1, dim=dim, v_dim=v_dim), tmp_path, ("past",))
    assert "rows before them" in line
    for past in (0, 1, 33, 260):
        check(model, module, arguments(past, 1, dim=dim, v_dim=v_dim))


@pytest.mark.parametrize("threads", [1, 2])
def test_large_caches(threads, tmp_path):
    """Copies past the caches, from and to any address: odd head sizes shift each head."""
    for dim in (64, 33):
        module = Decoder()
        args = arguments(600, 1, batch=2, heads=8, dim=dim)
        folder = tmp_path / str(dim)
        folder.mkdir()
        model, line = compiled(module, args, folder)
        assert line.count(" kept") == 2
        check(coil.load(folder / "model.pt2", num_threads=threads), module, args)


def test_fewer_heads_than_threads(tmp_path):
    module = Decoder()
    args = arguments(5000, 1, batch=1, heads=1, dim=64)
    compiled(module, args, tmp_path)
    for threads in (1, 2, 3):
        check(coil.load(tmp_path / "model.pt2", num_threads=threads), module, args)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite(value, tmp_path):
    module = Decoder()
    args = arguments(300, 1)
    model, _ = compiled(module, args, tmp_path)
    args[1][0, 1, 17, 3] = value
    args[2][1, 2, 299, 5] = value
    check(model, module, args)


def test_strided_caches(tmp_path):
    module = Decoder()
    args = arguments(64, 1)
    model, _ = compiled(module, args, tmp_path)
    check(model, module, tuple(torch.empty_like(a).transpose(0, 1).contiguous().transpose(0, 1).copy_(a) for a in args))


class TakenApart(torch.nn.Module):
    """The caches are slices of one tensor, and attention is spelled out."""

    def forward(self, q, cache, k, v):
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return ((q @ k.transpose(2, 3)) * 0.25).softmax(-1) @ v, torch.stack([k, v]), k


class ReadBefore(torch.nn.Module):
    """The joined keys decide about the queries: they have to be whole before attention."""

    def forward(self, q, cache_k, cache_v, k, v):
        k, v = torch.cat([cache_k, k], 2), torch.cat([cache_v, v], 2)
        return F.scaled_dot_product_attention(q + k.mean(2, keepdim=True), k, v), k


class Twice(torch.nn.Module):
    """Two attentions over the same caches."""

    def forward(self, q, cache_k, cache_v, k, v):
        k, v = torch.cat([cache_k, k], 2), torch.cat([cache_v, v], 2)
        return F.scaled_dot_product_attention(F.scaled_dot_product_attention(q, k, v), k, v)


class ThreePieces(torch.nn.Module):
    def forward(self, q, cache_k, cache_v, k, v):
        k, v = torch.cat([cache_k, k, k * 2], 2), torch.cat([cache_v, v, v.sin()], 2)
        return F.scaled_dot_product_attention(q, k, v), v


class Kept(torch.nn.Module):
    """The caches are the program's own, and change with each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 3, 64, 16))
        self.register_buffer("v", torch.zeros(2, 3, 64, 16))

    def forward(self, q, k, v):
        k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        self.k.copy_(k[:, :, 1:])
        self.v.copy_(v[:, :, 1:])
        return y


@pytest.mark.parametrize("module, joins", [(TakenApart, True), (ReadBefore, False), (Twice, True), (ThreePieces, True)])
def test_other_programs(module, joins, tmp_path):
    q, cache_k, cache_v, k, v, _ = arguments(90, 1)
    args = (q, torch.stack([cache_k, cache_v]), k, v) if module is TakenApart else (q, cache_k, cache_v, k, v)
    program = torch.export.export(module().eval(), args)
    torch.export.save(program, tmp_path / "program.pt2")
    harness.coil_ok("compile", tmp_path / "program.pt2", "-o", tmp_path / "model.pt2", env=harness.os.environ | {"COIL_DUMP": str(tmp_path / "dump")})
    assert ("rows before them" in next(tmp_path.glob("dump/*_plan.txt")).read_text()) == joins
    got, want = coil.load(tmp_path / "model.pt2")(*args), module()(*(a.double() for a in args))
    for a, b in zip(got if isinstance(got, (list, tuple)) else [got], want if isinstance(want, (list, tuple)) else [want]):
        torch.testing.assert_close(a.double(), b, rtol=3e-6, atol=6e-6)


def test_caches_of_the_program(tmp_path):
    module = Kept().eval()
    model = coil.compile(torch.export.export(Kept().eval(), arguments(64, 1)[0:1] + arguments(64, 1)[3:5]), tmp_path / "model.pt2")
    for step in range(1, 5):
        q, _, _, k, v, _ = arguments(64 + step, 1)
        with torch.no_grad():
            torch.testing.assert_close(model(q, k, v), module(q, k, v), rtol=3e-6, atol=6e-6)
