"""A package of several targets holds, for each of them, what the package of that target alone holds, byte for byte.

COIL_EVERY_TARGET=1 looks at every program of the zoo instead of the sample: 25 minutes on two cores.
"""

import json
import os
import zipfile

import pytest

import harness
import zoo

TARGETS = {"cpu": "cpu:x86-64-v3", "aarch64": "aarch64:neon", "cuda": "cuda:sm_90"}
if not harness.has_aarch64():
    del TARGETS["aarch64"]

# What processors and CUDA are lowered to in ways of their own: products of integers, control flow by the host, library routines, attention whose rows may see nothing,
# products whose columns split, sizes from data. The last ones are refused for CUDA, so the package of both is.
OWN_WAYS = ["quantised_int8_weight", "quantised_mlp_int8_weights", "quantised_int8_weight_bf16", "cond_networks", "cond_sizes", "cond_nested", "while_collatz", "while_index",
            "linalg_cond_float32", "attention_fully_masked", "attention_by_hand_masked_rows", "attention_by_hand_masked", "range_attention_masked", "fft_fft", "linalg_solve_float32"]
PROGRAMS = [name for name, program in zoo.programs().items() if program.group == "op"]
SAMPLE = PROGRAMS if os.environ.get("COIL_EVERY_TARGET") or zoo.ALL else list(dict.fromkeys([*(n for n in OWN_WAYS if n in zoo.programs()), *PROGRAMS[::60]]))


def zoo_names(name=None, **_):
    return [name] if name else []


def program_of(name):
    return zoo.make(name) / f"{name}.{zoo.forms(name)[0]}.pt2"


def manifest_name(archive):
    return next(n for n in archive.namelist() if n.endswith("data/coil/manifest.json"))


def part(path, target, of_several):
    """(the target's files, what the manifest says that holds for it): under the names that they have where it is alone."""
    with zipfile.ZipFile(path) as archive:
        name = manifest_name(archive)
        root, manifest = name.removesuffix("data/coil/manifest.json"), json.loads(archive.read(name))
        own = next(t for t in manifest["targets"] if t.get("machine", t["device"]) == target)
        kernels = json.loads(archive.read(root + "data/coil/kernels.json"))
        decisions = next((t for t in kernels.pop("targets", []) if t.pop("model") == own["model"]), kernels)
        folders = {f"data/coil/src/{target}/" if of_several else "data/coil/src/": "src/", f"data/aotinductor/{own['model']}/": "model/"}
        files = {new + entry.removeprefix(root + old): archive.read(entry)
                 for old, new in folders.items() for entry in archive.namelist() if entry.startswith(root + old)}
    assert sorted(decisions) == ["arena", "kernels", "layouts", "not_fused"] and decisions["kernels"]
    manifest |= decisions
    for key in ("symbols", "memory", "constants_hash"):
        manifest[key] = own.pop(key, manifest[key])
    if "states" in manifest:
        manifest["states"] = own.pop("states", manifest["states"])
    del manifest["targets"], manifest["licenses"], own["model"]  # whose code is in the package: of all targets together
    return files, manifest, own


def compile_all(program, folder, order):
    """{target or "both": the finished process}; the packages lie in the folder. What one compile made, the next one finds in a cache."""
    environment = dict(os.environ, COIL_CACHE=str(folder / "cache"))
    lists = {**TARGETS, "both": ",".join(TARGETS[target] for target in order)}
    return {key: harness.coil("compile", program, "-q", "-O", "0", "-o", folder / f"{key}.pt2", "--target", targets, env=environment) for key, targets in lists.items()}


def assert_equal_parts(folder):
    for target in TARGETS:
        alone, both = part(folder / f"{target}.pt2", target, False), part(folder / "both.pt2", target, True)
        assert alone[0].keys() == both[0].keys() and "src/host.cc" in alone[0] and "model/m.wrapper.so" in alone[0], f"{target}: {sorted(alone[0])} and {sorted(both[0])}"
        different = [name for name in alone[0] if alone[0][name] != both[0][name]]
        assert not different, f"{target}: {different} differ"
        assert alone[1:] == both[1:], target


@pytest.mark.parametrize("name", SAMPLE)
def test_two_targets_are_the_two_packages(name, tmp_path):
    program = program_of(name)
    order = list(TARGETS) if SAMPLE.index(name) % 2 == 0 else list(TARGETS)[::-1]  # either may be the first
    done = compile_all(program, tmp_path, order)
    refused = [target for target in order if done[target].returncode]
    if refused:
        harness.assert_refused(done[refused[0]])
        assert any(f"COIL-E{code}" in done[refused[0]].stderr for code in (102, 103, 105)), done[refused[0]].stderr
        assert (done["both"].returncode, done["both"].stderr) == (done[refused[0]].returncode, done[refused[0]].stderr)
    else:
        assert done["both"].returncode == 0, done["both"].stderr
        assert_equal_parts(tmp_path)


def test_the_sample_is_compiled(tmp_path):
    """Most of the programs above are compiled for both; those with ways of their own as well."""
    made = {name: not any(run.returncode for run in compile_all(program_of(name), tmp_path, list(TARGETS)).values())
            for name in ("quantised_mlp_int8_weights", "quantised_int8_weight", "attention_fully_masked", "cond_networks")}
    assert all(made.values()), made


@pytest.mark.parametrize("targets,names", [("cpu", ["cpu:x86-64-v3", "cpu:x86-64-v4"]), ("cpu:x86-64-v4,cpu:x86-64-v3", ["cpu:x86-64-v3", "cpu:x86-64-v4"]),
                                           ("cuda:compute_80,cpu:x86-64-v3,cuda:sm_80,cuda:sm_90", ["cuda:sm_90", "cuda:sm_80", "cuda:compute_80", "cpu:x86-64-v3"])])
def test_order_of_targets(targets, names, tmp_path):
    """What is named first comes first, with all of its architectures, in their own order."""
    assert harness.coil_json("compile", harness.DIGITS, "-O", "0", "-o", tmp_path / "m.pt2", "--target", targets)["targets"] == names
    with zipfile.ZipFile(tmp_path / "m.pt2") as archive:
        told = json.loads(archive.read(manifest_name(archive)))["targets"]
    assert [t["device"] for t in told] == list(dict.fromkeys(name.split(":")[0] for name in names))
    assert [t["model"] for t in told] == ["model", *(t["device"] for t in told[1:])]
    texts = harness.coil_ok("inspect", tmp_path / "m.pt2").stdout
    assert all(name.split(":")[1].removeprefix("x86-64-") in texts for name in names)


@pytest.mark.parametrize("wrong", ["cuda", "cpu:v3", "cpu:", ":v3", "cuda:sm_91", "cuda:compute_90", "cpu,tpu", "CPU"])
def test_unknown_targets_are_named(wrong, tmp_path):
    done = harness.coil("compile", harness.DIGITS, "-o", tmp_path / "m.pt2", "--target", wrong)
    harness.assert_refused(done, f"there is no target '{wrong.split(',')[-1]}'", "cpu:x86-64-v3", "cuda:sm_90", "compute_80", code=402)


@pytest.mark.parametrize("name", ["while_collatz", "cond_networks", "quantised_int8_weight"])
def test_a_later_target_runs(name, tmp_path):
    """The CPU's part, with what CUDA's does not have: steps by the host, products of integers."""
    folder = zoo.make(name)
    done = harness.coil("compile", program_of(name), "-q", "-O", "0", "-o", tmp_path / "m.pt2", "--target", "cuda:sm_90,cpu:x86-64-v3")
    if done.returncode:  # steps whose number only data says: CUDA has none of them
        harness.assert_refused(done, code=105)
        pytest.skip("refused for CUDA")
    meta = harness.zoo_meta(folder)
    for tag in meta["sets"]:
        harness.coil_ok("run", tmp_path / "m.pt2", "--device", "cpu", "--input", folder / f"{tag}.npz", "--output", tmp_path / "out.npz")
        harness.compare(harness.load_outputs(tmp_path / "out.npz"), harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)
