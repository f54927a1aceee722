"""Random operators: distributions, independence of operators and calls, and the state that makes them repeat."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

import capi
import harness

N = 20000
CASES = {
    "rand": (lambda x: torch.rand_like(x), stats.uniform().cdf),
    "randn": (lambda x: torch.randn_like(x), stats.norm().cdf),
    "randn_f64": (lambda x: torch.randn_like(x, dtype=torch.float64), stats.norm().cdf),
    "uniform": (lambda x: x.clone().uniform_(-2, 3), stats.uniform(-2, 5).cdf),
    "normal": (lambda x: torch.normal(x + 2, 3.0), stats.norm(2, 3).cdf),
    "normal_complex": (lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(-1, 2)).clone().normal_(-2, 4)).flatten(), stats.norm(-2, 8**0.5).cdf),
    "exponential": (lambda x: x.clone().exponential_(2.0), stats.expon(scale=0.5).cdf),
    "cauchy": (lambda x: x.clone().cauchy_(1.0, 2.0), stats.cauchy(1, 2).cdf),
    "log_normal": (lambda x: x.clone().log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=np.exp(0.5)).cdf),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder, models = tmp_path_factory.mktemp("random"), []

    def make(function, *inputs):
        class Net(torch.nn.Module):
            def forward(self, *args):
                return function(*args)

        program, package = folder / f"{len(models)}.pt2", folder / f"{len(models)}.coil.pt2"
        torch.export.save(torch.export.export(Net(), inputs), program)
        harness.coil_ok("compile", program, "-o", package)
        models.append(capi.Model(harness.BUILD / "libcoil_runtime.so", package))
        return models[-1]

    yield make
    for model in models:
        model.close()


@pytest.mark.parametrize("name", CASES)
def test_distribution(name, compiled):
    function, cdf = CASES[name]
    x = np.zeros(N, np.float32)
    (y,) = compiled(function, torch.zeros(N)).run(x)
    assert stats.kstest(y, cdf).pvalue > 1e-4
    assert abs(np.corrcoef(y.argsort().argsort()[:-1], y.argsort().argsort()[1:])[0, 1]) < 0.05  # ranks: the Cauchy distribution has no variance


def test_whole_numbers(compiled):
    model = compiled(lambda x: (torch.randint_like(x, -3, 4), torch.bernoulli(x + 0.3), torch.randperm(500)), torch.zeros(N))
    numbers, coins, permutation = model.run(np.zeros(N, np.float32))
    assert stats.chisquare(np.unique(numbers, return_counts=True)[1]).pvalue > 1e-4
    assert sorted(set(numbers)) == list(range(-3, 4))
    assert set(coins) == {0, 1} and abs(coins.mean() - 0.3) < 0.02
    assert sorted(permutation) == list(range(500)) and list(permutation) != list(range(500))


def test_operators_and_calls_differ(compiled):
    model = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)), torch.zeros(64))
    x = np.zeros(64, np.float32)
    first, second = model.run(x), model.run(x)
    values = [*first, *second]
    for i, a in enumerate(values):
        for b in values[i + 1 :]:
            assert abs(np.corrcoef(a, b)[0, 1]) < 0.6 and not np.array_equal(a, b)
    model.check(model.lib.coil_reset_state(model.model))
    for a, b in zip(model.run(x), first):
        assert np.array_equal(a, b)


def test_one_value_for_all_uses(compiled):
    """What reads a random result twice sees the same numbers, computed again or not."""
    y, z = compiled(lambda x: (lambda r: (r + x, r.sum(0) + x[0]))(torch.rand_like(x)), torch.zeros(50, 8)).run(np.zeros((50, 8), np.float32))
    assert np.allclose(y.sum(0), z, rtol=1e-4)


def test_dropout(compiled):
    model = compiled(lambda x: (F.dropout(x, 0.25, True), F.dropout2d(x, 0.5, True), F.dropout(x, 1.0, True), F.alpha_dropout(x, 0.3, True)), torch.zeros(20, 50, 8, 8))
    x = (np.random.default_rng(0).random((20, 50, 8, 8)) + 0.5).astype(np.float32)
    plain, channels, none, alpha = model.run(x)
    kept = plain != 0
    assert abs(kept.mean() - 0.75) < 0.02 and np.allclose(plain[kept], (x / 0.75)[kept])
    whole = (channels != 0).reshape(1000, 64)
    assert set(whole.mean(1)) == {0, 1} and abs(whole.mean() - 0.5) < 0.1
    assert not none.any()
    normal = model.run(np.random.default_rng(1).standard_normal(x.shape).astype(np.float32))[3]
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03 and alpha.shape == x.shape


def test_multinomial(compiled):
    weights = np.tile(np.array([0.1, 0.0, 0.6, 0.3], np.float32), (3000, 1))
    model = compiled(lambda w: (torch.multinomial(w, 2), torch.multinomial(w, 5, replacement=True)), torch.tensor(weights))
    apart, again = model.run(weights)
    assert (apart[:, 0] != apart[:, 1]).all() and not (apart == 1).any() and not (again == 1).any()
    assert abs((apart[:, 0] == 2).mean() - 0.6) < 0.05
    for value, share in ((0, 0.1), (2, 0.6), (3, 0.3)):
        assert abs((again == value).mean() - share) < 0.03
