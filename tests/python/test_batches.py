"""Several conversations in one call of a program: tokens, errors, copies, saved ones; and the endpoint on such a program."""

import threading

import batched_decoder
import pytest
import torch

import coil
import coil.llm
import harness
from coil.llm._batch import Batch, Request
from tiny_decoder import CONTEXT, PROMPT, decoder, greedy, tiny

SLOTS = 4


def package_of(folder, *kinds, slots=SLOTS, module=None):
    """kinds: (name, tokens of a call, how caches are written)."""
    files = []
    for name, tokens, write in kinds:
        batched_decoder.export(module or tiny(), folder / f"{name}.export.pt2", slots, tokens, write)
        files.append(f"{name}={folder / f'{name}.export.pt2'}")
    sources = files if len(files) > 1 else [files[0].split("=", 1)[1]]
    harness.coil_ok("compile", *sources, "-q", "-o", folder / "batched.pt2")
    return folder / "batched.pt2"


KINDS = {"any": [("step", None, "put")], "single": [("step", 1, "put")], "where": [("step", 1, "where")], "two": [("prefill", 8, "put"), ("decode", 1, "put")]}


@pytest.fixture(scope="module", params=sorted(KINDS))
def package(request, tmp_path_factory):
    return package_of(tmp_path_factory.mktemp(request.param), *KINDS[request.param])


@pytest.fixture
def generator(package):
    return coil.llm.Generator(package, tokenizer="bytes")


PROMPTS = [PROMPT, [65], list(range(40, 57)), [90, 91]]
MADE = 6


def test_tokens_are_eagers(generator):
    assert generator.conversations_per_call == SLOTS
    for prompt in PROMPTS:
        assert generator.conversation(prompt).generate(MADE) == greedy(tiny(), prompt, MADE)


def stepped(generator, talks, count, most=0):
    """Steps all until each has `count` new tokens; how many steps it took."""
    left, steps = {i: [] for i in range(len(talks))}, 0
    while any(len(made) < count for made in left.values()):
        chosen = [i for i, made in left.items() if len(made) < count]
        for i, token in zip(chosen, generator.step([talks[i] for i in chosen], most)):
            assert token is None or isinstance(token, int), token
            if token is not None:
                left[i].append(token)
        steps += 1
    return list(left.values()), steps


@pytest.mark.parametrize("most", [0, 1, 3])
def test_together_as_alone(generator, most):
    want = [greedy(tiny(), p, MADE) for p in PROMPTS]
    talks = [generator.conversation(p) for p in PROMPTS]
    made, steps = stepped(generator, talks, MADE, most)
    assert made == want
    if generator.tokens_per_call > 1 and most == 0:
        assert steps <= MADE + 2
    # Later ones join while others are under way.
    first = generator.conversation(PROMPTS[0])
    generator.step([first])
    rest = [generator.conversation(p) for p in PROMPTS[1:]]
    while len(first.tokens) < len(PROMPTS[0]) + MADE or any(len(t.tokens) < len(p) + MADE for t, p in zip(rest, PROMPTS[1:])):
        generator.step([first, *rest], most)
    assert first.tokens[len(PROMPTS[0]):][:MADE] == want[0]
    assert [t.tokens[len(p):][:MADE] for t, p in zip(rest, PROMPTS[1:])] == want[1:]


def test_more_than_slots(generator):
    """States are made as they are needed, and given back."""
    prompts = [[40 + k, 41 + k] for k in range(3 * SLOTS)]
    made, _ = stepped(generator, [generator.conversation(p) for p in prompts], 4)
    assert made == [greedy(tiny(), p, 4) for p in prompts]


def test_sampling_is_each_ones_own(generator):
    samplings = [coil.llm.Sampling(temperature=1.5, seed=s, top_k=20) for s in range(SLOTS)]
    alone = [generator.conversation(PROMPT, s).generate(MADE) for s in samplings]
    together, _ = stepped(generator, [generator.conversation(PROMPT, s) for s in samplings], MADE)
    assert together == alone and len(set(map(tuple, alone))) > 1


def test_slots_are_cleared_and_reused(generator):
    want = greedy(tiny(), PROMPT, MADE)
    for _ in range(3 * SLOTS):
        talk = generator.conversation([1, 2, 3])
        talk.generate(2)
        del talk
        assert generator.conversation(PROMPT).generate(MADE) == want


def test_idle_conversations_are_left_alone(generator):
    """One rests at every length while another goes on in the same state."""
    want = greedy(tiny(), PROMPT, 8)
    resting = generator.conversation(PROMPT)
    for k in range(8):
        other = generator.conversation([k + 70])
        other.generate(3)
        assert resting.generate(1) == [want[k]]


def test_forked_truncated_saved(generator, package):
    want = greedy(tiny(), PROMPT, 8)
    talk = generator.conversation(PROMPT)
    talk.generate(3)
    other = talk.fork()
    other.append([65])
    assert other.generate(3) == greedy(tiny(), PROMPT + want[:3] + [65], 3)
    saved = talk.save()
    assert talk.generate(5) == want[3:]
    talk.truncate(len(PROMPT) + 1)
    assert talk.tokens == PROMPT + want[:1] and talk.generate(4) == want[1:5]
    fresh = coil.llm.Generator(package)
    fillers = [fresh.conversation([k]) for k in range(2)]  # another slot
    restored = fresh.conversation()
    restored.restore(saved)
    assert restored.generate(5) == want[3:]
    assert len(fillers) == 2
    for damaged in (saved[:-1], saved[:60], b"x" + saved[1:], saved + b"0"):
        with pytest.raises(coil.InputError, match="E213"):
            restored.restore(damaged)
    assert restored.tokens == PROMPT + want


def test_one_fails_alone(generator):
    """Caches that are full, empty conversations, rules that nothing fulfils: the others get their tokens."""
    full = generator.conversation(list(range(30, 30 + CONTEXT)) + [1])
    well, none = generator.conversation(PROMPT), generator.conversation()
    forbids = generator.conversation(PROMPT, coil.llm.Sampling(allow=lambda tokens, allowed: allowed.cast("B").__setitem__(slice(None), bytes(256))))
    want = greedy(tiny(), PROMPT, MADE)
    made = []
    for _ in range(60):
        results = generator.step([full, well, none, forbids])
        made += [results[1]] if isinstance(results[1], int) else []
        if len(made) >= MADE and results[0] is not None:
            break
    assert made[:MADE] == want
    assert isinstance(results[0], coil.InputError) and "caches are full" in str(results[0])
    assert isinstance(results[2], coil.InputError) and "empty" in str(results[2])
    assert isinstance(results[3], coil.InputError) and "allowed" in str(results[3])
    full.truncate(CONTEXT - 2)
    assert full.generate(1) == greedy(tiny(), list(range(30, 30 + CONTEXT - 2)), 1), "it stays usable"
    assert isinstance(generator.step([well, well])[1], coil.OptionError)


def test_threads(generator):
    results = {}

    def talk(k):
        results[k] = generator.conversation([k + 50, k]).generate(MADE)

    threads = [threading.Thread(target=talk, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: greedy(tiny(), [k + 50, k], MADE) for k in range(6)}


def test_chances(generator):
    talk = generator.conversation(PROMPT)
    talk.watch(3)
    token = talk.generate(1)[0]
    with torch.no_grad():
        want = tiny()(torch.tensor([PROMPT]))[0, -1].log_softmax(-1)
    (chosen, chance), best = talk.chances[0]
    assert chosen == token and abs(chance - float(want[token])) < 1e-4
    assert [t for t, _ in best] == want.topk(3).indices.tolist()
    assert all(abs(c - float(want[t])) < 1e-4 for t, c in best)
    talk.watch(None)
    talk.generate(1)
    assert talk.chances == []


def test_ordinary_programs_step_too(tmp_path):
    decoder.export(tiny(), tmp_path / "one.export.pt2")
    harness.coil_ok("compile", tmp_path / "one.export.pt2", "-q", "-o", tmp_path / "one.pt2")
    generator = coil.llm.Generator(tmp_path / "one.pt2")
    assert generator.conversations_per_call == 1
    for most in (0, 2):
        made, _ = stepped(generator, [generator.conversation(p) for p in PROMPTS], MADE, most)
        assert made == [greedy(tiny(), p, MADE) for p in PROMPTS]


class NoPlaces(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 5))

    def forward(self, ids):
        self.seen.add_(1)
        return ids[..., None] * torch.ones(16) + self.seen[:, :1, None]


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, ids, positions):
        self.seen.add_(1)
        return (ids + positions)[..., None] * torch.ones(16) + self.seen[0]


class LastOnly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 5))

    def forward(self, ids, positions):
        self.seen.add_(1)
        return ((ids + positions)[..., None] * torch.ones(16))[:, -1:] + self.seen[:, :1, None]


@pytest.mark.parametrize("module, inputs, text", [(NoPlaces(), 1, "have places"), (Shared(), 2, "not one for each conversation"), (LastOnly(), 2, "no logits for each token")])
def test_other_programs_are_refused(module, inputs, text, tmp_path):
    torch.export.save(torch.export.export(module, (torch.zeros(2, 3, dtype=torch.int64),) * inputs), tmp_path / "m.export.pt2")
    harness.coil_ok("compile", tmp_path / "m.export.pt2", "-q", "-o", tmp_path / "m.pt2")
    with pytest.raises(coil.UnsupportedError, match=text):
        coil.llm.Generator(tmp_path / "m.pt2")


def test_requests_come_and_go(generator):
    """More requests than slots, cancelled ones among them; prompts that go on from earlier texts."""
    batch = Batch(generator)
    try:
        prompts = [[40 + k, 65, 66][: 1 + k % 3] for k in range(3 * SLOTS)]
        requests = [batch.submit(Request(p, MADE, coil.llm.Sampling())) for p in prompts]
        endless = batch.submit(Request([99], 10**6, coil.llm.Sampling(), stop_text=["no such text"]))
        endless.cancel()
        for request, prompt in zip(requests, prompts):
            pieces = list(request.pieces())
            assert "".join(p.text for p in pieces) == coil.llm.Bytes().decode(greedy(tiny(), prompt, MADE))
            assert pieces[-1].reason == "length" and pieces[-1].tokens == MADE
        longer = prompts[1] + greedy(tiny(), prompts[1], MADE) + [70]
        again = list(batch.submit(Request(longer, 3, coil.llm.Sampling())).pieces())
        assert "".join(p.text for p in again) == coil.llm.Bytes().decode(greedy(tiny(), longer, 3))
        with pytest.raises(coil.InputError, match="caches are full"):
            list(batch.submit(Request([1] * (CONTEXT + 2), 3, coil.llm.Sampling())).pieces())
        left = batch.submit(Request(PROMPT, 10, coil.llm.Sampling()))
        for _ in left.pieces():
            break  # nobody wants the rest
        assert left.cancelled
    finally:
        batch.close()
