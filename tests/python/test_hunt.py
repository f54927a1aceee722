"""Programs of the hunt (tests/hunt) behind torch.compile and as packages, beside eager. `python tests/hunt/hunt.py` takes all of them, through every door."""

import sys

import pytest
import torch

import harness

sys.path.insert(0, str(harness.REPO / "tests/hunt"))
import registry  # noqa: E402
import hunt  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_compiles")
registry.load()

# Small ones of every kind, whose operators all have code: behind the door that says most.
GRADIENTS = ("small_inverse", "small_chol", "gp_regression", "sinkhorn", "fno_block", "gru_cells", "crf_forward", "relative_shift", "rotary_complex", "moe_dense_loop",
             "pad_sequence", "weight_norm_conv", "custom_function", "realnvp", "spline_flow", "gat", "pna", "bag_weighted_last", "orders_grad", "lovasz", "nerf_render",
             "grid_bilinear_border", "conv_odd", "fold_unfold", "stft_round", "fake_quant_learnable", "fake_quant_learnable_ch", "strided_in", "einsums", "straight_binary", "transforms_of_whole_operators", "linearized", "vmap_of_numbers", "imaginary_numbers",
             "capsule_routing", "moe_top2_capacity", "gaussian_splatting", "complex_network", "dqn_update", "jagged_nested")
FORWARD = ("particle_filter", "ensemble_vmap", "c51_projection", "viterbi", "beam_search", "recsys_dlrm", "unique_rows", "boolean_assign", "bitops", "integer_math", "empties", "boxes", "nms_batched", "input_mutation", "alias_outputs",
           "promotion", "kmeans_steps", "spectral_norm_train")
PACKAGES = ("procrustes", "complex_quantum", "prioritized_replay", "histogram_things", "levenshtein", "dynamic_quant_manual", "scan_rnn", "kv_cache_write", "masked_ops", "pad_sequence",
            "spectral_norm_train", "roi_align_adaptive", "vmap_of_numbers", "vq_vae_ema")
DYNAMIC = ("realnvp", "s4d_kernel")
CASES = [*(("dynamic", name) for name in DYNAMIC), *(("gradients", name) for name in GRADIENTS), *(("forward", name) for name in FORWARD), *(("package", name) for name in PACKAGES)]


@pytest.mark.parametrize("door, name", CASES, ids=[f"{door}-{name}" for door, name in CASES])
def test_equals_eager(door, name):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wrong, left, _ = hunt.check(name, door)
    finally:
        torch.set_num_threads(threads)
    assert not wrong
    assert not left, "stays in PyTorch"
