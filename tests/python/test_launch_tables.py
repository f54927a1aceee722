"""Long programs, whose calls are rows of tables in the host program, against eager: products and convolutions, sorts and loops between them."""

import pathlib

import pytest

import harness  # noqa: F401  (sets the path of coil)

torch = pytest.importorskip("torch")
import coil  # noqa: E402

F = torch.nn.functional
REPEATS = 40


class Long(torch.nn.Module):
    """`step(value, number)` again and again, each with a weight of its own and a reader that no loop can be joined with."""

    def __init__(self, step, shape, dtype, weights=REPEATS):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.step = step
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype) / 3) for _ in range(weights)])

    def forward(self, x):
        for number, w in enumerate(self.weights):
            x = self.step(x, w, number)
        return x


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def product(x, w, number):
    return norm(x + torch.relu(x @ w))


def plain_product(x, w, number):
    """Nothing behind it that could be an epilogue."""
    return norm(torch.mm(x, w)).sort(number % 2).values


def two_unknown_factors(x, w, number):
    return norm(torch.mm(x, torch.softmax(x, 0).t()) @ x)


def convolution(x, w, number):
    return norm(torch.tanh(F.conv2d(x, w, padding=1)))


def strided_and_grouped(x, w, number):
    return norm(F.conv2d(F.pad(x, (1, 2, 1, 2)), w, stride=1, groups=2)[..., :6, :6])


def weight_of_the_call(x, w, number):
    return norm(F.conv2d(x, torch.sin(x[:1, :, :3, :3]).expand(4, 4, 3, 3), padding=1))


CASES = {
    "products": (product, (8, 8), (4, 8)),
    "plain_products": (plain_product, (8, 8), (4, 8)),
    "two_unknown_factors": (two_unknown_factors, (1,), (4, 8)),
    "convolutions": (convolution, (4, 4, 3, 3), (2, 4, 6, 6)),
    "strided_and_grouped": (strided_and_grouped, (4, 2, 3, 3), (2, 4, 6, 6)),
    "weight_of_the_call": (weight_of_the_call, (1,), (2, 4, 6, 6)),
}


def texts(folder):
    return "".join(p.read_text(errors="replace") for p in pathlib.Path(folder).rglob("*") if p.is_file() and p.suffix in (".cc", ".cpp", ".txt", ".c", ""))


@pytest.mark.parametrize("dtype", [torch.float32])
@pytest.mark.parametrize("case", list(CASES))
def test_rows_compute_what_statements_do(case, dtype, tmp_path):
    """In the program's arena, its constants, inputs and outputs; one thread and two."""
    step, weight, shape = CASES[case]
    torch.manual_seed(1)
    module, x = Long(step, weight, dtype).eval(), torch.randn(shape).to(dtype)
    with torch.no_grad():
        expected = module(x)
        program = torch.export.export(module, (x,))
    model = coil.compile(program, options={"dump": tmp_path})
    assert "launch_all(call" in texts(tmp_path)
    # Forty steps grow the last digit: eager's own distance from float64 says how far.
    with torch.no_grad():
        exact = Long(step, weight, dtype).double()(x.double())
    bound = 4 * (expected.double() - exact).abs().max().item() + (1e-5 if dtype != torch.bfloat16 else 0.05)
    assert (model(x).double() - exact).abs().max().item() <= bound
    model.save(tmp_path / "m.coil.pt2")
    torch.testing.assert_close(coil.load(tmp_path / "m.coil.pt2", num_threads=2)(x), model(x), rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(torch._inductor.aoti_load_package(str(tmp_path / "m.coil.pt2"))(x), model(x), rtol=0, atol=0)
