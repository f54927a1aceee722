"""Loops on the threads of PyTorch's OpenMP team: the same bits as on the runtime's own, for several callers, behind a fork, and beside
operators of any number of threads."""

import os
import subprocess
import sys

import pytest

import harness

SETUP = """
import os, signal, sys, threading, torch
from torch import nn
import coil
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(96, 400), nn.GELU(), nn.LayerNorm(400), nn.Linear(400, 64)).eval()
x = torch.randn(128, 96)
path = sys.argv[1]
if not os.path.exists(path):
    coil.compile(model, path, args=(x,))
# at least two threads, whatever the machine has
torch.set_num_threads(2)
loaded = coil.load(path, num_threads=2)
def own_threads():
    return sum(open(f"/proc/self/task/{t}/comm").read() == "coil\\n" for t in os.listdir("/proc/self/task"))
def call():
    y = torch.randn(2000, 300).softmax(-1)  # PyTorch's threads wake up
    return loaded(x)
"""

CASES = {
    "bits": """
first = call()
assert all(torch.equal(call(), first) for _ in range(5))
print(own_threads(), first.double().sum().item().hex())
""",
    "callers": """
first, wrong = call(), []
def work():
    wrong.extend(i for i in range(150) if not torch.equal(call(), first))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(not wrong)
""",
    "fork": """
first = call()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if all(torch.equal(loaded(x), first) for _ in range(5)) else 1)
print(os.waitpid(child, 0)[1], torch.equal(call(), first))
""",
    "fewer": """
first = call()
for n in (1, 3, 2, 8):
    torch.set_num_threads(n)
    assert all(torch.equal(call(), first) for _ in range(5)), n
print("same")
""",
    "compiled": """
compiled = torch.compile(lambda x: model(x).sin(), backend="coil")
with torch.no_grad():
    want = compiled(x)
    for _ in range(5):
        torch.randn(2000, 300).softmax(-1)
        assert torch.equal(compiled(x), want)
print("same")
""",
}


def run(case, mode, path):
    done = subprocess.run([sys.executable, "-c", SETUP + CASES[case], str(path)], capture_output=True, text=True, timeout=1200,
                          env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH), COIL_OPENMP=mode))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("beside") / "model.pt2"


def test_bits_do_not_depend_on_whose_threads(path):
    own, bits = run("bits", "never", path).split()
    team, same = run("bits", "always", path).split()
    assert (own, team) == ("1", "0")  # threads of the runtime's own, beside the caller
    assert bits == same == run("bits", "auto", path).split()[1]


@pytest.mark.parametrize("case,printed", [("callers", "True"), ("fork", "0 True"), ("fewer", "same"), ("compiled", "same")])
def test_on_the_team(case, printed, path):
    assert run(case, "always", path) == printed
