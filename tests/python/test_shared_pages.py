"""Forks of a state that have pages in common: whatever is done to them, in any order, each holds what a copy would hold."""

import os
import random
import resource

import numpy as np
import pytest
import torch

import coil

ROWS, WIDTH = 6000, 256  # 6 MB: more than a fork copies
MOST = 40                # descriptors of the states of a model, where a process may have 160


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
    """Each state wants a file: the later ones have pages of their own, which their forks copy."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * MOST, limit[1]))
    try:
        rng, before = np.random.default_rng(0), len(os.listdir("/proc/self/fd"))
        states = []
        for _ in range(60):
            one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
            one.write(rng, ROWS // 4)
            states += [one, one.fork()]
        assert 10 < len(os.listdir("/proc/self/fd")) - before <= MOST
        for one in states[::7]:
            one.write(rng, 2)
        del states, one
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


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


def minor_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_the_first_fork_copies_nothing(model):
    """No page of it is touched."""
    one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    one.write(np.random.default_rng(3), ROWS)
    before = minor_faults()
    fork = one.fork()
    assert minor_faults() - before < 200 < ROWS * WIDTH * 4 // 4096
    fork.write(np.random.default_rng(4), 2)
    one.write(np.random.default_rng(5), 2)


def in_another_process(work):
    """What `work` returns in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("forked", [False, True])
def test_another_process_has_its_own(model, forked):
    """A state that the parent process made: the child has it as it was, and what it writes is its own."""
    one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    one.write(np.random.default_rng(6), 100)
    kept = one.fork() if forked else None

    def work():
        one.write(np.random.default_rng(7), 50)
        other = one.fork()
        other.write(np.random.default_rng(8), 50)
        one.state.reset()
        return "good"

    assert in_another_process(work) == "good"
    for state in (one, kept) if forked else (one,):
        state.write(np.random.default_rng(9), 2)


def test_another_process_is_told_of_changes(model):
    """What the parent process has changed since is no longer what the child had; a fork, whose pages are its own, and a state that begins anew are."""
    one = Both(model.new_state(), np.zeros((ROWS, WIDTH), np.float32), 7)
    one.write(np.random.default_rng(6), 100)
    ready, go = os.pipe()

    def work():
        os.read(ready, 1)
        try:
            one.state.fork()
        except coil.Error as error:
            assert "COIL-E213" in str(error) and "fork of the process" in str(error)
            one.state.reset()
            one.rows, one.count = np.zeros((ROWS, WIDTH), np.float32), 7
            one.write(np.random.default_rng(7), 3)
            return "told"
        return "not told"

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, work().encode())
        os._exit(0)
    one.write(np.random.default_rng(8), 5)
    os.write(go, b"x")
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == "told"
    os.waitpid(child, 0)
    one.write(np.random.default_rng(9), 2)
