"""What a program does not use is not computed (src/loop/demanded_ranges.h): what that leaves of a program, and what it must not take from it.
Results against eager: the zoo's range_* programs, on both targets."""

import re

import numpy as np
import pytest

import capi
import harness

LIBRARY = harness.BUILD / "libcoil_runtime.so"


def exported(module, args, path, dynamic=None):
    import torch

    torch.export.save(torch.export.export(module.eval(), args, dynamic_shapes=dynamic), path)
    return path


def vit():
    import torch

    class Vit(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
            self.encoder, self.head = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.encoder(x)[:, 0])

    return Vit()


def loops(path, tmp_path, *options):
    """The sizes of what templates compute: {buffer: text}"""
    folder = tmp_path / f"dump{len(options)}"
    harness.coil_ok("compile", path, "-o", tmp_path / f"{len(options)}.pt2", *options, env=harness.os.environ | {"COIL_DUMP": str(folder)})
    text = next(folder.glob("*_loops.txt")).read_text()
    return dict(re.findall(r"^(\w+): \w+\[(.*?)\] = (?:gemm|attention)", text, re.M))


@pytest.mark.parametrize("batch", [1, 3, None])
def test_the_last_layer_has_one_query(tmp_path, batch):
    import torch

    dynamic = None if batch else ({0: torch.export.Dim("batch", min=2, max=64)},)
    path = exported(vit(), (torch.randn(batch or 2, 17, 64),), tmp_path / "vit.pt2", dynamic)
    whole, part = loops(path, tmp_path, "--skip", "demanded_ranges"), loops(path, tmp_path)
    assert whole.keys() == part.keys() and sum(bool(re.search("17|51", sizes)) for sizes in whole.values()) == 10
    assert sum(bool(re.search("17|51", sizes)) for sizes in part.values()) == 6, part  # the first layer's five and the second one's keys and values
    x = np.random.default_rng(0).standard_normal((batch or 5, 17, 64)).astype(np.float32)
    a, b = (capi.Model(LIBRARY, tmp_path / f"{n}.pt2").run(x)[0] for n in (2, 0))
    assert np.allclose(a, b, atol=1e-5)


def test_random_numbers_are_those_of_the_whole(tmp_path):
    import torch

    class Drawn(torch.nn.Module):
        def forward(self, x):
            noise = torch.rand(40, 30)
            dropped = torch.nn.functional.dropout(x, 0.5, training=True)
            return (noise + x)[7], (torch.randn(40, 30) * x)[:, 3:9], dropped[5:8], torch.rand(4)

    path = exported(Drawn(), (torch.randn(40, 30),), tmp_path / "drawn.pt2")
    x = np.ones((40, 30), np.float32)
    results = []
    for options in ([], ["--skip", "demanded_ranges"]):
        harness.coil_ok("compile", path, "-o", tmp_path / "d.pt2", *options)
        model = capi.Model(LIBRARY, tmp_path / "d.pt2")
        results.append([model.run(x), model.run(x)])
    for part, whole in zip(*results):
        assert all(np.array_equal(a, b) for a, b in zip(part, whole))
    assert not np.array_equal(results[0][0][0], results[0][1][0])


def test_wrong_positions_are_refused_though_nobody_reads_there(tmp_path):
    import torch

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(10, 8)

        def forward(self, i, x):
            return self.table(i).exp()[:, 0], torch.cat([self.table(i).flatten(0, 1), x.exp()])[30:32]

    path = exported(First(), (torch.zeros(2, 9, dtype=torch.int64), torch.randn(20, 8)), tmp_path / "first.pt2")
    inputs = tmp_path / "in.npz"
    positions = np.zeros((2, 9), np.int64)
    for last, refused in ((9, False), (10, True)):
        positions[1, 8] = last
        np.savez(inputs, in_0=positions, in_1=np.zeros((20, 8), np.float32))
        done = harness.coil("run", path, "--input", inputs, "--output", tmp_path / "out.npz")
        assert (done.returncode != 0) == refused, done.stderr
        if refused:
            harness.assert_refused(done, "10")


def test_what_is_written_is_whole(tmp_path):
    import torch

    class Written(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(6, 5))

        def forward(self, x):
            y = x.exp() + self.seen
            self.seen.copy_(y)
            x.mul_(2)
            return y[2] + x[1]

    module = Written()
    path = exported(module, (torch.randn(6, 5),), tmp_path / "written.pt2")
    harness.coil_ok("compile", path, "-o", tmp_path / "w.pt2")
    model = capi.Model(LIBRARY, tmp_path / "w.pt2")
    for _ in range(2):
        x = torch.randn(6, 5)
        given = x.numpy().copy()
        expected = module(x).numpy()
        assert np.allclose(model.run(given)[0], expected, atol=1e-6) and np.array_equal(given, x.numpy())


@pytest.mark.parametrize("k,largest", [(1, True), (1, False), (2, True)])
def test_the_largest_of_some_rows(tmp_path, k, largest):
    """The one of six was looked for among one, where some rows alone are read."""
    import torch

    class Best(torch.nn.Module):
        def forward(self, x):
            return x.topk(k, 1, largest=largest).values[1:2], (x * 2).topk(k, 1, largest=largest).indices[:, :, 3:5]

    path = exported(Best(), (torch.zeros(4, 6, 33),), tmp_path / "best.pt2")
    harness.coil_ok("compile", path, "-o", tmp_path / "b.pt2")
    x = torch.randn(4, 6, 33, generator=torch.Generator().manual_seed(0))
    for got, want in zip(capi.Model(LIBRARY, tmp_path / "b.pt2").run(x.numpy()), Best()(x)):
        assert np.array_equal(got, want.numpy())


def test_values_of_one_column(tmp_path):
    """Attention whose values have one column where queries and keys have more, and some of whose queries are read."""
    import torch

    class Few(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)[:, :, :3]

    draw = torch.Generator().manual_seed(0)
    args = tuple(torch.randn(2, 3, n, width, generator=draw) for n, width in ((17, 8), (17, 8), (17, 1))) + (torch.randn(17, 17, generator=draw),)
    harness.coil_ok("compile", exported(Few(), args, tmp_path / "few.pt2"), "-o", tmp_path / "f.pt2")
    (got,) = capi.Model(LIBRARY, tmp_path / "f.pt2").run(*[a.numpy() for a in args])
    assert np.allclose(got, Few()(*args).numpy(), atol=1e-5)
