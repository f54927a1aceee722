"""What compiles keep: found again by folder and by a real Redis server, safe under many processes, deletion and damage, explained."""

import concurrent.futures
import os
import shutil
import socket
import subprocess
import time

import pytest

import harness


@pytest.fixture
def at(tmp_path):
    """compile(place, *options) -> JSON of `coil compile` with that cache, and the like for other commands."""

    class At:
        def __init__(self, place):
            self.env = dict(os.environ, COIL_CACHE=str(place))

        def compile(self, *options, output=None):
            return harness.coil_json("compile", harness.DIGITS, "-o", output or tmp_path / "digits.coil.pt2", *options, env=self.env)

        def cache(self, *arguments):
            return harness.coil_json("cache", *arguments, env=self.env)

        def explain(self, *options):
            return self.cache("explain", harness.DIGITS, *options)

    return At


def test_the_second_compile_builds_nothing(at, tmp_path):
    here = at(tmp_path / "cache")
    before = here.explain()
    assert before["hits"] == 0 and all(l["reason"] == "subject: there is no entry for it" for l in before["lookups"])
    assert here.cache("show")["entries"] == 0, "explain keeps nothing"
    here.compile(output=tmp_path / "a.pt2")
    after = here.explain()
    assert after["hits"] == len(after["lookups"]) > 2
    here.compile(output=tmp_path / "b.pt2")
    at("off").compile(output=tmp_path / "c.pt2")
    # (The archive's folder has the file's name.)
    sizes = {(tmp_path / f"{x}.pt2").stat().st_size for x in "abc"}
    assert len(sizes) == 1
    (tmp_path / "again").mkdir()
    at("off").compile(output=tmp_path / "again/a.pt2")
    assert (tmp_path / "again/a.pt2").read_bytes() == (tmp_path / "a.pt2").read_bytes()


def test_explain_names_the_field(at, tmp_path):
    here = at(tmp_path / "cache")
    here.compile("-O", "2")
    reasons = {l["reason"] for l in here.explain()["lookups"] if not l["hit"]}
    assert reasons == {"optimisation is '3', the nearest entry has '2'"}


def test_a_tuned_program_is_not_timed_again(at, tmp_path):
    here = at(tmp_path / "cache")
    first = here.compile("--tune", "fast", "--tune-budget", "60s", output=tmp_path / "a.pt2")["tuning"]
    (tmp_path / "b").mkdir()
    again = here.compile("--tune", "fast", output=tmp_path / "b/a.pt2")["tuning"]
    assert first["runs"] > 0 and again["runs"] == 0
    assert [p["rows"] for p in again["problems"]] == [p["rows"] for p in first["problems"]]
    assert (tmp_path / "a.pt2").read_bytes() == (tmp_path / "b/a.pt2").read_bytes()
    reasons = [l["reason"] for l in here.explain("--tune", "fast", "--tune-threads", "1")["lookups"] if l["kind"] == "tuning"]
    assert reasons and (first["hardware"]["threads"] == 1 or all(r.startswith("threads is '1'") for r in reasons)), reasons


def test_explain_times_nothing(at, tmp_path):
    here = at(tmp_path / "cache")
    told = here.explain("--tune", "max", "--tune-budget", "9m")
    assert told["to_time"] == len(told["lookups"]) > 0 and {l["kind"] for l in told["lookups"]} == {"tuning"}, "what is built depends on what the tuner would find"
    here.compile("--tune", "fast", "--tune-budget", "60s")
    known = here.explain("--tune", "fast")
    assert known["to_time"] == 0 and known["hits"] == len(known["lookups"]) and {l["kind"] for l in known["lookups"]} == {"tuning", "object"}
    text = harness.coil_ok("cache", "explain", harness.DIGITS, env=dict(here.env, COIL_CACHE=str(tmp_path / "empty"))).stdout
    assert "cpu x86-64-v3" in text and "cpu x86-64-v4" in text, "lookups of one text are told apart"


def test_pack_unpack_clear(at, tmp_path):
    here, there = at(tmp_path / "here"), at(tmp_path / "there")
    here.compile()
    packed = here.cache("pack", tmp_path / "all.zip")
    assert there.cache("unpack", tmp_path / "all.zip") == {**packed, "cache": str(tmp_path / "there")}
    after = there.explain()
    assert after["hits"] == len(after["lookups"])
    assert there.cache("clear")["entries"] == packed["entries"] and there.cache("show")["entries"] == 0
    (tmp_path / "broken.zip").write_bytes((tmp_path / "all.zip").read_bytes()[:-40])
    harness.assert_refused(harness.coil("cache", "unpack", tmp_path / "broken.zip", env=there.env), "broken.zip")


def test_many_processes_and_deletion(at, tmp_path):
    """32 compiles at once into one folder that is deleted again and again: each package is right."""
    here = at(tmp_path / "cache")
    at("off").compile(output=tmp_path / "digits.coil.pt2")
    good = (tmp_path / "digits.coil.pt2").read_bytes()

    def one(i):
        folder = tmp_path / str(i)
        folder.mkdir()
        here.compile("--threads", "1", output=folder / "digits.coil.pt2")
        if i % 4 == 0:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        return (folder / "digits.coil.pt2").read_bytes() == good

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(32)))
    here.compile()
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.is_file() and f.suffix != ".entry" and f.name != "checked"], "no temporary files are left"


def test_damage_is_mended(at, tmp_path):
    here = at(tmp_path / "cache")
    here.compile(output=tmp_path / "a.pt2")
    good = (tmp_path / "a.pt2").read_bytes()
    entries = sorted((tmp_path / "cache").rglob("*.entry"))
    for i, entry in enumerate(entries):
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content if i % 2 else content[:100])
    assert any(l["reason"] == "its entry is damaged" for l in here.explain()["lookups"])
    here.compile(output=tmp_path / "a.pt2")
    assert (tmp_path / "a.pt2").read_bytes() == good
    assert here.explain()["hits"] == len(entries)


def test_a_place_that_cannot_be_written(at, tmp_path):
    (tmp_path / "file").write_text("no folder")
    here = at(tmp_path / "file")
    done = harness.coil_ok("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=here.env)
    assert "nothing could be kept" in done.stderr and str(tmp_path / "file") in done.stderr
    for place in ("redis://:x", "ftp://host/folder"):
        harness.assert_refused(harness.coil("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=dict(os.environ, COIL_CACHE=place)), "redis://host:port", code=402)


@pytest.fixture
def redis(tmp_path):
    server = shutil.which("redis-server")
    assert server, "redis-server is one of tools/install_deps.sh's packages"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen([server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tmp_path], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_redis(at, redis, tmp_path):
    here = at(redis)
    here.compile("--tune", "fast", "--tune-budget", "60s", output=tmp_path / "a.pt2")
    shown = here.cache("show")
    assert shown["entries"] > 3 and shown["cache"] == redis + "/0"
    after = here.explain("--tune", "fast")
    assert after["hits"] == len(after["lookups"]) and {l["kind"] for l in after["lookups"]} == {"object", "tuning"}
    other = at(redis + "/3").explain("--tune", "fast")
    assert other["hits"] == 0
    here.cache("pack", tmp_path / "all.zip")
    assert at(redis + "/3").cache("unpack", tmp_path / "all.zip")["entries"] == shown["entries"]
    assert here.cache("clear")["entries"] == shown["entries"] and here.cache("show")["entries"] == 0
    assert at(redis + "/3").cache("show")["entries"] == shown["entries"]


def test_no_server_is_no_error(at, tmp_path):
    with socket.socket() as s:  # a port where nobody listens
        s.bind(("127.0.0.1", 0))
        here = at(f"redis://127.0.0.1:{s.getsockname()[1]}")
        assert here.compile()["package_bytes"] > 0
        assert "redis://127.0.0.1" in here.explain()["problem"]
        harness.assert_refused(harness.coil("cache", "show", env=here.env), "redis://127.0.0.1")
