"""The CUDA target without a GPU: generated kernels and templates run on the CPU under an emulator that stops at every access outside
of an allocation, against eager PyTorch. COIL_EMULATE_ALL=1: every small program in both forms and for both architectures, with
NVRTC making the cubins too."""

import re

import numpy as np
import pytest

import emulated_cuda
import harness
import test_museum
import zoo

SMALL_MODELS = ["digits", "mlp", "mlp_bf16", "sin_mm_cos", "norm_gelu_softmax"]
MODELS = {"encoder_1": None, "llama_f32": None, "llama_bf16": ["b1_s2"], "minilm": ["b3_s33"], "resnet18_b1": None}  # the sets; None: all
SLOW_MODELS = {"mobilenet_v3_large": ["b5"], "vit_b_16": ["b1"], "gpt2_f32": ["b1_s1"], "resnet50": None, "llama_bf16": ["b3_s17"]}
MUSEUM = ["torch-2.11.0/cnn_dynamic.pt2", "torch-2.11.0-cuda/mlp_bf16.pt2", "torch-2.15.0/attn_dynamic.pt2", "torch-2.15.0/branch.pt2",
          "torch-2.15.0/stats.pt2"]
# Programs of templates, whose variants differ by architecture.
TEMPLATES = r"mm_|grouped_|bmm|addmm|baddbmm|matmul|linear|conv\d?|conv_|attention|multihead|transformer|lstm|dynamic_(matmul|heads)"
# Run with tensors that begin at odd elements: what is wide must notice.
SHIFTED = ["grouped_rows_plain_bf16", "grouped_rows_plain_f32", "grouped_depth_of_rows_bf16", "grouped_depth_of_rows_f32", "size_33", "bf16_chain", "broadcast_both", "permute", "softmax_bf16", "layer_norm_bf16", "reduce_bf16", "reduce_mean_outer", "cumsum",
           "cat_last_of_sum", "mm_bf16", "mm_sizes", "linear_bf16", "conv2d_bf16", "conv2d_3x3", "conv2d_depthwise", "attention_bf16", "max_pool2d",
           "embedding", "dynamic_matmul"]


def cases():
    for name, program in zoo.programs().items():
        if program.group == "op":
            for form in program.forms if emulated_cuda.ALL else ["aten"]:
                for sm in (90, 80) if emulated_cuda.ALL or re.match(TEMPLATES, name) else (90,):
                    yield name, form, sm, 0
    yield from ((name, "aten", sm, 0) for name in SMALL_MODELS for sm in (90, 80))
    yield from ((name, "aten", 90, 0) for name in MODELS)
    yield from ((name, "core", 80, 0) for name in SLOW_MODELS if emulated_cuda.ALL)
    yield from ((name, "aten", sm, shift) for name in SHIFTED for sm, shift in [(80, 1)] + [(90, 3)] * emulated_cuda.ALL)


CASES = list(cases())


def zoo_names(name=None, **_):
    return [name] if name else []


def job(name=None, form=None, sm=90, shift=0, museum=None):
    if museum:
        return emulated_cuda.run_sets(test_museum.MUSEUM / museum, {"only": test_museum.arrays_of(museum)}, sm)
    folder = zoo.make(name)
    wanted = (SLOW_MODELS if form == "core" else MODELS).get(name) or harness.zoo_meta(folder)["sets"]
    sets = {tag: folder / f"{tag}.npz" for tag in wanted}
    level = "-O1" if zoo.programs()[name].group == "model" else "-O0"
    return emulated_cuda.run_sets(folder / f"{name}.{form}.pt2", sets, sm, shift, level)


@pytest.mark.parametrize("name,form,sm,shift", CASES, ids=[f"{n}-{form}-sm_{sm}" + "-shifted" * (shift > 0) for n, form, sm, shift in CASES])
def test_equals_eager(name, form, sm, shift, result):
    folder = zoo.make(name)
    meta = harness.zoo_meta(folder)
    for tag, (done, outputs) in result.items():
        assert done.returncode == 0, f"{tag}: exit code {done.returncode}\n{done.stderr[-3000:]}"
        harness.compare(outputs, harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)


@pytest.mark.parametrize("museum", MUSEUM)
def test_museum_equals_eager(museum, result):
    done, outputs = result["only"]
    assert done.returncode == 0, done.stderr[-3000:]
    harness.compare(outputs, harness.load_expected(test_museum.arrays_of(museum)), 2e-2 if "bf16" in museum else 1e-4, museum)


@pytest.mark.parametrize("name,sm", [("grouped_rows_plain_bf16", 80), ("grouped_rows_plain_f32", 90), ("grouped_depth_of_rows_bf16", 80), ("grouped_experts_bf16", 80)])
def test_wrong_ends_of_groups(name, sm, tmp_path):
    """Nothing outside of a tensor is touched (the emulator would stop), and the call says what is wrong."""
    folder = zoo.make(name)
    program = emulated_cuda.Emulated(folder / f"{name}.aten.pt2", tmp_path, sm, level="-O0")
    assert program.compiled.returncode == 0, program.compiled.stderr
    right = dict(np.load(folder / "example.npz"))
    last = "in_1" if name == "grouped_experts_bf16" else "in_2"  # the experts' own bincount refuses numbers of experts that there are not
    size = {"rows": 37, "dept": 45, "expe": 41}[name.removeprefix("grouped_")[:4]]
    wrong = [np.full(size, 7)] if last == "in_1" else [np.array(w, np.int32) for w in ([5, 3, 10, size], [-9, 3, 10, size], [3, 4, 5, size + 1], [1 << 30, -(1 << 30), 1 << 30, 9])]
    for values in wrong:
        np.savez(tmp_path / "in.npz", **{**right, last: values.astype(right[last].dtype)})
        done, _ = program.run(tmp_path / "in.npz")
        harness.assert_refused(done, "an index is out of range in", code=210)
