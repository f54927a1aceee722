"""coil_conversations_step and the errors of conversations, from C; the same errors on the command line."""

import os
import subprocess

import harness
from test_batches import MADE, PROMPTS, SLOTS, package_of
from tiny_decoder import CONTEXT, decoder, greedy, tiny


def test_several_conversations_in_c(tmp_path):
    (tmp_path / "one").mkdir()
    batched = package_of(tmp_path, ("prefill", 8, "put"), ("decode", 1, "put"))
    decoder.export(tiny(), tmp_path / "one/m.export.pt2")
    harness.coil_ok("compile", tmp_path / "one/m.export.pt2", "-q", "-o", tmp_path / "one/m.pt2")
    build = os.path.dirname(os.path.abspath(harness.COIL))
    source, program = harness.REPO / "tests/python/conversations.c", tmp_path / "conversations"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{harness.REPO / 'include'}", str(source), "-o", str(program), f"-L{build}", "-lcoil_runtime", f"-Wl,-rpath,{build}"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    prompts = (PROMPTS * 2)[: SLOTS + 2]  # more than a call serves
    done = subprocess.run([program, batched, tmp_path / "one/m.pt2", str(CONTEXT), str(MADE), *(",".join(map(str, p)) for p in prompts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    assert found == [greedy(tiny(), p, MADE) for p in prompts] * 3, "in one step, in pieces of 3, and by a program of single conversations"


def test_errors_on_the_command_line(tmp_path):
    decoder.export(tiny(), tmp_path / "m.export.pt2")
    harness.coil_ok("compile", tmp_path / "m.export.pt2", "-q", "-o", tmp_path / "m.pt2")
    long = ",".join(["65"] * (CONTEXT + 5))
    harness.assert_refused(harness.coil("generate", tmp_path / "m.pt2", "--ids", long), "caches are full", code=210)
    harness.assert_refused(harness.coil("generate", tmp_path / "m.pt2", "--ids", "-1"), "token -1 is not in the vocabulary", code=210)
    harness.assert_refused(harness.coil("generate", tmp_path / "m.pt2", "--ids", "65", "--source", "65"), "no encoder", code=402)
    # Full on the way: what came before is shown.
    stopped = harness.coil("generate", tmp_path / "m.pt2", "--ids", ",".join(["65"] * (CONTEXT - 3)), "-n", "20")
    assert stopped.returncode != 0 and "caches are full" in stopped.stderr and len(stopped.stdout.split()) == 4
