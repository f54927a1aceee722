"""Variables of the environment may hold anything: a command answers, or names the variable; it does not crash, hang, or write to the terminal what they hold."""

import os
import re
import subprocess

import pytest

import harness

SOURCES = [path for folder in ("src", "tools/coil", "device") for path in (harness.REPO / folder).rglob("*.cc")]
VARIABLES = sorted({name for path in SOURCES for name in re.findall(r'"(COIL_[A-Z_]+)"', path.read_text())})
VALUES = [b"", b" ", b"0", b"-1", b"1e9", b"nan", b"99999999999999999999", b"abc", b"x" * 100_000, b"/dev/null", b"/proc/self/mem", b"PIPE", b"\xff\xfe", b"a\nb\x1b[31m",
          b"%s%n", b"{}", b"redis://[::1", b"file:///x"]


def test_the_list_is_not_empty():
    assert len(VARIABLES) > 25 and "COIL_CACHE" in VARIABLES and "COIL_THREADS" in VARIABLES


@pytest.mark.parametrize("variable", VARIABLES)
def test_any_value(variable, digits_package, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    base = {name: value for name, value in os.environb.items() if not name.startswith(b"COIL_")}
    for value in VALUES:
        environment = {**base, b"COIL_CACHE": b"off", variable.encode(): value.replace(b"PIPE", bytes(tmp_path / "pipe"))}
        for words in (["bench", digits_package, "--repeat", "1", "--warmup", "0"], ["check", harness.DIGITS]):
            done = subprocess.run([harness.COIL, *map(str, words)], env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            text = (done.stdout + done.stderr).decode()  # fails where it is not UTF-8
            assert 0 <= done.returncode < 100 and "bug in coil" not in text and "\x1b" not in text, f"{variable}={value[:40]} {words[0]}: {done.returncode}\n{text[:2000]}"
            assert done.returncode == 0 or "COIL-E" in text, f"{variable}={value[:40]} {words[0]}: {text[:2000]}"
