"""device/aoti_adapter.cc in stock PyTorch: the hand-written models of fixture_model.cpp, packed with zipfile, loaded by it.

Everything that needs libtorch runs in one process of its own (the last part of this file), because importing it takes seconds.
"""

import json
import pathlib
import struct
import subprocess
import sys
import threading
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ("-std=c++20 -O2 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -fno-stack-protector "
         "-fno-threadsafe-statics -nostdinc++ -march=x86-64-v2 -shared -nostdlib -fuse-ld=lld -Wl,-z,now -Wl,-s").split()
TRAILER = b"COILWTS1" + struct.pack("<Q", 0x1234)
WEIGHTS = struct.pack("<16f", *range(16))
STATE = bytes(64) + struct.pack("<16f", 10, *[0] * 15)


def build(folder, model):
    so = folder / f"{model}.so"
    sources = [ROOT / "device/aoti_adapter.cc", ROOT / "device/aoti_call.cc", ROOT / "device/aoti_profile.cc", ROOT / "device/host_support.cc", ROOT / "device/input_errors.cc", ROOT / "device/machine_level.cc", ROOT / "tests/runtime/fixture_model.cpp"]
    subprocess.run(["clang++-19", *FLAGS, f"-DMODEL_{model}", f"-I{ROOT}/device", "-x", "c++", *sources, "-o", so], check=True)
    return so


def pack(path, so, constants=None):
    stem = f"{path.stem}/data/aotinductor/model/m.wrapper"
    with zipfile.ZipFile(path, "w") as z:
        z.write(so, stem + ".so")
        if constants is not None:
            z.writestr(stem + ".constants", constants)
        z.writestr(stem + ".cpp", "//\n")
        z.writestr(stem + "_metadata.json", json.dumps({"AOTI_DEVICE_KEY": "cpu"}))
        head = {"archive_format": "pt2", "archive_version": "0", ".data/version": "6\n", "byteorder": "little"}
        for name, text in head.items():
            z.writestr(f"{path.stem}/{name}", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aoti")
    masked, counter, layout = (build(folder, name) for name in ("MASKED", "COUNTER", "LAYOUT"))
    pack(folder / "masked.pt2", masked, WEIGHTS + TRAILER)
    pack(folder / "counter.pt2", counter, STATE)
    pack(folder / "layout.pt2", layout)
    pack(folder / "missing.pt2", masked)
    pack(folder / "short.pt2", masked, WEIGHTS[:-1])
    pack(folder / "swapped.pt2", masked, WEIGHTS + TRAILER[:-1] + b"x")
    return folder


@pytest.fixture(scope="module")
def seen(folder):
    done = subprocess.run([sys.executable, __file__, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def symbols(option, library):
    table = subprocess.run(["nm", "-D", option, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in table.splitlines()}


def test_imports_libc_only(folder):
    imports = symbols("--undefined-only", folder / "MASKED.so") - {"__tls_get_addr"}  # that one is the loader's
    assert imports <= symbols("--defined-only", "/lib/x86_64-linux-gnu/libc.so.6")
    dynamic = subprocess.run(["readelf", "-d", folder / "MASKED.so"], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" not in dynamic


def test_right_results(seen):
    assert seen[0]["wrong_results"] == []
    assert seen[0]["counter"] == [10, 11, 12]
    assert seen[0]["layout"] == [[8, 2], [1, 8]]


def test_from_threads(seen):
    assert seen[0]["thread_errors"] == 0


@pytest.mark.parametrize("call, text", [
    ("too large", "COIL-E204: input 'a' (0): expected float32[batch, 16] with batch in 1..64, got float32[65, 16]: size 65 of "
                  "dimension 0 ('batch') is outside 1..64"),
    ("dtype", "COIL-E202: input 'mask' (2): expected bool[batch, 16] with batch in 1..64, got float32[4, 16]: convert it to "
              "bool"),
    ("rank", "COIL-E203: input 'a' (0)"),
    ("count", "COIL-E201: expected 3 inputs ('a', 'b', 'mask'), got 2"),
    ("strides", "COIL-E205: input 'b' (1)"),
    ("sparse", "COIL-E205: input 0 is not a strided tensor"),
    ("batches differ", "COIL-E204: input 'b' (1)"),
    ("meta device", "COIL-E206: input 'a' (0)"),
])
def test_wrong_calls(seen, call, text):
    assert seen[0]["bad_calls"][call].startswith(text)


def test_right_after_wrong_calls(seen):
    assert seen[0]["right_after_errors"]


@pytest.mark.parametrize("name, text", [
    ("missing", "COIL-E301: cannot open the constants of the model"),
    ("short", "m.wrapper.constants has 63 bytes, the code expects 64"),
    ("swapped", "belongs to another compile of the model"),
])
def test_bad_constants(seen, name, text):
    assert seen[0]["bad_loads"][name]
    assert text in seen[1]


def test_no_leaks(seen):
    assert seen[0]["growth_kib"] < 2000


def test_no_warnings_of_missing_symbols(seen):
    assert "Could not dlsym" not in seen[1]


class Child:
    """What a process does that loads the packages in `folder`; `seen` is what it saw."""

    def __init__(self, folder):
        import torch

        torch.set_num_threads(2)
        self.torch, self.folder = torch, folder
        self.weights, self.seen = torch.arange(16.0), {"bad_calls": {}, "bad_loads": {}}

    def load(self, name, runners=1):
        return self.torch._C._aoti.AOTIModelPackageLoader(f"{self.folder}/{name}.pt2", "model", False, runners, -1)

    def load_stock(self, name):
        import torch._inductor

        return torch._inductor.aoti_load_package(f"{self.folder}/{name}.pt2")

    def inputs(self, batch, generator=None):
        torch = self.torch
        return [torch.randn(batch, 16, generator=generator), torch.randn(batch, 16, generator=generator),
                torch.rand(batch, 16, generator=generator) > 0.5]

    def right(self, outputs, a, b, mask):
        torch = self.torch
        y = torch.where(mask, a * b, 0) + self.weights
        return torch.equal(outputs[0], y) and torch.allclose(outputs[1], y.sum(1), rtol=1e-5, atol=1e-4)

    def results(self):
        torch, model = self.torch, self.load_stock("masked")
        calls = {n: self.inputs(n) for n in (1, 2, 7, 64)}
        self.seen["wrong_results"] = [n for n, call in calls.items() if not self.right(model(*call), *call)]
        counter = self.load_stock("counter")
        self.seen["counter"] = [counter(torch.zeros(4))[0].item() for _ in range(3)]
        x = torch.randn(2, 3, 4, 8).to(memory_format=torch.channels_last)
        tail = torch.randn(17)
        y = self.load("layout").run([x, torch.tensor(5), tail])[0]
        self.seen["layout"] = [list(y.shape), list(y.stride())] if torch.allclose(y, x[:, 0, 0, :].T * 5 + tail[0]) else "wrong"

    def bad_calls(self, loader, a, b, mask):
        bad = {"too large": self.inputs(65), "dtype": [a, b, mask.float()], "rank": [a[0], b, mask], "count": [a, b],
               "strides": [a, self.torch.randn(16, 4).T, mask], "sparse": [a.to_sparse(), b, mask], "batches differ": [a, b[:3], mask],
               "meta device": [a.to("meta"), b, mask]}
        for name, call in bad.items():
            try:
                loader.run(call)
            except RuntimeError as error:
                self.seen["bad_calls"][name] = str(error)
        self.seen["right_after_errors"] = self.right(loader.run([a, b, mask]), a, b, mask)

    def threads(self, loader):
        errors = []

        def work(seed):
            generator = self.torch.Generator().manual_seed(seed)
            for _ in range(300):
                call = self.inputs(33, generator)
                if not self.right(loader.run(call), *call):
                    errors.append(seed)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seen["thread_errors"] = len(errors)

    def memory(self, loader, a, b, mask):
        def resident_kib():
            return int(open("/proc/self/statm").read().split()[1]) * 4

        def many(count):
            for _ in range(count):
                loader.run([a, b, mask])
                try:
                    loader.run([a, a, a])
                except RuntimeError:
                    pass

        many(2000)
        before = resident_kib()
        many(10000)
        self.seen["growth_kib"] = resident_kib() - before

    def bad_loads(self):
        for name in ("missing", "short", "swapped"):
            try:
                self.load(name)
                self.seen["bad_loads"][name] = False
            except RuntimeError:
                self.seen["bad_loads"][name] = True


def main(folder):
    child = Child(folder)
    child.results()
    loader, operands = child.load("masked", 2), child.inputs(4)
    child.bad_calls(loader, *operands)
    child.threads(loader)
    child.memory(loader, *operands)
    child.bad_loads()
    print(json.dumps(child.seen))


if __name__ == "__main__":
    main(sys.argv[1])
