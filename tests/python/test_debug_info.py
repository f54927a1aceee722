"""--debug-info: gdb stops in a kernel by its name and shows its line; COIL_PERF tells perf of kernels, with the places that they come from."""

import pathlib
import shutil
import struct
import subprocess

import pytest

import harness
import test_museum

PROGRAM = test_museum.MUSEUM / "torch-2.15.0/attn_dynamic.pt2"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    made = tmp_path_factory.mktemp("debug") / "m.coil.pt2"
    done = harness.coil("compile", PROGRAM, "--debug-info", "-o", made)
    assert done.returncode == 0, done.stderr
    return made


def bench(package, **environment):
    done = harness.coil("bench", package, "--repeat", 2, env=environment)
    assert done.returncode == 0, done.stderr


def records(path):
    """The records of a jitdump file, by its description in Linux (tools/perf/Documentation/jitdump-specification.txt)."""
    data = path.read_bytes()
    magic, version, head, _, _, pid, _, _ = struct.unpack_from("<IIIIIIQQ", data)
    assert (magic, version, head) == (0x4A695444, 1, 40) and path.name == f"jit-{pid}.dump"
    at, lines, out = head, None, []
    while at < len(data):
        kind, size, _ = struct.unpack_from("<IIQ", data, at)
        body = data[at + 16 : at + size]
        if kind == 2:
            address, count = struct.unpack_from("<QQ", body)
            lines, place = [], 16
            for _ in range(count):
                line, number, _ = struct.unpack_from("<Qii", body, place)
                end = body.index(b"\0", place + 16)
                lines.append((line - 64, body[place + 16 : end].decode(), number))
                place = end + 1
            lines = (address, lines)
        else:
            assert kind == 0
            _, _, vma, address, code, _ = struct.unpack_from("<IIQQQQ", body)
            name, _, rest = body[40:].partition(b"\0")
            assert vma == address and len(rest) == code
            own = lines[1] if lines and lines[0] == address else []
            assert all(address <= line < address + code for line, _, _ in own)
            out.append((name.decode(), address, rest, own))
            lines = None
        at += size
    return out


def test_perf_is_told_of_kernels(package, tmp_path):
    bench(package, COIL_PERF=str(tmp_path))
    found = records(next(tmp_path.glob("jit-*.dump")))
    kernels = [k for k in harness.coil_json("inspect", package)["kernels"] if k["function"]]
    for kernel in kernels:
        mine = [r for r in found if r[0].startswith(kernel["function"] + "_v")]
        assert mine, kernel["function"]
        for name, _, code, lines in mine:
            assert "make_museum.py" in name and code.strip(b"\0")
            own = [(file, line) for _, file, line in lines if file.endswith(".cc")]
            assert own, name
            text = pathlib.Path(own[0][0]).read_text().splitlines()
            assert all(1 <= line <= len(text) for _, line in own)
            first = next(i for i, line in enumerate(text, 1) if f"COIL_NAME({kernel['function']})(" in line)
            end = next(i for i, line in enumerate(text, 1) if i > first and line == "}")
            assert any(first <= line <= end for _, line in own), "no line of the function itself"
    mapped = [line.split(" ", 2) for line in next(tmp_path.glob("perf-*.map")).read_text().splitlines()]
    assert [(int(a, 16), int(n, 16), name) for a, n, name in mapped] == [(address, len(code), name) for name, address, code, _ in found]


def test_a_package_without_is_one_entry_and_a_folder_that_is_none_is_named(tmp_path):
    plain = tmp_path / "plain.coil.pt2"
    assert harness.coil("compile", PROGRAM, "-o", plain).returncode == 0
    bench(plain, COIL_PERF=str(tmp_path))
    assert ["--debug-info" in name for name, *_ in records(next(tmp_path.glob("jit-*.dump")))] == [True]
    for variable in ("COIL_PERF", "COIL_CODE"):
        done = harness.coil("bench", plain, "--repeat", 1, env={variable: str(tmp_path / "none")})
        assert done.returncode == 2 and f"COIL-E402: {variable}" in done.stderr


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
def test_gdb_stops_in_a_kernel(package, tmp_path):
    kernel = next(k["function"] for k in harness.coil_json("inspect", package)["kernels"] if k["kind"] == "loop" and k["function"])
    script = tmp_path / "script"
    script.write_text("set breakpoint pending on\nset confirm off\n" + "".join(f"break {kernel}_{level}\n" for level in ("v3", "v4")) + "run\nlist\n")
    done = subprocess.run(["gdb", "-batch", "-nx", "-x", script, "--args", harness.BUILD / "coil", "bench", package, "--repeat", "1", "--threads", "1"],
                          capture_output=True, text=True, timeout=200, env={"COIL_CODE": str(tmp_path), "PATH": "/usr/bin:/bin", "DEBUGINFOD_URLS": ""})
    assert f"{kernel}_v" in done.stdout and ".debug/" in done.stdout and "kernels_0.cc:" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    assert "const coil_args& a" in done.stdout


def texts_in(folder):
    """The generated files that a folder of debug information holds."""
    return [p.name for p in folder.rglob("*.cc")]


def test_python_has_it_as_an_option(tmp_path):
    """The package is the command's, and the texts lie where the option says."""
    coil = pytest.importorskip("coil")
    plain = coil.compile(PROGRAM, tmp_path / "plain.coil.pt2")
    model = coil.compile(PROGRAM, tmp_path / "m.coil.pt2", options={"debug_info": tmp_path / "texts"})
    assert {"kernels_0.cc", "host.cc"} <= set(texts_in(tmp_path / "texts"))
    assert (tmp_path / "m.coil.pt2").stat().st_size > (tmp_path / "plain.coil.pt2").stat().st_size
    assert [i.name for i in model.inputs] == [i.name for i in plain.inputs]
    bench(tmp_path / "m.coil.pt2", COIL_PERF=str(tmp_path))
    lines = [file for *_, own in records(next(tmp_path.glob("jit-*.dump"))) for _, file, _ in own]
    assert any(file.startswith(str(tmp_path / "texts")) for file in lines)
    with pytest.raises(coil.Error, match="'debug_info' is True"):
        coil.compile(PROGRAM, options={"debug_info": True})


def test_torch_compile_has_it_as_an_option(tmp_path):
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    f = torch.compile(lambda x: torch.softmax(x * 1.375, -1), backend="coil", options={"debug_info": str(tmp_path / "texts")})
    x = torch.randn(3, 40)
    torch.testing.assert_close(f(x), torch.softmax(x * 1.375, -1))
    assert {"kernels_0.cc", "host.cc"} <= set(texts_in(tmp_path / "texts"))
