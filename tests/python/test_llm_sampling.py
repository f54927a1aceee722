"""Sampling in coil.llm beside the rules of transformers: probabilities, seeds, biases and masks; what a number may not be."""

import numpy as np
import pytest
import torch
from torch import nn

import coil
import coil.llm
from tiny_decoder import compiled

# Sampling, on a model whose logits are a table of the last token's.
V = 40


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Parameter(torch.randn(V, V) * 2)

    def forward(self, ids):
        return self.table[ids]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    n = torch.export.Dim("n", min=1, max=64)
    return coil.llm.Generator(compiled(Table(), (torch.zeros(1, 3, dtype=torch.int64),), ({1: n},), tmp_path_factory.mktemp("table")))


RULES = {
    "temperature": dict(temperature=1.0),
    "hot": dict(temperature=2.5),
    "top_k": dict(temperature=1.0, top_k=5),
    "top_p": dict(temperature=1.0, top_p=0.7),
    "tiny_top_p": dict(temperature=1.0, top_p=1e-6),
    "min_p": dict(temperature=1.0, min_p=0.2),
    "all": dict(temperature=1.5, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
}


def expected(tokens, temperature, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0):
    """Probabilities by transformers' own processors."""
    from transformers.generation import logits_process as rules

    ids, scores = torch.tensor([tokens]), Table().table.detach()[tokens[-1]][None].clone()
    processors = [rules.RepetitionPenaltyLogitsProcessor(repetition_penalty)] if repetition_penalty != 1 else []
    processors.append(rules.TemperatureLogitsWarper(temperature))
    processors += [rules.TopKLogitsWarper(top_k)] if top_k else []
    processors += [rules.TopPLogitsWarper(top_p)] if top_p < 1 else []
    processors += [rules.MinPLogitsWarper(min_p)] if min_p else []
    for p in processors:
        scores = p(ids, scores)
    return torch.softmax(scores[0].double(), 0).numpy()


@pytest.mark.parametrize("rule", RULES)
def test_sampling_follows_the_rules(table, rule):
    tokens, count = [4, 17, 4, 30, 7], 4000
    want = expected(tokens, **RULES[rule])
    found = np.zeros(V)
    for seed in range(count):
        found[table.generate(tokens, 1, coil.llm.Sampling(seed=seed, **RULES[rule]))[0]] += 1
    assert not found[want == 0].any()
    # Five standard deviations of a count.
    assert (np.abs(found - count * want) <= 5 * np.sqrt(count * want * (1 - want)) + 1).all()


def test_seeds_repeat_and_differ(table):
    options = dict(temperature=1.0)
    runs = [table.generate([3], 20, coil.llm.Sampling(seed=seed, **options)) for seed in (1, 1, 2, 2**63 + 5, 2**63 + 5)]
    assert runs[0] == runs[1] != runs[2] and runs[3] == runs[4] != runs[0]


def test_numbers_of_more_than_64_bits(table):
    """Larger than anything there is: they say what the largest number says, and tokens that nobody has do nothing."""
    plain = table.generate([3], 6, coil.llm.Sampling(temperature=1.0, seed=5))
    for sampling in (dict(top_k=2**63), dict(top_k=2**90), dict(seed=2**64 + 5), dict(seed=5 - 2**64), dict(bias={2**70: 9.0, -(2**70): 9.0, -1: 9.0, V: 9.0})):
        assert table.generate([3], 6, coil.llm.Sampling(**{"temperature": 1.0, "seed": 5, **sampling})) == plain
    assert table.generate([3], 6, coil.llm.Sampling(temperature=1.0, seed=5), stop=[2**70, -1], draft=2**70, steps=2**70) == plain
    talk = table.conversation([3], coil.llm.Sampling(temperature=1.0, seed=5))
    assert talk.generate(-(2**70)) == [] and table.step([talk], 2**70) == plain[:1]
    with pytest.raises(coil.OptionError, match="COIL-E402"):
        talk.truncate(2**70)
    with pytest.raises(coil.OptionError, match="COIL-E402"):
        table.conversation([1], coil.llm.Sampling(top_k=-(2**70)))


def test_biases_and_masks(table):
    assert table.generate([3], 5, coil.llm.Sampling(bias={11: 1e4})) == [11] * 5
    seen = []

    def only_even(tokens, allowed):
        seen.append(list(tokens))
        for i in range(1, V, 2):
            allowed[i] = 0

    made = table.generate([3], 8, coil.llm.Sampling(temperature=1.0, allow=only_even))
    assert all(t % 2 == 0 for t in made) and seen[0] == [3] and seen[2] == [3, *made[:2]]
    with pytest.raises(coil.InputError, match="COIL-E210: no token is allowed"):
        table.generate([3], 1, coil.llm.Sampling(allow=lambda tokens, allowed: allowed.__setitem__(slice(None), bytes(V))))
    with pytest.raises(ZeroDivisionError):
        table.generate([3], 1, coil.llm.Sampling(allow=lambda tokens, allowed: 1 // 0))


@pytest.mark.parametrize("wrong", [dict(temperature=-1), dict(temperature=float("nan")), dict(top_p=0.0), dict(top_p=1.5), dict(min_p=1.0), dict(top_k=-1),
                                   dict(repetition_penalty=0.0), dict(bias={1: float("nan")})])
def test_wrong_numbers_are_refused(table, wrong):
    with pytest.raises(coil.OptionError, match="COIL-E402"):
        table.conversation([1], coil.llm.Sampling(**wrong))


def test_text_with_characters_of_several_bytes(table):
    class Codec:
        """Token t is byte 190 + t of the text, whatever that is."""

        def encode(self, text):
            return [b - 190 for b in text.encode()]

        def decode(self, tokens):
            return bytes(190 + t for t in tokens).decode(errors="replace")

    generator = coil.llm.Generator(table.model, tokenizer=Codec())
    sampling = coil.llm.Sampling(temperature=2.0, seed=3)
    pieces = list(generator.stream([5, 2], 30, sampling))
    assert "".join(pieces) == Codec().decode(generator.generate([5, 2], 30, sampling)) and len(pieces) > 1
