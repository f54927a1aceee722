"""Runs CUDA packages without a GPU: their kernels' text compiled for the CPU (tests/cuda_emulation), their host program as it is,
against the fake driver (tests/runtime/fake_cuda.cpp). The cubins are left out (fake_nvrtc.cpp) unless COIL_EMULATE_ALL is set."""

import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

import harness

EMULATION = harness.REPO / "tests/cuda_emulation"
DEVICE = harness.REPO / "device/cuda"
CLANG = "clang++-19"
LINKER = "ld.lld-19"
# What the GPU forbids or leaves open becomes an instruction that traps.
FLAGS = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-march=x86-64-v3", "-ffp-contract=on", "-fno-strict-aliasing", "-fno-math-errno",
         "-w", "-fsanitize=alignment,bounds,signed-integer-overflow", "-fsanitize-trap=all"]
# Compiled once, ahead of the kernels.
HEADERS = ["reduce.h", "sort.h", "radix_sort.h", "join_rows.h", "gemm_simt.h", "gemm_mma.h", "gemv.h", "joined_rows.h", "byte_rows.h", "joined_bytes.h", "byte_tiles.h", "byte_wgmma.h", "byte_f16.h", "conv_simt.h", "conv_mma.h", "conv_few.h", "conv_depthwise.h",
           "conv_depthwise_strip.h", "conv_groups.h", "grouped_gemm.h", "attention_simt.h", "attention_mma.h", "attention_decode.h", "sample_chances.h"]
ALL = os.environ.get("COIL_EMULATE_ALL", "0") != "0"


def command(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stderr[-6000:]}"


def closing(text, at):
    """The position after the bracket that closes the one at `at`; strings hold no brackets that count."""
    depth, quoted = 0, False
    for i in range(at, len(text)):
        c = text[i]
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "([":
            depth += 1
        elif not quoted and c in ")]":
            depth -= 1
            if depth == 0:
                return i + 1
    raise AssertionError("unbalanced: " + text[at : at + 100])


@functools.cache
def known_ptx():
    return set(re.findall(r"\b([a-z]\w+)\(", (EMULATION / "builtins.h").read_text().split("namespace ptx {")[1])) | {
        f"ldmatrix_sync_aligned_m8n8_{n}{t}_shared_b16" for n in ("x2", "x4") for t in ("", "_trans")}


def ptx_call(body):
    """An asm statement's body as a call of what tests/cuda_emulation/builtins.h has under the instruction's name."""
    head, rest = re.match(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)(.*)', body, re.S).groups()
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', head))
    if found := re.match(r"\{\.reg \.b32 a; mapa\S+ a, %\d, %\d; ld\.shared::cluster\.(\S+) ", text):
        name = "remote_" + found[1].replace(".", "_")
    elif found := re.match(r"\{\.reg \.b32 a; mapa\S+ a, %\d, %\d; st\.shared::cluster\.(\S+) ", text):
        name = "remote_store_" + found[1].replace(".", "_")
    elif text.startswith("barrier.cluster.arrive") and "wait" in text:
        name = "cluster_barrier"
    elif "@p st.volatile" in text:
        name = "st_volatile_if"
    elif "%%cluster_ctarank" in text:
        name = "cluster_rank"
    else:
        name = re.sub(r"\W", "_", re.match(r"[^\s;]*", text).group()) + "".join("_" + n for n in re.findall(r"(?<=, )(\d+)(?=[,;])", text))
        name += "?" if ";" in text.rstrip(";") else ""
    if name not in known_ptx():
        return f'ptx::not_emulated("PTX that is not emulated: {text[:60]}")'
    operands, at = [], 0
    while found := re.search(r'"[+=]*[a-z]"\s*\(', rest[at:]):
        begin = at + found.end() - 1
        at = closing(rest, begin)
        operands.append(rest[begin:at])
    return f"ptx::{name}({', '.join(operands)})"


def rewrite(text):
    """Device code as C++ of the CPU, line for line."""
    text = re.sub(r"(?<!extern )__shared__ (?:__align__\(\d+\) )?([\w:]+(?:<[^;]*>)?) (\w+)((?:\[[^\]]*\])*);",
                  r"using \2_shared = \1\3; \2_shared& \2 = emulated_shared<\2_shared>([] {});", text)
    text = re.sub(r"\bcd::(?!byte_)\w*wgmma\w*<[^;]*;", 'ptx::not_emulated("wgmma is not emulated");', text)
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?unsigned char (\w+)\[\];", r"unsigned char* const \1 = emulation::dynamic_shared();", text)
    out, at = "", 0
    while found := re.compile(r"\basm(?: volatile)?\(").search(text, at):
        end = closing(text, found.end() - 1)
        out += text[at : found.start()] + ptx_call(text[found.end() : end - 1]) + "\n" * text.count("\n", found.start(), end)
        at = end
    return out + text[at:]


@functools.cache
def made_tools():
    """The folder of the compiled headers, the fake driver and the fake NVRTC, made once per content of the sources."""
    fake = harness.REPO / "tests/runtime/fake_cuda.cpp"
    sources = [*sorted(DEVICE.glob("*.h")), *sorted((DEVICE.parent / "user").glob("*.h")), *sorted(EMULATION.iterdir()), *sorted(fake.parent.glob("fake_cuda*")), pathlib.Path(__file__)]
    key = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    done = pathlib.Path(os.environ.get("COIL_EMULATION", "~/.cache/coil/emulation")).expanduser() / key
    with harness.one_at_a_time(done.with_suffix(".lock")):
        if not (done / "complete").exists():
            make_tools(done, fake)
    return done


def make_tools(done, fake):
    for name in ("cuda", "user"):
        (done / name).mkdir(parents=True, exist_ok=True)
    for header in DEVICE.glob("*.h"):
        text = rewrite(header.read_text())
        if header.name == "byte_wgmma.h":  # of what needs sm_90a the one that is emulated
            text = text.replace('#include "cuda/wgmma.h"\n', '#include "cuda/wgmma.h"\n#include "hopper.h"\n') + "\n#undef CD_HAS_WGMMA\n"
        if header.name == "byte_f16.h":
            text = text.replace('#include "cuda/byte_wgmma.h"\n', '#include "cuda/byte_wgmma.h"\n#define CD_HAS_WGMMA 1\n') + "\n#undef CD_HAS_WGMMA\n"
        (done / "cuda" / header.name).write_text(text)
    for header in (DEVICE.parent / "user").glob("*.h"):
        shutil.copy(header, done / "user")
    for header in EMULATION.glob("*.h"):  # copies: a precompiled header is of no use once a file that it was made of changes
        shutil.copy(header, done)
    (done / "all.h").write_text('#include "builtins.h"\n' + "".join(f'#include "cuda/{h}"\n' for h in HEADERS))
    for level in ("-O0", "-O1"):
        command(CLANG, *FLAGS, level, "-fpch-instantiate-templates", f"-I{done}", "-x", "c++-header", done / "all.h", "-o", done / f"all{level}.pch")
    host = [CLANG, "-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    command(*host, "-O2", "-shared", EMULATION / "emulation.cpp", "-Wl,--no-as-needed", "-lm", "-o", done / "libemulation.so")
    host.append("-fvisibility=hidden")
    command(*host, "-O1", "-shared", fake, "-ldl", "-o", done / "libcuda.so")
    command(*host, "-O1", "-shared", EMULATION / "fake_nvrtc.cpp", "-o", done / "libnvrtc.so")
    (done / "complete").touch()


def kernels_of(package):
    """The text of a package's kernels, and their names."""
    with zipfile.ZipFile(package) as archive:
        files = sorted(n for n in archive.namelist() if re.search(r"data/coil/src/(\w+/)?kernels_\d+\.cu$", n))
        texts = [archive.read(n).decode() for n in files]
        if len({n.rsplit("/", 1)[0] for n in files}) > 1:  # several programs: functions of a name are the same
            texts = ["\n\n".join(dict.fromkeys(re.sub(r"^//.*\n", "", part, flags=re.M) for text in texts for part in text.split("\n\n")))]
        source = rewrite("\n".join(texts))
    return source, re.findall(r"COIL_KERNEL void (?:__launch_bounds__\([^)]*\) )?(\w+)\(", source)


def edited_headers(package, folder):
    """A folder of the headers, if the package has edited ones (--replace-kernel cuda/...): None if not."""
    with zipfile.ZipFile(package) as archive:
        edited = [n for n in archive.namelist() if re.search(r"data/coil/src/cuda/\w+\.h$", n)]
        if not edited:
            return None
        shutil.copytree(made_tools(), folder, ignore=lambda _, names: [n for n in names if not n.endswith(".h") and n not in ("cuda", "user")])
        for name in edited:
            (folder / "cuda" / name.rsplit("/", 1)[1]).write_text(rewrite(archive.read(name).decode()))
    return folder


def build_kernels(source, names, library, level="-O0", headers=None):
    """Kernels' text as a shared object that the fake driver can load. Most take longer to compile than to run: -O1 is for those that compute much."""
    made, text, code = made_tools(), library.with_suffix(".cpp"), library.with_suffix(".o")
    text.write_text(source + "\nEMULATED_KERNELS(" + "\n".join(f"EMULATED_KERNEL({n})" for n in names) + ")\n")
    parsed = ["-include", headers / "all.h", f"-I{headers}"] if headers else ["-include-pch", made / f"all{level}.pch", f"-I{made}"]
    command(CLANG, *FLAGS, level, *parsed, "-c", text, "-o", code)
    command(LINKER, "-shared", code, made / "libemulation.so", "-rpath", made, "-o", library)


def environment(library=None, sm=90):
    """What makes coil use the fake driver; with the library, its kernels."""
    env = {**os.environ, "COIL_CUDA_DRIVER": str(made_tools() / "libcuda.so"), "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_SM": str(sm)}
    return {**env, "FAKE_CUDA_KERNELS": str(library)} if library else env


class Emulated:
    """A program that is compiled for CUDA, and its kernels for the CPU. `compiled` is the finished compiler; without success nothing
    else is there."""

    def __init__(self, model, folder, sm=90, options=(), level="-O0"):
        self.folder, self.package, self.library = folder, folder / "model.coil.pt2", folder / "kernels.so"
        env = os.environ if ALL else {**os.environ, "COIL_NVRTC": str(made_tools() / "libnvrtc.so")}
        for self.sm in dict.fromkeys((sm, 80)):
            target = f"cuda:sm_{self.sm}"
            self.compiled = harness.coil("compile", model, "--target", target, "-o", self.package, "--threads", 1, *options, env=env)
            if self.compiled.returncode:
                return
            source, self.names = kernels_of(self.package)
            if "wgmma is not emulated" not in source:
                break
        build_kernels(source, self.names, self.library, level, edited_headers(self.package, folder / "headers"))

    def environment(self):
        return environment(self.library, self.sm)

    def run(self, inputs):
        """(finished process, outputs or None)"""
        out = self.folder / "out.npz"
        done = harness.coil("run", self.package, "--device", "cuda:0", "--input", inputs, "--output", out, env=self.environment())
        return done, harness.load_outputs(out) if done.returncode == 0 else None

    def run_shifted(self, inputs, shift):
        """The same with every tensor `shift` elements behind an aligned address: (finished process, outputs as numbers or None)"""
        out = self.folder / "out.npz"
        script, runtime = pathlib.Path(__file__).with_name("emulated_call.py"), harness.BUILD / "libcoil_runtime.so"
        call = [sys.executable, script, runtime, self.package, inputs, out, str(shift)]
        done = subprocess.run(call, capture_output=True, text=True, env=self.environment())
        return done, harness.load_outputs(out) if done.returncode == 0 else None


class StatefulProgram:
    """An exported program on an emulated device that keeps its states from call to call, as a function of tensors: what it writes to of them has
    changed afterwards. Errors of the compiler and of calls are RuntimeErrors."""

    def __init__(self, exported):
        import torch

        self.torch, self.process, self.folder = torch, None, tempfile.TemporaryDirectory(prefix="coil-emulated-")
        where = pathlib.Path(self.folder.name)
        torch.export.save(exported, where / "model.pt2")
        program = Emulated(where / "model.pt2", where)
        if program.compiled.returncode:
            raise RuntimeError(program.compiled.stderr.strip())
        script, runtime = pathlib.Path(__file__).with_name("emulated_states.py"), harness.BUILD / "libcoil_runtime.so"
        self.process = subprocess.Popen([sys.executable, script, runtime, program.package], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=program.environment())

    def __call__(self, *tensors):
        calls, results = pathlib.Path(self.folder.name, "calls.npz"), pathlib.Path(self.folder.name, "results.npz")
        arrays = [self.memory_of(t) for t in tensors]
        places = {f"places_{i}": np.array([t.shape, t.stride()]) for i, t in enumerate(tensors) if arrays[i] is not t}
        np.savez(calls, **{f"in_{i}": t.detach().numpy() for i, t in enumerate(arrays)}, **places)
        self.process.stdin.write(f"{calls} {results}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "done\n":
            raise AssertionError(f"COIL-E901: the process of an emulated device ended, exit code {self.process.wait()}")
        with np.load(results) as file:
            for i, t in enumerate(arrays):
                t.copy_(self.torch.from_numpy(file[f"after_{i}"]).reshape(t.shape))
            if "error" in file:
                raise RuntimeError(str(file["error"]))
            return [self.torch.from_numpy(file[f"out_{i}"]) for i in range(sum(name.startswith("out_") for name in file))]

    def memory_of(self, tensor):
        """The tensor, or of one with gaps the memory from its first to its last element."""
        if self.torch._prims_common.is_non_overlapping_and_dense_or_false(tensor):
            return tensor
        extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        return tensor.as_strided((extent,), (1,))

    def __del__(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)
            self.process.stdout.close()
        self.folder.cleanup()


def run_sets(model, sets, sm=90, shift=0, level="-O0"):
    """Compiles `model` and runs it emulated on each npz of {tag: path}: {tag: (finished process, outputs or None)}. Programs that
    would use wgmma, which is not emulated, are compiled for sm_80."""
    with tempfile.TemporaryDirectory(prefix="coil-emulated-") as folder:
        program = Emulated(model, pathlib.Path(folder), sm, level=level)
        if program.compiled.returncode:
            return {tag: (program.compiled, None) for tag in sets}
        return {tag: program.run_shifted(path, shift) if shift else program.run(path) for tag, path in sets.items()}
