"""What compiles keep: found again by folder and by a real Redis server, safe under many processes, deletion and damage, explained."""

import concurrent.futures
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

import harness


@pytest.fixture
def at(tmp_path):
    """compile(place, *options) -> JSON of `coil compile` with that cache, and the like for other commands."""

    class At:
        def __init__(self, place, **variables):
            self.env = dict(os.environ, COIL_CACHE=str(place), **variables)

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
    here.compile("-O", "3")
    reasons = {l["reason"] for l in here.explain()["lookups"] if not l["hit"]}
    assert reasons == {"optimisation is '2', the nearest entry has '3'"}


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
    refused = harness.coil("cache", "unpack", tmp_path / "all.zip", env=there.env)
    harness.assert_refused(refused, "--trust", code=402)
    assert there.cache("show")["entries"] == 0
    assert there.cache("unpack", tmp_path / "all.zip", "--trust") == {**packed, "cache": str(tmp_path / "there")}
    after = there.explain()
    assert after["hits"] == len(after["lookups"])
    assert there.cache("clear")["entries"] == packed["entries"] and there.cache("show")["entries"] == 0
    (tmp_path / "broken.zip").write_bytes((tmp_path / "all.zip").read_bytes()[:-40])
    harness.assert_refused(harness.coil("cache", "unpack", tmp_path / "broken.zip", "--trust", env=there.env), "broken.zip")


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


@contextlib.contextmanager
def redis_server(tmp_path, *options, tls=False):
    server = shutil.which("redis-server")
    assert server, "redis-server is one of tools/install_deps.sh's packages"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ports = ("--port", "0", "--tls-port", str(port)) if tls else ("--port", str(port))
    process = subprocess.Popen([server, *ports, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tmp_path, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def redis(tmp_path):
    with redis_server(tmp_path) as address:
        yield "redis://" + address


KEY = "0123456789abcdef0123456789abcdef"


def test_redis(at, redis, tmp_path):
    at_ = at
    at = lambda place: at_(place, COIL_CACHE_KEY=KEY)  # noqa: E731
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
        here = at(f"shared:redis://127.0.0.1:{s.getsockname()[1]}")
        assert here.compile()["package_bytes"] > 0
        assert "redis://127.0.0.1" in here.explain()["problem"]
        harness.assert_refused(harness.coil("cache", "show", env=here.env), "redis://127.0.0.1")


def notes(at, place, tmp_path, **variables):
    """What a compile with that cache says on stderr; it succeeds whatever the cache is."""
    return harness.coil_ok("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=at(place, **variables).env).stderr


def test_a_folder_that_others_can_write(at, tmp_path):
    """Not read and not written, said plainly; "shared:" takes it."""
    place = tmp_path / "cache"
    at(place).compile()
    assert place.stat().st_mode & 0o777 == 0o700 and notes(at, place, tmp_path) == ""
    place.chmod(0o777)
    before = sorted(place.rglob("*"))
    said = notes(at, place, tmp_path)
    assert "other users can write" in said and "shared:" in said and str(place) in said
    harness.assert_refused(harness.coil("cache", "show", env=at(place).env), "other users can write", code=402)
    assert sorted(place.rglob("*")) == before
    assert notes(at, f"shared:{place}", tmp_path) == "" and at(f"shared:{place}").explain()["hits"] > 0
    place.chmod(0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    place.rename(tmp_path / "open" / "cache")
    assert "open' (mode 777)" in notes(at, tmp_path / "open" / "cache", tmp_path), "a folder above in which it could be replaced"


def test_the_umask_opens_nothing(at, tmp_path):
    done = subprocess.run([harness.COIL, "compile", harness.DIGITS, "-o", tmp_path / "p.pt2"], env=at(tmp_path / "a" / "cache").env, umask=0, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    for path in (tmp_path / "a").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_python_says_so_too(tmp_path):
    place = tmp_path / "cache"
    place.mkdir()
    place.chmod(0o777)
    code = f"import coil; coil.compile({str(harness.DIGITS)!r})"
    env = dict(os.environ, COIL_CACHE=str(place), PYTHONPATH=str(harness.BUILD / "python"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "other users can write" in done.stderr, done.stderr


def test_keys(at, tmp_path):
    """A server without a key is not used; with one, entries of those who lack it are not."""
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    place = tmp_path / "cache"
    keyed = at(f"shared:{place}", COIL_CACHE_KEY=f"file:{key}")
    keyed.compile()
    assert at(f"shared:{place}", COIL_CACHE_KEY=KEY).explain()["hits"] > 0, "the file's line is the key"
    said = notes(at, f"shared:{place}", tmp_path, COIL_CACHE_KEY="another key of 32 characters....")
    assert "COIL_CACHE_KEY" in said and "not used" in said
    for wrong in ("short", f"file:{tmp_path / 'none'}"):
        harness.assert_refused(harness.coil("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=at(place, COIL_CACHE_KEY=wrong).env), "COIL_CACHE_KEY", code=402)
    key.chmod(0o644)
    harness.assert_refused(harness.coil("cache", "show", env=keyed.env), "can read", code=402)
    key.chmod(0o600)
    keyed.compile()
    keyed.cache("pack", tmp_path / "all.zip")
    assert at(tmp_path / "there", COIL_CACHE_KEY=KEY).cache("unpack", tmp_path / "all.zip")["entries"] > 0
    harness.assert_refused(harness.coil("cache", "unpack", tmp_path / "all.zip", env=at(tmp_path / "x", COIL_CACHE_KEY=KEY[::-1]).env), "COIL_CACHE_KEY")
    shown = harness.coil_json("env", env=at("redis://me:secret@host:1", COIL_CACHE_KEY=KEY).env)
    assert KEY not in str(shown) and "secret" not in str(shown)


def test_a_server_needs_a_key(at, redis, tmp_path):
    said = notes(at, redis, tmp_path)
    assert "COIL_CACHE_KEY" in said and "shared:" in said
    assert at("shared:" + redis).cache("show")["entries"] == 0, "nothing was written either"
    assert notes(at, "shared:" + redis, tmp_path) == "" and at("shared:" + redis).explain()["hits"] > 0
    # Without the key anyone can write there; what they wrote is not used.
    assert "not used" in notes(at, redis, tmp_path, COIL_CACHE_KEY=KEY)
    assert at(redis, COIL_CACHE_KEY=KEY).explain()["hits"] > 0


def test_redis_with_a_password(at, tmp_path):
    with redis_server(tmp_path, "--requirepass", "p@ss", "--user", "someone", "on", ">word", "~*", "+@all") as address:
        assert "NOAUTH" in notes(at, f"shared:redis://{address}", tmp_path)
        wrong = notes(at, f"shared:redis://:wrong@{address}", tmp_path)
        assert "WRONGPASS" in wrong and "wrong@" not in wrong
        at(f"shared:redis://:p%40ss@{address}").compile()
        assert at(f"shared:redis://someone:word@{address}").explain()["hits"] > 0


def test_redis_by_tls(at, tmp_path):
    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=tmp_path)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1")
    options = ("--tls-cert-file", tmp_path / "cert.pem", "--tls-key-file", tmp_path / "key.pem", "--tls-auth-clients", "no", "--requirepass", "word")
    with redis_server(tmp_path, *options, tls=True) as address:
        here = at(f"rediss://:word@{address}", COIL_CACHE_KEY=KEY, SSL_CERT_FILE=str(tmp_path / "cert.pem"))
        here.compile()
        assert here.explain()["hits"] > 0
        here.cache("pack", tmp_path / "all.zip")
        assert "certificate is not trusted" in notes(at, f"rediss://:word@{address}", tmp_path, COIL_CACHE_KEY=KEY)
        other = f"rediss://:word@localhost:{address.rpartition(':')[2]}"
        assert "certificate is not trusted" in notes(at, other, tmp_path, COIL_CACHE_KEY=KEY, SSL_CERT_FILE=str(tmp_path / "cert.pem")), "the certificate is of another host"
        assert notes(at, f"redis://:word@{address}", tmp_path, COIL_CACHE_KEY=KEY) != "", "TLS is asked for by its scheme"


@contextlib.contextmanager
def server_that(answer):
    """answer(connection) for each one that connects."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection):
        with connection, contextlib.suppress(OSError):
            answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"shared:redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def trickle(connection):
    connection.recv(1 << 16)
    connection.sendall(b"$1000\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(1)


def late_each_time(connection):
    while connection.recv(1 << 16):
        time.sleep(1.5)
        connection.sendall(b"$-1\r\n")


def silent(connection):
    while connection.recv(1 << 16):
        pass


@pytest.mark.parametrize("answer", [trickle, late_each_time, silent], ids=lambda f: f.__name__)
def test_a_slow_server_costs_one_timeout(at, answer, tmp_path):
    with server_that(answer) as place:
        harness.coil_ok("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=at("off").env)
        start = time.monotonic()
        harness.coil_ok("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=at("off").env)
        alone = time.monotonic() - start
        start = time.monotonic()
        said = notes(at, place, tmp_path)
        took = time.monotonic() - start
        assert "no answer in time" in said
        assert took < 3 * alone + 6, f"{took:.1f} s instead of {alone:.1f} s"


@pytest.mark.parametrize("head", [b"$536870912\r\n", b"*1000000000\r\n", b"$67108864\r\n"])
def test_what_a_server_announces_is_no_memory(at, head, tmp_path):
    """The compile fits into little memory whatever the answer says, and sends: up to 64 MB are an entry."""

    def flood(connection):
        connection.recv(1 << 16)
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * (1 << 20))

    with server_that(flood) as place:
        code, said, memory = harness.coil_measured("compile", harness.DIGITS, "-o", tmp_path / "p.pt2", env=at(place).env)
        assert code == 0 and "nothing could be kept" in said, said
        assert memory < 400_000, f"{memory} KB"
