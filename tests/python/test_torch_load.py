"""Packages load unchanged in stock PyTorch and give the same results there; wrong inputs raise with coil's own text."""

import json
import subprocess
import sys

import pytest

import harness
import zoo

NAMES = ["digits", "mlp", "mlp_bf16", "sin_mm_cos", "norm_gelu_softmax", "dynamic_pointwise", "attention_dynamic", "mutate_counter",
         "mutate_input", "nested_inputs", "plain_arguments", "output_constants", "outputs_repeat", "identity", "arithmetic_i64", "sort",
         "complex_arithmetic", "complex_transposed_result", "complex_layers", "complex_state", "fft_dynamic", "fft_doubles",
         "linalg_solve_float32", "linalg_svd_complex64", "linalg_qr_complex128", "size_0", "conv2d_dynamic", "input_transposed", "resnet18_b1", "minilm", "llama_f32"]


def zoo_names(**parameters):
    return NAMES


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, digits_package):
    """{name: {tag: error or None}} and the folder with the results; one process loads all packages."""
    folder = tmp_path_factory.mktemp("torch")
    rows, answer = [], {}
    for name in NAMES:
        path = folder / f"{name}.coil.pt2"
        done = harness.coil("compile", zoo.make(name) / f"{name}.aten.pt2", "-o", path)
        if done.returncode:
            answer[name] = {"compile": done.stderr}
        else:
            rows.append({"name": name, "path": str(path), "out": str(folder)})
    (folder / "request.json").write_text(json.dumps({"packages": rows, "bad": str(digits_package)}))
    done = subprocess.run([sys.executable, harness.REPO / "tests/python/torch_loader.py", folder / "request.json"], capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return answer | json.loads(done.stdout.strip().splitlines()[-1]), folder


@pytest.mark.parametrize("name", NAMES)
def test_same_results(name, loaded):
    answer, results = loaded
    folder, errors = zoo.make(name), answer[name]
    meta = harness.zoo_meta(folder)
    assert not any(errors.values()), errors
    for tag in meta["sets"]:
        harness.compare(harness.load_outputs(results / f"{name}.{tag}.npz"), harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)


@pytest.mark.parametrize("what,code", [("size", 204), ("batch", 204), ("dtype", 202), ("rank", 203)])
def test_wrong_inputs_raise(what, code, loaded):
    text = loaded[0][""][what]
    assert text and f"COIL-E{code}" in text and "image" in text, text
    if what == "batch":
        assert "batch" in text and "512" in text, text


def test_good_call_after_wrong_ones(loaded):
    assert loaded[0][""]["then a good call"] is None
