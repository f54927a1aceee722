"""Packages of several programs: one copy of the weights, one state, each program beside eager, in stock PyTorch and in C."""

import ctypes
import json
import subprocess
import zipfile
from ctypes import byref, c_char_p, c_void_p

import numpy as np
import pytest
import torch
from torch import nn

import capi
import coil
import coil.llm
import harness
from tiny_decoder import decoder, greedy, tiny
from decoder_programs import exported, folder, package, packed  # noqa: F401  (fixtures)

PROMPT = [72, 101, 108, 108, 111, 32, 119]


def entries(path):
    with zipfile.ZipFile(path) as zip:
        return {i.filename.partition("/")[2]: i.file_size for i in zip.infolist()}


def step(call, ids, begin):
    return call(torch.tensor([ids]), torch.arange(begin, begin + len(ids)))


def test_weights_are_stored_once(folder, package):
    constants = {name: size for name, size in entries(package).items() if name.endswith(".constants")}
    assert list(constants) == ["data/constants/coil_cpu.constants"]
    alone = packed(folder, "decode.pt2", name="alone")
    single = [size for name, size in entries(alone).items() if name.endswith(".constants")][0]
    assert constants["data/constants/coil_cpu.constants"] < 1.1 * single, "a second copy of the weights"
    told = json.loads(harness.coil_ok("inspect", package, "--json").stdout)["memory"]
    assert "again_bytes" not in told, "the tied embedding: the lookup reads the product's panels"
    model = coil.load(package)
    assert model.programs == ["prefill", "decode"] and model.program == "prefill" and model["decode"].program == "decode"
    text = harness.coil_ok("inspect", package).stdout
    assert "decode" in text and "an earlier program's too" in text and "the state of prefill" in text
    inspected = json.loads(harness.coil_ok("inspect", package, "--json", "--program", "decode").stdout)
    assert inspected["programs"] == ["prefill", "decode"] and inspected["memory"]["shared_bytes"] > 0.9 * inspected["memory"]["constants_bytes"]


def test_a_file_is_mapped_once(package):
    first = coil.load(package, program="prefill")
    second = coil.load(package, program="decode")
    third = first["decode"]
    with open("/proc/self/maps") as maps:
        rows = [row for row in maps if str(package) in row]
    assert len(rows) == 1, rows
    assert third.program == second.program


def test_programs_go_on_with_each_others_state(package):
    prefill = coil.load(package)
    decode = prefill["decode"]
    want = greedy(tiny(), PROMPT, 6)
    state, tokens = prefill.new_state(), list(PROMPT)
    tokens.append(int(step(state, PROMPT, 0)[0].argmax()))
    while len(tokens) < len(PROMPT) + 6:
        tokens.append(int(step(state.on(decode), tokens[-1:], len(tokens) - 1)[0].argmax()))
    assert tokens[len(PROMPT):] == want
    # From bytes, in a state that the other program made; and the other way round.
    other = decode.new_state()
    other.restore(state.save())
    more = step(other, [5], len(tokens))
    assert torch.equal(more, step(state.on(decode), [5], len(tokens)))
    back = step(other.on(prefill), [1, 2], 3)
    assert torch.equal(back, step(state, [1, 2], 3))
    # A model's own state stays its own.
    before = step(decode, [5], 0)
    step(prefill, PROMPT, 0)
    decode.reset_state()
    assert torch.equal(step(decode, [5], 0), before)


def test_generation_uses_both(package, folder):
    want = greedy(tiny(), PROMPT, 14)
    generator = coil.llm.Generator(package)
    assert generator.generate(PROMPT, 14) == want and sorted(generator._generator.programs) == ["decode", "prefill"]
    talk = generator.conversation(PROMPT)
    first = talk.generate(3)
    saved, fork = talk.save(), talk.fork()
    assert first + talk.generate(5) == want[:8] and first + fork.generate(11) == want
    again = coil.llm.Generator(package).conversation()
    again.restore(saved)
    assert first + again.generate(11) == want
    assert generator.conversation(PROMPT[:1]).generate(4) == greedy(tiny(), PROMPT[:1], 4)
    listed = ",".join(map(str, PROMPT))
    result = json.loads(harness.coil_ok("generate", package, "--ids", listed, "--tokens", "14", "--json").stdout)
    assert result["tokens"] == want
    alone = json.loads(harness.coil_ok("generate", package, "--program", "decode", "--ids", listed, "--tokens", "14", "--json").stdout)
    assert alone["tokens"] == want
    for wrong in ("1,,2", ",1", "1,2,", "1-2", "1.5", "1;2", "1 , , 2", ","):
        refused = harness.coil("generate", package, "--ids", wrong)
        assert refused.returncode != 0 and "is no list of numbers" in refused.stderr, wrong
    spaced = json.loads(harness.coil_ok("generate", package, "--ids", listed.replace(",", " , "), "--tokens", "14", "--json").stdout)
    assert spaced["tokens"] == result["tokens"]
    failed = harness.coil("generate", package, "--program", "prefill", "--ids", listed)
    assert failed.returncode != 0 and "at least 2 tokens" in failed.stderr


@pytest.mark.parametrize("files", [("four.pt2", "decode.pt2"), ("decode.pt2", "four.pt2"), ("prefill.pt2", "four.pt2", "decode.pt2")])
def test_prompts_in_pieces_of_fixed_length(folder, files, tmp_path):
    for file in files:
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    path = packed(tmp_path, *files)
    generator = coil.llm.Generator(path)
    assert len(generator._generator.programs) == len(files)
    for prompt in (PROMPT, PROMPT[:4], PROMPT[:3], PROMPT + PROMPT[:2]):
        assert generator.generate(prompt, 8) == greedy(tiny(), prompt, 8)
    repeated = [1, 2, 3, 4, 5] * 3
    assert generator.conversation(repeated).generate(8, draft=4) == greedy(tiny(), repeated, 8)


def test_stock_pytorch_runs_each(package):
    from torch._inductor.package import load_package

    want = tiny()
    state = decoder.Generation(want)
    with torch.no_grad():
        expected = step(state, PROMPT, 0)
        first = step(decoder.Generation(tiny()), [65], 0)
    loaded = load_package(str(package), model_name="prefill")
    torch.testing.assert_close(step(loaded, PROMPT, 0), expected, rtol=1e-4, atol=1e-4)
    loaded = load_package(str(package), model_name="decode")
    torch.testing.assert_close(step(loaded, [65], 0), first, rtol=1e-4, atol=1e-4)


class COptions(ctypes.Structure):
    _fields_ = capi.Options._fields_ + [("device", c_char_p), ("verify", ctypes.c_int32), ("program", c_char_p)]


@pytest.fixture(scope="module")
def library():
    lib = ctypes.CDLL(str(harness.BUILD / "libcoil_runtime.so"))
    lib.coil_last_error.restype = lib.coil_program_name.restype = lib.coil_model_program.restype = c_char_p
    lib.coil_program_name.argtypes = [c_void_p, ctypes.c_int32]
    lib.coil_state_bytes.restype = ctypes.c_size_t
    for name in ("coil_num_programs", "coil_model_program", "coil_close", "coil_state_destroy", "coil_context_destroy", "coil_state_bytes"):
        getattr(lib, name).argtypes = [c_void_p]
    return lib


def test_c(library, package, folder):
    lib, model, other = library, c_void_p(), c_void_p()
    options = COptions(struct_bytes=ctypes.sizeof(COptions), program=b"decode")
    assert lib.coil_open(str(package).encode(), byref(options), byref(model)) == 0, lib.coil_last_error()
    assert lib.coil_num_programs(model) == 2 and lib.coil_model_program(model) == b"decode"
    assert [lib.coil_program_name(model, i) for i in range(-1, 3)] == [None, b"prefill", b"decode", None]
    assert lib.coil_open_program(model, b"prefill", byref(other)) == 0
    assert lib.coil_model_program(other) == b"prefill" and lib.coil_state_bytes(other) == lib.coil_state_bytes(model) > 0
    nothing = c_void_p()
    assert lib.coil_open_program(model, b"pre", byref(nothing)) == 402 and not nothing.value
    assert b"no program 'pre'; it has prefill, decode" in lib.coil_last_error()
    assert lib.coil_open_program(model, None, byref(nothing)) == 402 and lib.coil_open_program(None, b"x", byref(nothing)) == 402
    state, context = c_void_p(), c_void_p()
    assert lib.coil_state_create(other, byref(state)) == 0 and lib.coil_context_create(model, byref(context)) == 0
    assert lib.coil_context_use_state(context, state) == 0, lib.coil_last_error()
    assert lib.coil_context_use_state(context, None) == 0
    stranger = c_void_p()
    assert lib.coil_open(str(packed(folder, "decode.pt2", name="stranger")).encode(), None, byref(stranger)) == 0
    lone = c_void_p()
    assert lib.coil_context_create(stranger, byref(lone)) == 0
    assert lib.coil_num_programs(stranger) == 1 and lib.coil_model_program(stranger) == b"model"
    assert lib.coil_context_use_state(lone, state) == 213
    for destroy, handle in ((lib.coil_state_destroy, state), (lib.coil_context_destroy, context), (lib.coil_context_destroy, lone),
                            (lib.coil_close, model), (lib.coil_close, other), (lib.coil_close, stranger)):
        destroy(handle)


CPP = r"""
#include <coil/coil.hpp>
#include <cstdio>
int main(int, char** v) {
  coil::Model first(v[1]), decode = first["decode"], chosen(v[1], coil::Options().program("decode"));
  std::printf("%s %s %s %zu\n", first.program().c_str(), decode.program().c_str(), chosen.program().c_str(), first.programs().size());
  coil::State state(first);
  coil::Context context(decode);
  context.use(state);
  try {
    first["no"];
  } catch (const coil::Exception& e) {
    std::printf("%d\n", e.code());
  }
}
"""


def test_cpp(package, tmp_path):
    (tmp_path / "main.cc").write_text(CPP)
    build = harness.BUILD.resolve()
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{harness.REPO / 'include'}", tmp_path / "main.cc", "-o", tmp_path / "main", f"-L{build}",
                    "-lcoil_runtime", f"-Wl,-rpath,{build}"], check=True)
    done = subprocess.run([tmp_path / "main", package], capture_output=True, text=True, check=True)
    assert done.stdout == "prefill decode decode 2\n402\n"


def test_states_of_one_name_and_another_size(folder):
    path = packed(folder, "prefill.pt2", "longer.pt2", "decode.pt2", name="sizes")
    model = coil.load(path)
    state = model.new_state()
    with pytest.raises(coil.Error, match=r"COIL-E213.*'prefill'.*'longer' cannot go on.*\[1, 2, 32, 16\], the other one's is float32 \[1, 2, 24, 16\]"):
        step(state.on(model["longer"]), [1], 0)
    longer = model["longer"].new_state()
    with pytest.raises(coil.Error, match="COIL-E213"):
        longer.restore(state.save())
    step(state.on(model["decode"]), [1], 0)
    with pytest.raises(coil.Error, match=r"at least 2 tokens at a time; its program 'longer' is of no use here: .*\[1, 2, 32, 16\]"):
        coil.llm.Generator(packed(folder, "prefill.pt2", "longer.pt2", name="unfit"))
    # Generation leaves the one that does not fit out.
    generator = coil.llm.Generator(path)
    assert generator.generate(PROMPT, 8) == greedy(tiny(), PROMPT, 8) and generator._generator.programs == ["prefill", "decode"]


class Counting(nn.Module):
    """States with values of their own, in another order, and one that only one of the programs has."""

    def __init__(self, more):
        super().__init__()
        self.more = more
        if more:
            self.register_buffer("own", torch.full((3,), 4.0))
        self.register_buffer("cache", torch.zeros(5))
        self.register_buffer("count", torch.tensor([7.0]))

    def forward(self, x):
        self.count.add_(1)
        self.cache.add_(x)
        if self.more:
            self.own.add_(2)
            return self.cache + self.count + self.own.sum()
        return self.cache * self.count


def test_states_that_one_program_has_and_another_not():
    x = torch.arange(5.0)
    programs = {name: torch.export.export(Counting(name == "second"), (x,)) for name in ("first", "second")}
    model = coil.compile(programs)
    second = model["second"]
    state = model.new_state()
    assert torch.equal(state(x), x * 8)
    assert torch.equal(state.on(second)(x), 2 * x + 9 + 18)
    assert torch.equal(state(x), 3 * x * 10)
    assert torch.equal(second(x), x + 8 + 18) and torch.equal(model(x), x * 8)
    state.reset()
    assert torch.equal(state.on(second)(x), x + 8 + 18)


class From(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.register_buffer("count", torch.tensor([float(first)]))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


def test_a_state_begins_as_the_program_that_it_was_made_for():
    x = torch.ones(1)
    model = coil.compile({name: torch.export.export(From(first), (x,)) for name, first in (("zero", 0), ("five", 5))})
    five = model["five"]
    assert float(model(x)) == 1 and float(five(x)) == 6
    state, other = model.new_state(), five.new_state()
    assert [float(state(x)), float(state.on(five)(x))] == [1, 2] and [float(other(x)), float(other.on(model)(x))] == [6, 7]
    other.reset()
    assert float(other.on(model)(x)) == 6


def test_python_takes_programs_of_every_kind(folder, tmp_path):
    programs = {"prefill": folder / "prefill.pt2", "decode": exported(1), "four": (folder / "four.pt2").read_bytes()}
    model = coil.compile(programs, tmp_path / "three.coil.pt2")
    assert model.programs == ["prefill", "decode", "four"] and model.report["shared_bytes"] > 0
    with torch.no_grad():
        want = step(decoder.Generation(tiny()), [65, 66, 67, 68], 0)
    for loaded in (model["four"], coil.load(tmp_path / "three.coil.pt2", program="four"), coil.compile(programs)["four"]):
        torch.testing.assert_close(step(loaded, [65, 66, 67, 68], 0), want, rtol=1e-4, atol=1e-4)
    for wrong, kind, text in (({}, coil.Error, "at least one program"), ({"a b": folder / "decode.pt2"}, coil.Error, "cannot be the name of a program"),
                              ({"a": 3}, TypeError, "program 'a'"), ({"../x": folder / "decode.pt2"}, coil.Error, "COIL-E402")):
        with pytest.raises(kind, match=text):
            coil.compile(wrong)
    with pytest.raises(coil.Error, match="no program 'x'; it has prefill, decode, four"):
        coil.load(tmp_path / "three.coil.pt2", program="x")


def test_one_program_with_a_name(folder, tmp_path):
    path = tmp_path / "named.coil.pt2"
    harness.coil_ok("compile", f"only={folder / 'decode.pt2'}", "-q", "-o", path)
    assert coil.load(path).programs == ["only"]


def test_run_bench_and_profile_choose(package, tmp_path):
    np.savez(tmp_path / "one.npz", in_0=np.array([[65]]), in_1=np.array([0]))
    ran = json.loads(harness.coil_ok("run", package, "--program", "decode", "--input", tmp_path / "one.npz", "--json").stdout)
    assert ran["outputs"][0]["shape"] == [1, 256]
    failed = harness.coil("run", package, "--input", tmp_path / "one.npz")
    assert failed.returncode != 0 and "COIL-E204" in failed.stderr  # prefill takes 2 tokens and more
    assert "it has prefill, decode" in harness.coil("run", package, "--program", "no", "--input", tmp_path / "one.npz").stderr
    harness.coil_ok("bench", package, "--program", "decode", "--repeat", "3", "--input", tmp_path / "one.npz")
    harness.coil_ok("profile", package, "--program", "decode", "--input", tmp_path / "one.npz")
    source = harness.coil_ok("inspect", package, "--program", "decode", "--source", "host.cc").stdout
    assert source != harness.coil_ok("inspect", package, "--source", "host.cc").stdout
    assert "leave --program out" in harness.coil("run", package.parent / "decode.pt2", "--program", "decode").stderr


def test_x86_and_cuda_code(folder):
    path = packed(folder, "prefill.pt2", "decode.pt2", name="both", options=("--target", "cpu,cuda:sm_90"))
    names = entries(path)
    for part in ("data/constants/coil_cpu.constants", "data/constants/coil_cuda.constants", "data/aotinductor/prefill/m.wrapper.so",
                 "data/aotinductor/cuda-prefill/m.wrapper.so", "data/aotinductor/cuda-decode/m.wrapper.so", "data/coil/src/decode/cuda/host.cc"):
        assert part in names
    only_cpu = packed(folder, "prefill.pt2", "decode.pt2", name="cpu")
    with zipfile.ZipFile(path) as both, zipfile.ZipFile(only_cpu) as one:
        for name in one.namelist():
            inner = name.partition("/")[2]
            if inner.startswith(("data/aotinductor/", "data/constants/")):
                assert both.read("both/" + inner) == one.read(name), f"{inner} is another one where there is code for CUDA too"
    assert coil.llm.Generator(coil.load(path, "cpu")).generate(PROMPT, 8) == greedy(tiny(), PROMPT, 8)
    text = harness.coil_ok("inspect", path, "--program", "decode").stdout
    assert "cuda: sm_90" in text and text.count("shared with earlier programs") == 2


def test_the_same_bytes_each_time(folder, package, tmp_path):
    for name in ("prefill.pt2", "decode.pt2"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert packed(tmp_path, "prefill.pt2", "decode.pt2").read_bytes() == package.read_bytes()
