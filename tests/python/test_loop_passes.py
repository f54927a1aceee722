"""The passes over loops: each is dumped, may be left out, and runs on the programs inside of regions too."""

import os

import numpy as np
import pytest
import torch

import harness
import zoo

PASSES = ["find_attention", "fold_bytes", "find_quantised", "fold_constants", "merge_equal", "demanded_ranges"]
PROGRAMS = ["attention_by_hand_masked_rows", "quantised_mlp_int8_weights", "range_columns", "cond_networks"]


def zoo_names(name=None, **_):
    return [name] if name else ["attention_by_hand_masked_rows"]


def dumps(program, folder, *options):
    """{stage: text} of the loops' stages, in order."""
    harness.coil_ok("compile", program, "-q", "-O", "0", "-o", folder / "m.pt2", *options, env=dict(os.environ, COIL_DUMP=str(folder / "dump")))
    files = sorted((folder / "dump").glob("*_loops*.txt"))
    return {file.stem[3:]: file.read_text() for file in files}


def exported(module, args, folder):
    torch.export.save(torch.export.export(module, args), folder / "m.export.pt2")
    return folder / "m.export.pt2"


def test_each_pass_is_dumped_for_each_target(tmp_path):
    stages = dumps(zoo.make("attention_by_hand_masked_rows") / "attention_by_hand_masked_rows.aten.pt2", tmp_path, "--target", "cpu:x86-64-v3,cuda:sm_90")
    names = ["lowered", *PASSES]
    assert list(stages) == [*(f"loops_{name}" for name in names), "loops", *(f"loops_{name}_cuda" for name in ["lowered", *PASSES]), "loops_cuda"]
    assert "= attention " in stages["loops_find_attention"] and "= attention " not in stages["loops_lowered"]
    assert "= attention " in stages["loops_cuda"]


@pytest.mark.parametrize("skipped", PASSES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_may_be_left_out(name, skipped, tmp_path):
    folder = zoo.make(name)
    stages = dumps(folder / f"{name}.{zoo.forms(name)[0]}.pt2", tmp_path, "--skip", skipped, "--target", "cpu:x86-64-v3")
    assert list(stages) == ["loops_lowered", *(f"loops_{p}" for p in PASSES if p != skipped), "loops"]
    meta = harness.zoo_meta(folder)
    for tag in meta["sets"]:
        harness.coil_ok("run", tmp_path / "m.pt2", "--input", folder / f"{tag}.npz", "--output", tmp_path / "out.npz")
        harness.compare(harness.load_outputs(tmp_path / "out.npz"), harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)


def test_an_unknown_pass_is_named(tmp_path):
    done = harness.coil("compile", harness.DIGITS, "-o", tmp_path / "m.pt2", "--skip", "find_attentions")
    harness.assert_refused(done, "there is no pass 'find_attentions'", "dead_code", *PASSES, code=402)


class Branches(torch.nn.Module):
    """Attention whose hidden rows are NaN, and a slice of a large value, in a branch."""

    def forward(self, q, k, v, mask, choice):
        def hidden(q, k, v, mask):
            return (q @ k.transpose(-1, -2) * 0.25 + mask).softmax(-1) @ v

        def sliced(q, k, v, mask):
            return torch.cat([(q.exp() + 1).cumsum(-1)[..., :3], v[..., :1, 3:].expand(2, 3, 49, 13)], -1)

        return torch.cond(choice.sum() > 0, hidden, sliced, (q, k, v, mask))


def test_passes_run_inside_of_regions(tmp_path):
    torch.manual_seed(0)
    mask = torch.where(torch.arange(49)[:, None] == 4, -torch.inf, torch.randn(2, 1, 49, 9))
    args = (torch.randn(2, 3, 49, 16), torch.randn(2, 3, 9, 16), torch.randn(2, 3, 9, 16), mask, torch.ones(1))
    stages = dumps(exported(Branches(), args, tmp_path), tmp_path, "--target", "cpu:x86-64-v3")
    assert "= attention " not in stages["loops_lowered"] and "masked rows NaN" in stages["loops"]
    model = Branches()
    for choice in (torch.ones(1), -torch.ones(1)):
        inputs = (*args[:4], choice)
        np.savez(tmp_path / "in.npz", **{f"in_{i}": x.numpy() for i, x in enumerate(inputs)})
        harness.coil_ok("run", tmp_path / "m.pt2", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        with torch.no_grad():
            expected = model(*inputs)
        harness.compare(harness.load_outputs(tmp_path / "out.npz"), [expected.numpy()], 1e-4)
