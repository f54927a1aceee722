"""Outputs through links and onto existing files, of every subcommand and of Python."""

import os
import subprocess
import sys

import pytest

import harness
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_ok


def written_by_the_command(kind, out, tmp_path):
    """Has a subcommand write `out`."""
    env = dict(os.environ, COIL_CACHE=str(tmp_path / "cache"))
    if kind == "compile":
        coil_ok("compile", DIGITS, "-o", out)
    elif kind == "run":
        coil_ok("run", DIGITS, "--input", DIGITS_TEST, "--output", out)
    elif kind == "pack":
        coil_ok("compile", DIGITS, "-o", tmp_path / "p.pt2", env=env)
        coil_ok("cache", "pack", out, env=env)
    else:
        coil_ok("compile", DIGITS, "-o", tmp_path / "p.pt2", "--tune", "fast", "--tune-budget", "100ms", f"--{kind}", out)


@pytest.mark.parametrize("kind", ["compile", "run", "pack", "record", "tune-log"])
def test_links_and_modes(kind, tmp_path):
    """A link is written through, an existing file keeps its mode, a new one has the umask's; nothing else is left."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real", folder / "link.npz"
    real.touch()  # (tuning records are merged with what is there: an empty file is none)
    if kind == "record":
        real.unlink()
    else:
        real.chmod(0o604)
    link.symlink_to("../elsewhere/real")
    written_by_the_command(kind, link, tmp_path)
    assert link.is_symlink() and real.stat().st_size > 0
    assert kind == "record" or real.stat().st_mode & 0o777 == 0o604
    written_by_the_command(kind, folder / "new.npz", tmp_path)
    umask = os.umask(0)
    os.umask(umask)
    assert (folder / "new.npz").stat().st_mode & 0o777 == 0o666 & ~umask
    assert sorted(p.name for p in folder.iterdir()) == ["link.npz", "new.npz"] and list((tmp_path / "elsewhere").iterdir()) == [real]


def test_links_and_modes_in_python(tmp_path):
    code = """
import os, sys, coil
out, model = sys.argv[1], coil.compile(sys.argv[2])
model.save(out + "/save")
coil.load(out + "/save").save(out + "/copy")
coil.load(out + "/copy").save(out + "/copy")
coil.compile(sys.argv[2], out + "/compile")
for name in ("save", "copy", "compile"):
    coil.load(out + "/" + name)
try:
    model.save(out + "/none/x")
except coil.Error as error:
    print(error.code)
"""
    real = tmp_path / "real"
    real.mkdir()
    out = tmp_path / "out"
    out.mkdir()
    for name in ("save", "copy", "compile"):
        (real / name).touch(mode=0o600)
        (out / name).symlink_to(real / name)
        # What a predictable temporary name would follow.
        (out / f"{name}.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    done = subprocess.run([sys.executable, "-c", code, out, DIGITS], env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "COIL-E003", done.stderr
    for name in ("save", "copy", "compile"):
        assert (out / name).is_symlink() and (real / name).stat().st_mode & 0o777 == 0o600 and (real / name).stat().st_size > 1000
    assert not (tmp_path / "victim").exists() and len(list(out.iterdir())) == 6 and len(list(real.iterdir())) == 3


def test_a_file_of_the_same_name_is_not_followed(tmp_path):
    """Model.save's old temporary name, made by somebody else before."""
    code = f"""
import os, sys, coil
model = coil.compile({str(DIGITS)!r})
os.symlink({str(tmp_path / 'victim')!r}, sys.argv[1] + f".{{os.getpid()}}.tmp")
model.save(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "o.pt2"], env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "victim").exists() and (tmp_path / "o.pt2").stat().st_size > 1000


def test_a_write_protected_file_is_refused(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    out = tmp_path / "o.pt2"
    out.write_text("x")
    out.chmod(0o444)
    assert_refused(coil("compile", DIGITS, "-o", out), code=3)
    assert out.read_text() == "x"
