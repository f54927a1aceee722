"""A program whose logits a test chooses: those after token t are row t % rows of a table. It keeps the tokens by place, so that it has a state. And what
compares the tokens that an emulated device chooses of them with those that the host chooses: `python sampled_table.py PACKAGE CASES.json` in a process with the
emulated driver."""

import json
import sys

import numpy as np

CONTEXT = 64
HOST_BEST = 33  # more of the most likely tokens than a device finds (cd::kSampleBest): the host chooses


def logits_of(kind, rows, vocabulary, seed):
    """Random rows, of which some have ties, tokens that cannot come, and infinities."""
    random = np.random.default_rng(seed)
    table = (random.standard_normal((rows, vocabulary)) * 4).astype(np.float32)
    if kind == "ties":
        table = np.round(table / 2)
        table[table == 0] = np.where(random.random((table == 0).sum()) < 0.5, 0.0, -0.0)
    elif kind == "never":
        table[random.random(table.shape) < 0.7] = -np.inf
        table[:, vocabulary // 2] = 1
    elif kind == "equal":
        table[:] = 0.25
    elif kind == "infinite":
        table[:, random.integers(0, vocabulary, 3)] = np.inf
    elif kind == "far":
        table *= 1e4
    return table


def export(table, logits, path, form="places"):
    """form: "places" [n] beside tokens [1, n]; the same as "int32"; "start": the first token's place, a number of the host's; "tensor": that as a tensor; "single":
    one token at a time."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.from_numpy(table).to(logits))
            self.register_buffer("cache", torch.zeros(CONTEXT))

        def forward(self, tokens, places):
            rows = places.long() if form in ("places", "int32", "single") else places + torch.arange(tokens.shape[1])
            self.cache.index_copy_(0, rows, tokens[0].float())
            return self.table[tokens.long() % self.table.shape[0]]

    n, count, dtype = torch.export.Dim("n", min=1, max=CONTEXT), 1 if form == "single" else 3, torch.int32 if form == "int32" else torch.int64
    places = 0 if form == "start" else torch.tensor(0) if form == "tensor" else torch.arange(count, dtype=dtype)
    dynamic = {"start": ({1: n}, torch.export.Dim.DYNAMIC), "tensor": ({1: n}, None), "single": None}.get(form, ({1: n}, {0: n}))
    torch.export.save(torch.export.export(Table(), (torch.zeros(1, count, dtype=dtype), places), dynamic_shapes=dynamic), path)


def export_slots(table, dtype, slots, path):
    """The same for several conversations in a call."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.from_numpy(table).to(dtype))
            self.register_buffer("cache", torch.zeros(slots, CONTEXT))

        def forward(self, tokens, places):
            self.cache[torch.arange(slots)[:, None], places] = tokens.float()
            return self.table[tokens % self.table.shape[0]]

    n = torch.export.Dim("n", min=1, max=CONTEXT)
    example = (torch.zeros(slots, 3, dtype=torch.int64), torch.arange(3).expand(slots, 3).contiguous())
    torch.export.save(torch.export.export(Table(), example, dynamic_shapes=({1: n}, {1: n})), path)


def allow_some(tokens, allowed):
    """What a caller may allow: no multiple of three at every third place."""
    if len(tokens) % 3 == 0:
        for t in range(0, len(allowed), 3):
            allowed[t] = 0


def conversation_of(generator, case, watched):
    import coil.llm

    options = dict(case["sampling"])
    options["bias"] = {int(t): b for t, b in options.get("bias", {}).items()}
    if case.get("allow"):
        options["allow"] = allow_some
    talk = generator.conversation(case["prompt"], coil.llm.Sampling(**options))
    talk.watch(watched)
    return talk


def best_of(case):
    """So many of the most likely tokens a device is asked for."""
    return [0, 1, 5, 32][len(case["prompt"] + [case["count"]] + list(case["sampling"])) % 4]


def tokens_together(generator, cases, watched, most=2):
    """The tokens of all cases, step by step in as few calls as there can be, and the chances of the last ones."""
    talks = [conversation_of(generator, case, watched) for case in cases]
    wanted = [len(case["prompt"]) + case["count"] for case in cases]
    while left := [k for k, talk in enumerate(talks) if len(talk.tokens) < wanted[k]]:
        for step in generator.step([talks[k] for k in left], most):
            if isinstance(step, Exception):
                raise step
    return [[talk.tokens[len(case["prompt"]):], "", shown(talk)] for talk, case in zip(talks, cases)]


def shown(talk):
    return [[list(chosen), [list(b) for b in best]] for chosen, best in talk.chances]


def same_chances(host, device, best):
    """Whether a device's are the host's, to the bit."""
    return len(host) == len(device) and all(h[0] == d[0] and h[1][:best] == d[1] for h, d in zip(host, device))


def tokens_of(generator, case, watched, steps=0):
    """The tokens of a case, the error, and the chances; conversations that are watched for HOST_BEST have the host choose."""
    import coil

    talk = conversation_of(generator, case, watched)
    try:
        talk.generate(case["count"], stop=case.get("stop", []), steps=steps)
    except coil.Error as error:
        return [talk.tokens[len(case["prompt"]):], str(error), shown(talk)]
    return [talk.tokens[len(case["prompt"]):], "", shown(talk)]


def main():
    import coil.llm

    generator = coil.llm.Generator(coil.load(sys.argv[1], "cuda"))
    assert generator._generator.chooses
    with open(sys.argv[2]) as file:
        cases = json.load(file)
    results = []
    if generator.conversations_per_call > 1:
        host, device, alone = tokens_together(generator, cases, HOST_BEST), tokens_together(generator, cases, 4), [tokens_of(generator, case, None) for case in cases]
        assert all(same_chances(h[2], d[2], 4) for h, d in zip(host, device)), (host, device)
        results = [{"host": h[:2], "device": [d[:2], a[:2]]} for h, d, a in zip(host, device, alone)]
        cases = []
    for case in cases:
        host, best = tokens_of(generator, case, HOST_BEST), best_of(case)
        device = [tokens_of(generator, case, None, steps) for steps in case.get("steps", [0, 1])]
        watched = [tokens_of(generator, case, best, steps) for steps in case.get("steps", [0, 1])]
        assert all(w[0] == host[0] and same_chances(host[2], w[2], best) for w in watched), (case, host, watched)
        assert all(not d[2] for d in device)
        results.append({"host": host[:2], "device": [d[:2] for d in device], "watched": [w[:2] for w in watched]})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
