"""Random programs against eager PyTorch (tests/fuzz_programs), the same ones on every machine; and that the comparison sees what is wrong."""

import subprocess
import sys

import harness

FOLDER = harness.REPO / "tests/fuzz_programs"


def test_random_programs():
    done = subprocess.run([sys.executable, "-W", "ignore", FOLDER / "run.py", "--seconds", "500", "--programs", "240", "--seed", "7000"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    last = [line for line in done.stdout.splitlines() if " programs from seed " in line][0]
    assert " right" in last, done.stdout


def test_programs_are_those_of_their_seed_and_shrink():
    sys.path.insert(0, str(FOLDER))
    import programs

    program = programs.generate(12)
    assert program == programs.generate(12) != programs.generate(13)
    values = programs.run(program, [programs.make_input(i) for i in program["inputs"]])
    assert len(values) == len(program["inputs"]) + len(program["steps"])
    shapes = [(list(v.shape), str(v.dtype).removeprefix("torch.")) for v in values]
    for smaller in programs.smaller(program, shapes):
        assert len(smaller["steps"]) <= len(program["steps"])
        assert max(smaller["outputs"]) < len(smaller["inputs"]) + len(smaller["steps"])
