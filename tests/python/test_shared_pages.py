"""Forks of a state that have pages in common: whatever is done to them, in any order, each holds what a copy would hold."""

import os
import random
import resource

import numpy as np
import pytest
import torch

import coil

ROWS, WIDTH = 6000, 256  # 6 MB: more than a fork copies


class Rows(torch.nn.Module):
    """Writes a row, and reads one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(ROWS, WIDTH))
        self.register_buffer("count", torch.tensor([7.0]))

    def forward(self, place, values, wanted):
        self.cache.index_copy_(0, place, values)
        self.count.add_(1)
        return self.cache[wanted], self.count.clone()


@pytest.fixture(scope="module")
def model():
    return coil.compile(Rows(), args=(torch.tensor([1, 2]), torch.zeros(2, WIDTH), torch.arange(ROWS)),
                        dynamic_shapes={"place": {0: torch.export.Dim("n", min=2, max=ROWS)}, "values": {0: torch.export.Dim("n", min=2, max=ROWS)}, "wanted": None})


class Both:
    """A state, and what it has to hold."""

    def __init__(self, state, rows, count):
        self.state, self.rows, self.count = state, rows, count

    def write(self, rng, n):
        place, values = rng.permutation(ROWS)[:n], rng.standard_normal((n, WIDTH)).astype(np.float32)
        self.rows[place] = values
        self.count += 1
        rows, count = self.state(torch.from_numpy(place), torch.from_numpy(values), torch.arange(ROWS))
        np.testing.assert_array_equal(rows, self.rows)
        assert count.item() == self.count

    def fork(self):
        return Both(self.state.fork(), self.rows.copy(), self.count)


@pytest.mark.parametrize("seed", range(4))
def test_each_holds_its_own(model, seed):
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    states = [Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)]
    states[0].write(rng, ROWS // 2)
    for _ in range(40):
        one = chance.choice(states)
        what = chance.choice(["write", "write", "much", "fork", "fork", "save", "reset", "drop"])
        if what in ("write", "much"):
            one.write(rng, chance.choice([2, 5]) if what == "write" else ROWS // 3)
        elif what == "fork" and len(states) < 9:
            states.append(one.fork())
        elif what == "save":
            saved, other = one.state.save(), chance.choice(states)
            other.state.restore(saved)
            other.rows, other.count = one.rows.copy(), one.count
        elif what == "reset":
            one.state.reset()
            one.rows, one.count = np.zeros((ROWS, WIDTH), np.float32), 7
        elif what == "drop" and len(states) > 1:
            states.remove(one)
    for one in states:
        one.write(rng, 2)


def test_more_forks_than_files(model):
    """Each state's own pages are many, so that each fork wants a file: the later ones are copies."""
    rng = np.random.default_rng(0)
    first = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    states, before = [first], len(os.listdir("/proc/self/fd"))
    for _ in range(80):
        states[-1].write(rng, ROWS // 4)
        states.append(states[-1].fork())
    assert len(os.listdir("/proc/self/fd")) - before <= 64
    for one in states[::7]:
        one.write(rng, 2)
    del states, first, one
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_descriptors(model):
    rng = np.random.default_rng(1)
    one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    one.write(rng, ROWS)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used[0] + 1, most[1]))
    try:
        other = one.fork()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        os.close(used[0])
    other.write(rng, 2)
    one.write(rng, 2)


def test_forks_take_what_they_write(model):
    """Fifty forks of one state take less than ten copies of it would."""
    def taken():
        with open("/proc/self/status") as status:
            return sum(int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssShmem"))) * 1024

    rng = np.random.default_rng(2)
    one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    one.write(rng, ROWS)
    one.state.fork()
    before = taken()
    forks = [one.state.fork() for _ in range(50)]
    for fork in forks:
        fork(torch.tensor([1, 2]), torch.ones(2, WIDTH), torch.arange(ROWS) * 0)
    assert taken() - before < 10 * ROWS * WIDTH * 4
