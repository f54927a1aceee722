"""torch.compile(backend="coil") among two processes (gloo, on the CPU): DistributedDataParallel, FSDP2, and collectives in the traced function. Graphs break where
they must; parameters and losses are those of eager, step by step."""

import os
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import harness

STEPS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        x = self.words(x).mean(1)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def batch(step, rank):
    source = torch.Generator().manual_seed(10 * step + rank)
    return torch.randint(0, 40, (6, 7), generator=source), torch.randint(0, 5, (6,), generator=source)


def train(model, run, accumulate=1):
    """Losses of the steps, and the parameters behind them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(accumulate):
            last = part == accumulate - 1
            x, y = batch(step * accumulate + part, dist.get_rank())
            with model.no_sync() if not last and hasattr(model, "no_sync") else torch.enable_grad():
                loss = F.cross_entropy(run(x), y)
                loss.backward()
        optimizer.step()
        losses.append(loss.item())
    whole = lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p
    return losses, [whole(p).detach().clone() for p in model.parameters()]


def same(ours, theirs):
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4), (ours[0], theirs[0])
    assert len(set(theirs[0])) == STEPS
    for a, b in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    # Every process has the same parameters.
    for p in ours[1]:
        other = p.clone()
        dist.broadcast(other, 0)
        torch.testing.assert_close(p, other, atol=0, rtol=0)


def made(wrap):
    torch.manual_seed(0)
    return wrap(Net())


def ddp(coil, accumulate=1, **options):
    """Buckets so small that DDPOptimizer divides the graph, and one that does not."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1  # PyTorch wants the first bucket to be no larger than the others
    for megabytes in (0.004, 25):
        torch._dynamo.reset()
        coil.reset_compile_stats()
        wrap = lambda net: nn.parallel.DistributedDataParallel(net, bucket_cap_mb=megabytes, **options)
        ours, theirs = made(wrap), made(wrap)
        same(train(ours, torch.compile(ours, backend="coil"), accumulate), train(theirs, theirs, accumulate))
        stats = coil.compile_stats()
        assert stats.graphs >= (4 if megabytes < 1 else 2) and stats.packages, str(stats)


def fsdp(coil, mesh=None):
    """Each block is a unit of its own; what gathers parameters stays outside of the graphs."""
    from torch.distributed.fsdp import fully_shard

    def wrap(net):
        for block in net.blocks:
            fully_shard(block)
        return fully_shard(net)

    ours, theirs = made(wrap), made(wrap)
    same(train(ours, torch.compile(ours, backend="coil")), train(theirs, theirs))
    assert coil.compile_stats().packages, str(coil.compile_stats())


def fsdp_of_compiled_blocks(coil):
    """As torchtitan does it: the blocks are compiled, then divided."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)):
        def wrap(net, compiled):
            for block in net.blocks:
                if compiled:
                    block.compile(backend="coil")  # FSDP's hooks break the graph
                fully_shard(block, mp_policy=policy)
            return fully_shard(net, mp_policy=policy)

        coil.reset_compile_stats()
        ours, theirs = made(lambda net: wrap(net, True)), made(lambda net: wrap(net, False))
        one, other = train(ours, ours), train(theirs, theirs)
        if policy.param_dtype is None:
            same(one, other)
        else:
            assert one[0] == pytest.approx(other[0], rel=5e-2)
        stats = coil.compile_stats()
        assert stats.packages and not stats.fallbacks, str(stats)


def collectives(coil):
    """Functional collectives in the graph: they run in PyTorch, between programs."""
    import torch.distributed._functional_collectives as functional

    def function(x):
        total = functional.all_reduce(x.sin() * 2, "sum", dist.group.WORLD)
        both = functional.all_gather_tensor(total.relu() + 1, 0, dist.group.WORLD)
        return both * x.mean()

    torch.manual_seed(dist.get_rank())
    x = torch.randn(4, 5)
    torch.testing.assert_close(torch.compile(function, backend="coil")(x), function(x))
    stats = coil.compile_stats()
    assert stats.packages >= 2 and any("all_reduce" in row for row in stats.fallbacks), str(stats)


CHECKS = {
    "ddp": ddp, "ddp_accumulates": lambda coil: ddp(coil, accumulate=2), "ddp_static_graph": lambda coil: ddp(coil, static_graph=True),
    "ddp_gradients_are_views": lambda coil: ddp(coil, gradient_as_bucket_view=True), "fsdp": fsdp, "fsdp_of_compiled_blocks": fsdp_of_compiled_blocks, "collectives": collectives,
}


# Numbers are right there, but by eager: Dynamo hands over no graph at all, and why is not found yet.
NOTHING_COMPILED = pytest.mark.xfail(strict=True, reason="coil gets no graph of a module that FSDP2 has divided")


@pytest.mark.parametrize("name", [pytest.param(n, marks=NOTHING_COMPILED) if n.startswith("fsdp") else n for n in CHECKS])
def test_two_processes(name, tmp_path):
    import subprocess

    command = [sys.executable, __file__, name, str(tmp_path / "meeting")]
    processes = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in (0, 1)]
    try:
        texts = [p.communicate(timeout=280)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    assert [p.returncode for p in processes] == [0, 0], "\n----\n".join(t[-4000:] for t in texts)


def main(name, meeting, rank):
    import coil

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=2)
    CHECKS[name](coil)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # A thread of PyTorch's that asks for the interpreter while it ends is ended with "terminate called without an active exception".


if __name__ == "__main__":
    assert harness.PYTHON_PATH.exists()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(*sys.argv[1:])
