"""aarch64 code of a sample of programs, under qemu; and packages that hold code for several machines. `make aarch64-test` has the whole zoo."""

import json
import os
import sys

import pytest

import harness

sys.path.insert(0, str(harness.REPO / "tests" / "aarch64"))
import run_zoo

pytestmark = pytest.mark.skipif(not harness.has_aarch64(), reason="this coil was built without that machine's headers (tools/install_deps.sh)")
runs = pytest.mark.skipif(bool(run_zoo.why_not()), reason=run_zoo.why_not() or "it can")

# A product, convolutions, attention, a sort, a Fourier transform and a factorisation of the library, integers, half precision, doubles, control flow.
SAMPLE = [
    "mm_sizes", "mm_bf16", "mm_f64", "conv2d_3x3", "winograd", "conv2d_depthwise", "attention_causal", "attention_by_hand_masked", "quantised_conv_3x3", "sort", "cumsum",
    "fft_planes", "linalg_solve_complex64", "resize_float16", "to_integers_f32", "special_values_one", "f16_special", "while_newton", "dynamic_reduce", "max_pool2d_nan", "conv1d_temporal_groups",
]


@runs
@pytest.mark.parametrize("level", ["neon", "i8mm"])
@pytest.mark.parametrize("name", SAMPLE)
def test_equals_eager(name, level):
    assert run_zoo.check_program(name, "aten", level) == ""


@runs
@pytest.mark.parametrize("level", ["neon", "i8mm"])
def test_museum(level):
    path = sorted(run_zoo.museum())[-1]
    assert run_zoo.check_museum(path, level) == ""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """digits for each machine alone, and for all of them."""
    folder = tmp_path_factory.mktemp("machines")
    made = {}
    for target in ("cpu:x86-64-v3", "aarch64", "aarch64,cpu:x86-64-v3"):
        made[target] = folder / (target.replace(":", "_").replace(",", "_") + ".pt2")
        harness.coil_ok("compile", harness.DIGITS, "--target", target, "-o", made[target])
    return made


def test_a_package_says_what_it_holds(packages):
    manifest = harness.coil_json("inspect", packages["aarch64,cpu:x86-64-v3"])
    rows = [(t["device"], t.get("machine"), t["isas"]) for t in manifest["targets"]]
    assert rows == [("cpu", "aarch64", ["neon", "i8mm"]), ("cpu", None, ["v3"])]
    text = harness.coil_ok("inspect", packages["aarch64,cpu:x86-64-v3"]).stdout
    assert "aarch64: neon, i8mm" in text and "cpu: v3" in text


def test_the_part_of_this_machine_runs(packages, tmp_path):
    """The part for x86-64 of a package for both gives the bits of the package for it alone."""
    results = []
    for target in ("cpu:x86-64-v3", "aarch64,cpu:x86-64-v3"):
        harness.coil_ok("run", packages[target], "--input", harness.DIGITS_TEST, "--output", tmp_path / "out.npz")
        results.append(harness.load_outputs(tmp_path / "out.npz")[0])
    assert (results[0] == results[1]).all()


def test_a_part_for_another_machine_is_named(packages):
    harness.assert_refused(harness.coil("run", packages["aarch64"]), "aarch64 (neon, i8mm)", "this machine, which is x86-64", "--target cpu", code=303)


def test_the_tuner_is_of_this_machine(tmp_path):
    done = harness.coil("compile", harness.DIGITS, "--target", "aarch64", "--tune", "fast", "-o", tmp_path / "x.pt2")
    harness.assert_refused(done, "which is x86-64, not aarch64", code=402)


def test_unknown_level(tmp_path):
    harness.assert_refused(harness.coil("compile", harness.DIGITS, "--target", "aarch64:v4", "-o", tmp_path / "x.pt2"), "aarch64:v4", "aarch64:neon", code=402)


@runs
def test_each_machine_takes_its_own_part(packages, tmp_path):
    both = packages["aarch64,cpu:x86-64-v3"]
    done = run_zoo.emulated("run", both, "--input", harness.DIGITS_TEST, "--output", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    harness.coil_ok("run", both, "--input", harness.DIGITS_TEST, "--output", tmp_path / "here.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), harness.load_outputs(tmp_path / "here.npz"), 1e-5)
    harness.assert_refused(run_zoo.emulated("run", packages["cpu:x86-64-v3"]), "cpu (v3)", "this machine, which is aarch64", "--target aarch64", code=303)


@runs
@pytest.mark.parametrize("level", ["neon", "i8mm"])
def test_the_level_is_chosen_at_load(packages, level):
    """The processor decides, and COIL_ISA lowers it."""
    def target(**env):
        done = run_zoo.emulated("bench", packages["aarch64"], "--seconds", "0.01", "--json", level=level, env={**os.environ, **env})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["target"]

    assert target() == f"aarch64-{level}"
    assert target(COIL_ISA="neon") == "aarch64-neon"


@runs
def test_a_program_needs_the_compiler():
    harness.assert_refused(run_zoo.emulated("run", harness.DIGITS), "no compiler", "--target aarch64", code=13)
