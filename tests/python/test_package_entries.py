"""data/coil/kernels.json: what people and profiles are told of kernels stands beside the manifest; packages from before have it inside."""
import json
import zipfile

import numpy as np
import pytest

from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok
from damaged_programs import write_zip

DECISIONS = ("kernels", "not_fused", "layouts")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """{name: package}: of one target, of two, of two programs with two targets."""
    folder = tmp_path_factory.mktemp("entries")
    targets = ["--target", "cuda:sm_90,cpu"]
    made = {"one": [DIGITS], "two": [DIGITS, *targets], "programs": [f"first={DIGITS}", f"other={DIGITS}", *targets]}
    for name, arguments in made.items():
        coil_ok("compile", *arguments, "-q", "-O", "0", "-o", folder / f"{name}.pt2")
    return {name: folder / f"{name}.pt2" for name in made}


def entries_of(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def with_decisions(manifest, kernels):
    """The manifest as coil wrote it before there was kernels.json."""
    def add(part, decisions):
        part.update({key: decisions[key] for key in DECISIONS})
        part["memory"]["arena"] = decisions["arena"]

    add(manifest, kernels)
    for decisions in kernels.get("targets", []):
        add(next(t for t in manifest["targets"] if t["model"] == decisions["model"]), decisions)
    return manifest


def old_package(path, to):
    entries = entries_of(path)
    for name in [n for n in entries if n.endswith("/kernels.json")]:
        manifest = name.removesuffix("kernels.json") + "manifest.json"
        entries[manifest] = json.dumps(with_decisions(json.loads(entries[manifest]), json.loads(entries.pop(name))))
    return write_zip(to, entries)


def without_places(told):
    """What `coil inspect --json` prints, less what is about the file."""
    return {key: value for key, value in told.items() if key not in ("model", "package_bytes", "bytes", "entries", "size")}


@pytest.mark.parametrize("name", ["one", "two", "programs"])
def test_the_manifest_has_what_running_needs(name, packages):
    entries = entries_of(packages[name])
    found = [n for n in entries if n.endswith("/kernels.json")]
    assert len(found) == (2 if name == "programs" else 1)
    for entry in found:
        kernels, manifest = json.loads(entries[entry]), json.loads(entries[entry.removesuffix("kernels.json") + "manifest.json"])
        others = kernels.get("targets", [])
        assert [t["model"] for t in others] == [t["model"] for t in manifest["targets"][1:]]
        for part in (kernels, *others):
            assert part["kernels"] and isinstance(part["arena"], list) and all(key in part for key in DECISIONS)
        for part in (manifest, *manifest["targets"]):
            assert not any(key in part for key in DECISIONS) and "arena" not in part.get("memory", {})


@pytest.mark.parametrize("name", ["one", "two", "programs"])
def test_packages_from_before_are_read(name, packages, tmp_path):
    old = old_package(packages[name], tmp_path / "old.pt2")
    assert not any(n.endswith("kernels.json") for n in entries_of(old))
    told, before = (without_places(coil_json("inspect", path, "--kernels", "--memory", "--fusion")) for path in (packages[name], old))
    assert told == before
    device = [] if name == "one" else ["--device", "cpu"]
    for path, out in ((packages[name], "new.npz"), (old, "old.npz")):
        coil_ok("run", path, "--input", DIGITS_TEST, "--output", tmp_path / out, *device)
    new, of_old = np.load(tmp_path / "new.npz"), np.load(tmp_path / "old.npz")
    assert new.files == of_old.files and all(np.array_equal(new[key], of_old[key]) for key in new.files)
    profiles = [coil_json("profile", path, "--calls", 1, "--no-limits", *device)["models"][0]["kernels"] for path in (packages[name], old)]
    rows, rows_of_old = (sorted((row["name"], row["kind"], row["ops"]) for row in profile) for profile in profiles)  # they come by their times
    assert rows and rows == rows_of_old


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"7", b'{"kernels": 7}', b'{"kernels": [7], "arena": {}, "targets": 7}', b'{"targets": [7, {"model": 3}]}', b"\xff"])
def test_kernels_that_are_none(content, packages, tmp_path):
    """The model runs all the same where that is up to the library; the tools run it, or say what is wrong."""
    entries = entries_of(packages["one"])
    name = next(n for n in entries if n.endswith("/kernels.json"))
    package = write_zip(tmp_path / "m.pt2", entries | {name: content})
    for command in (["inspect", package, "--kernels", "--memory"], ["inspect", package, "--json"], ["explain", package], ["profile", package, "--calls", 1, "--no-limits"],
                    ["report", package, "--calls", 1, "-o", tmp_path / "r.html"], ["run", package, "--input", DIGITS_TEST]):
        done = coil(*command)
        if done.returncode:
            assert_refused(done, "json")
    import coil as library

    arrays = np.load(DIGITS_TEST)
    assert len(library.load(package)(arrays["in_0"])) == 450


def test_same_bytes(packages, tmp_path):
    coil_ok("compile", DIGITS, "-q", "-O", "0", "-o", tmp_path / "again.pt2")
    assert (tmp_path / "again.pt2").read_bytes() == packages["one"].read_bytes()
