"""Packages of several programs that cannot be: names, damaged manifests, absent and truncated parts."""

import json
import zipfile

import pytest

import coil
import coil.llm
import harness
from decoder_programs import folder, package  # noqa: F401  (fixtures)


def test_names_that_cannot_be(folder, tmp_path):
    def fails(*arguments):
        result = harness.coil("compile", *arguments, "-o", tmp_path / "out.coil.pt2")
        assert result.returncode != 0 and not (tmp_path / "out.coil.pt2").exists()
        return result.stderr

    decode = folder / "decode.pt2"
    assert "two programs of the package are called 'decode'" in fails(decode, decode)
    assert "at most 64 programs, not 1000" in fails(*[f"p{i}={decode}" for i in range(1000)])
    assert "cannot be the name of a program" in fails(f"a.b={decode}", decode)
    assert "cannot be the name of a program" in fails("x" * 65 + f"={decode}")
    assert "cannot be the name of a program" in fails(f"={decode}")
    assert "missing.pt2" in fails(decode, folder / "missing.pt2")
    assert "give it with -o" in harness.coil("compile", decode, folder / "four.pt2").stderr
    assert "would have one folder" in fails(f"cuda-a={decode}", f"a={decode}", "--target", "cpu,cuda:sm_90")


def rewritten(package, path, change):
    """A copy of the package with other entries: change(name, bytes) gives bytes, or None to leave it out."""
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            content = change(info.filename.partition("/")[2], old.read(info))
            if content is not None:
                new.writestr(info.filename, content)
    return path


MANIFEST = "data/coil/manifest.json"


def with_programs(names):
    def change(name, content):
        return json.dumps({**json.loads(content), "programs": names}).encode() if name == MANIFEST else content

    return change


BAD = {
    "twice": (with_programs(["decode", "decode"]), "two programs are called 'decode'"),
    "many": (with_programs([f"p{i}" for i in range(1000)]), "more than 64 programs"),
    "none": (with_programs([]), "no program"),
    "climbing": (with_programs(["../decode"]), "no name of a program"),
    "terminal": (with_programs(["a\x1b[2J"]), "no name of a program"),
    "later format": (lambda name, content: content.replace(b'"format": 2', b'"format": 3') if name == MANIFEST else content, "format 3"),
    "no text": (with_programs([3]), "expected a string"),
    "unknown": (with_programs(["absent", "decode"]), "the program 'absent'"),
    "no manifest": (lambda name, content: None if name == "data/coil/programs/prefill/manifest.json" else content, "programs/prefill/manifest.json"),
    "no code": (lambda name, content: None if name == "data/aotinductor/prefill/m.wrapper.so" else content, "prefill/m.wrapper.so"),
    "no weights": (lambda name, content: None if name.endswith(".constants") else content, "the programs' constants have 0 bytes"),
    "cut weights": (lambda name, content: content[:64] if name.endswith(".constants") else content, "the code expects at least"),
    "other weights": (lambda name, content: content[:-32] + b"COILWTS1" + bytes(8) + b"COILWTS1" + bytes(8) if name.endswith(".constants") else content, "another compile"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_packages(package, tmp_path, case):
    change, text = BAD[case]
    path = rewritten(package, tmp_path / "bad.coil.pt2", change)
    with pytest.raises(coil.Error, match="COIL-E") as error:
        coil.load(path)
    assert text in str(error.value), error.value
    assert "\x1b" not in str(error.value)


def test_truncated_files(package, tmp_path):
    content = package.read_bytes()
    for part in (0.1, 0.5, 0.9, 0.999):
        path = tmp_path / "cut.coil.pt2"
        path.write_bytes(content[: int(len(content) * part)])
        with pytest.raises(coil.Error, match="COIL-E"):
            coil.load(path, program="decode")
