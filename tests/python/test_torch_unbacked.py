"""torch.compile of programs whose inputs' sizes are marked as unbacked (torch._dynamo.decorators.mark_unbacked): no size of the first call is a guard, and no
question about a size has an answer while the program is made. Each call tells them, so coil compiles what it does for other dynamic sizes, 0 included."""

import pytest
import torch
import torch.nn.functional as F

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")

W = torch.randn(6, 6)
# Name -> (function, makes its inputs for a size that the call decides, that input's dimensions which are marked).
PROGRAMS = {
    "product": (lambda x, w: (x @ w).relu().sum(0), lambda n: (torch.randn(n, 6), W), (0,)),
    "layer norm": (lambda x, w: F.layer_norm(x, (6,)) @ w, lambda n: (torch.randn(n, 6), W), (0,)),
    "softmax": (lambda x, w: x.softmax(0) * x.shape[0] + w[0], lambda n: (torch.randn(n, 6), W), (0,)),
    "joined": (lambda x, w: torch.cat([x, x * 2, w]).cumsum(0), lambda n: (torch.randn(n, 6), W), (0,)),
    "attention": (lambda x, w: F.scaled_dot_product_attention(x, x, x) + w[0, 0], lambda n: (torch.randn(n, 2, 5, 4), W), (0,)),
    "convolution": (lambda x, w: F.conv2d(x, w.view(2, 3, 2, 3)), lambda n: (torch.randn(n, 3, 6, 7), torch.randn(36)), (0,)),
    "two sizes": (lambda x, w: (x * 2).transpose(0, 1).contiguous().view(-1) + w[0, 0], lambda n: (torch.randn(n, n + 1), W), (0, 1)),
    "rows of a table": (lambda x, w: F.embedding(torch.tensor([0, 1, 1]), x).relu() @ w, lambda n: (torch.randn(n + 2, 6), W), (0,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name):
    function, inputs_of, marked = PROGRAMS[name]
    f = torch.compile(function, backend="coil", fullgraph=True)
    before = coil.compile_stats().fallbacks.copy()
    for n in (4, 9, 1, 0, 33):
        inputs = inputs_of(n)
        ours, theirs = ([t.clone().requires_grad_() for t in inputs] for _ in range(2))
        for d in marked:
            torch._dynamo.decorators.mark_unbacked(ours[0], d)
        found, expected = f(*ours), function(*theirs)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        gradients = [torch.autograd.grad(y.cos().sum(), x) for y, x in ((found, ours), (expected, theirs))]
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4, check_stride=False)
    left = set(coil.compile_stats().fallbacks) - set(before)
    assert not [reason for reason in left if "_assert_scalar" not in reason], left
    assert coil.compile_stats().graphs == 2, "a size was a guard"
