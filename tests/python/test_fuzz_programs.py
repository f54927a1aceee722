"""Random programs against eager PyTorch (tests/fuzz_programs), the same ones on every machine; and that the comparison sees what is wrong."""

import json
import os
import subprocess
import sys

import harness

FOLDER = harness.REPO / "tests/fuzz_programs"


PROGRAMS = 240 if os.environ.get("COIL_TEST_ALL", "0") != "0" else 96


def test_random_programs():
    done = subprocess.run([sys.executable, "-W", "ignore", FOLDER / "run.py", "--seconds", "500", "--programs", str(PROGRAMS), "--seed", "7000"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    last = [line for line in done.stdout.splitlines() if " programs from seed " in line][0]
    assert " right" in last, done.stdout


SHRUNK = '''
import programs

program = programs.generate(12)
assert program == programs.generate(12) != programs.generate(13)
values = programs.run(program, [programs.make_input(i) for i in program["inputs"]])
assert len(values) == len(program["inputs"]) + len(program["steps"])
shapes = [(list(v.shape), str(v.dtype).removeprefix("torch.")) for v in values]
for smaller in programs.smaller(program, shapes):
    assert len(smaller["steps"]) <= len(program["steps"])
    assert max(smaller["outputs"]) < len(smaller["inputs"]) + len(smaller["steps"])
'''


def test_programs_are_those_of_their_seed_and_shrink():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SHRUNK], cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


JUDGED = '''
import json, worker, programs

def given(sizes, seed=1):
    return {"shape": sizes, "dtype": "float32", "layout": "dense", "seed": seed, "dynamic": [], "special": False}

infinity = [["sub", [0, 0], []], ["reciprocal", [1], []], ["pad", [2], [2, 4, 1]]]
CASES = {
    "a transform of infinities": {"inputs": [given([1])], "steps": [*infinity, ["fft_there_and_back", [3], [-1]]], "outputs": [4]},
    "a normalised zero by itself": {"inputs": [given([5, 7])], "steps": [["expand_one", [0], [5]], ["mul_scalar", [1], [3.0]], ["exp", [2], []], ["layer_norm", [3], []], ["div", [4, 4], []]], "outputs": [5]},
    "a power of a transform's zeros": {"inputs": [{**given([9, 3, 65, 2], 0), "dtype": "int32"}, given([9, 3, 65, 2])], "steps": [["fft_there_and_back", [0], [-4]], ["pow", [2, 1], []]], "outputs": [3]},
    "a whole power of a negative number": {"inputs": [{**given([4, 32], 0), "dtype": "float64"}, {**given([4, 32]), "dtype": "float64"}], "steps": [["fft_there_and_back", [0], [1]], ["pow", [1, 2], []]], "outputs": [3]},
    "the sign of a normalised zero": {"inputs": [{**given([8, 33, 8], 1008974353), "dtype": "int8"}, given([], 828222523)], "steps": [["fmod", [0, 1], []], ["narrow", [2], [2, 1, 1]], ["layer_norm", [3], []], ["copysign", [2, 4], []]], "outputs": [5]},
    "attention of what is no number": {"inputs": [{**given([3, 3, 3, 3], 453986716), "dtype": "float64", "special": True}], "steps": [["attention", [0, 0], [True]]], "outputs": [1]},
    "bytes that lie over each other": {"inputs": [{**given([5, 5, 9], 365231642), "dtype": "uint8", "layout": "expanded"}], "steps": [["nanmedian", [0], [-3, False]]], "outputs": [1]},
}
found = {name: worker.judged(program, False)[0] for name, program in CASES.items()}
compile = worker.coil.compile

class Wrong:
    def __init__(self, model):
        self.model = model

    def __call__(self, *inputs):
        results = self.model(*inputs)
        return tuple(r * 1.01 if r.is_floating_point() else r + 1 for r in (results if isinstance(results, tuple) else (results,)))

worker.coil.compile = lambda *args, **kwargs: Wrong(compile(*args, **kwargs))
# Beside what chance decides there are numbers here that it does not.
beside = {"inputs": [given([5, 7])], "steps": [*CASES["a normalised zero by itself"]["steps"], ["cat", [3, 5], [1]]], "outputs": [6]}
found["wrong beside"] = worker.judged(beside, False)[0]
found["wrong"] = [worker.judged(programs.generate(seed), False)[0] for seed in (71300, 71301, 71302, 71303)]
print(json.dumps(found), file=worker.channel)
'''


def test_chance_is_not_taken_for_a_bug_and_bugs_not_for_chance(tmp_path):
    (tmp_path / "asked.py").write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + JUDGED)
    done = subprocess.run([sys.executable, "-W", "ignore", tmp_path / "asked.py"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=600)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("wrong beside") == "wrong"
    assert found.pop("wrong") == ["wrong"] * 4
    assert found == dict.fromkeys(found, "trivial")
