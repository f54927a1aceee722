"""Random programs as plain data: made from a seed, run by PyTorch, exported, shrunk.

{"inputs": [{"shape", "dtype", "layout", "seed", "dynamic", "special"}], "steps": [[operator, numbers of values, parameters]], "outputs": [numbers of values]}.
Values are the inputs, then the steps' results.
"""

import random

import torch

import operators

LAYOUTS = ["dense", "dense", "transposed", "expanded", "sliced", "offset", "reversed", "rows"]
SIZES = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 8, 9, 15, 16, 17, 32, 33, 65]
SPECIAL = [float("nan"), float("inf"), float("-inf"), -0.0]
MOST_ELEMENTS = 20_000


def make_input(given):
    """The tensor that an input stands for: small numbers of eighths, so that most of the arithmetic is exact; "special": some that are no numbers."""
    generator = torch.Generator().manual_seed(given["seed"])
    shape, dtype, layout = given["shape"], getattr(torch, given["dtype"]), given["layout"]

    def fill(sizes):
        if dtype is torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        low = 0 if dtype is torch.uint8 else -8
        if dtype.is_floating_point:
            numbers = torch.randint(-16, 17, sizes, generator=generator) / 8
            if given.get("special") and numbers.numel():
                some = torch.randint(0, numbers.numel(), (min(4, numbers.numel()),), generator=generator)
                numbers.view(-1)[some] = torch.tensor(SPECIAL[: len(some)])
            return numbers.to(dtype)
        return torch.randint(low, 9, sizes, generator=generator).to(dtype)

    if layout == "transposed" and len(shape) >= 2:
        return fill([*shape[:-2], shape[-1], shape[-2]]).mT
    if layout == "reversed" and len(shape) >= 2:
        return fill(shape[::-1]).permute(*range(len(shape) - 1, -1, -1))
    if layout == "rows" and len(shape) >= 2:
        return fill([2 * shape[0] + 1, *shape[1:]])[1::2]
    if layout == "expanded" and shape:
        return fill([1, *shape[1:]]).expand(shape)
    if layout == "sliced" and shape:
        return fill([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if layout == "offset" and shape:
        return fill([*shape[:-1], shape[-1] + 3])[..., 3:]
    return fill(shape)


def run(program, inputs, wide=False, dense=False):
    """All values. wide: with all floats in double precision, those that come of integers as well. dense: each step gets copies without strides of their own."""
    values, usual = list(inputs), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else usual)
        for name, args, parameters in program["steps"]:
            if wide and name == "to" and parameters[0] in operators.FLOATS:
                parameters = ["float64"]
            given = (values[i].clone(memory_format=torch.contiguous_format) if dense else values[i] for i in args)
            values.append(operators.TABLE[name][0](*given, *parameters))
    finally:
        torch.set_default_dtype(usual)
    return values


def widened(inputs):
    return [t.double() if t.is_floating_point() else t for t in inputs]


def is_exact(value, wide):
    """Whether nothing was rounded on the way to this value."""
    return value.shape == wide.shape and (torch.equal(value, wide) if not value.is_floating_point() else torch.equal(value.double().nan_to_num(9e9), wide.double().nan_to_num(9e9)))


def is_sure(name, parameters, args, wide, value):
    """Whether rounding cannot have decided a step's result: nothing before an operator that jumps was rounded, an integer can hold what becomes one."""
    if operators.TABLE[name][2] and not all(is_exact(a, w) for a, w in zip(args, wide)):
        return False
    if name == "to" and not value.is_floating_point() and value.dtype is not torch.bool and args[0].is_floating_point():
        limits, v = torch.iinfo(value.dtype), args[0].double()
        return bool(((v >= limits.min) & (v <= min(limits.max, 2**53))).all())
    return True


def are_sure(program, values, wide):
    """The same of all steps."""
    first = len(program["inputs"])
    return all(is_sure(name, parameters, [values[i] for i in args], [wide[i] for i in args], values[first + k]) for k, (name, args, parameters) in enumerate(program["steps"]))


def tells_zeros(program):
    """Whether a number that a Fourier transform gave becomes true or false: what is exactly 0 in one order of additions may be next to it in another."""
    first, inexact = len(program["inputs"]), set()
    for k, (name, args, parameters) in enumerate(program["steps"]):
        if name.startswith("fft") or inexact & set(args):
            if name == "to" and parameters[0] == "bool":
                return True
            inexact.add(first + k)
    return False


def transforms_infinities(program, values):
    """Whether a Fourier transform gets what is no number: which of its results are infinite and which are none depends on the order of its steps. Eager's
    attention by blocks gives 0 or NaN for a query whose scores are none, as its vectors happen to lie; its attention by products always gives NaN."""
    return any(("fft" in name or "attention" in name) and not all(values[i].isfinite().all() for i in args) for name, args, _ in program["steps"])


def shaken(program, inputs, values, seed):
    """All values in double precision, where operators that round by their nature get arguments that are off by the last digit of the arguments' types:
    that such a result is exact, 0 say, is chance. What lies as far from the true value may come out of another order of the same additions."""
    generator = torch.Generator().manual_seed(seed)

    def off(t, i, name):
        eps = torch.finfo(values[i].dtype if values[i].is_floating_point() else usual).eps  # integers become such numbers first
        t = t.double()
        # What a transform rounds is as large as the largest of its numbers.
        size = t.abs().max() if "fft" in name and t.numel() else t
        return t + size * eps * (2 * torch.rand(t.shape, generator=generator, dtype=torch.float64) - 1)

    wide, usual = widened(inputs), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        for (name, args, parameters), value in zip(program["steps"], values[len(inputs):], strict=True):
            parameters = ["float64"] if name == "to" and parameters[0] in operators.FLOATS else parameters
            result = operators.TABLE[name][0](*(wide[i] for i in args), *parameters)
            if operators.rounds(name):
                other = operators.TABLE[name][0](*(off(wide[i], i, name) for i in args), *parameters)
                unsure = (other - result).abs() >= 0.5 * torch.maximum(other.abs(), result.abs())
                result = torch.where(unsure, 0.0, other) if seed % 2 else other  # what has no sure digit may be 0 as well
                result = torch.where(result == 0, 0.0 if seed % 4 < 2 else -0.0, result)  # of either sign
                if seed == 6:  # and what is next to an eighth, of which the inputs are, may be one: a power of a negative number is a number then
                    exact = (result * 8).round() / 8
                    result = torch.where((exact - result).abs() <= 64 * torch.finfo(value.dtype).eps * (1 + result.abs()), exact, result) if value.is_floating_point() else result
            wide.append(result)
    finally:
        torch.set_default_dtype(usual)
    return wide


def resized(program):
    """The program with other sizes in its dynamic dimensions, or None."""
    if not any(x["dynamic"] for x in program["inputs"]):
        return None
    return {**program, "inputs": [{**x, "shape": [n + 2 if d in x["dynamic"] else n for d, n in enumerate(x["shape"])]} for x in program["inputs"]]}


def generate(seed):
    rng = random.Random(seed)
    inputs = []
    common = [rng.choice(SIZES) for _ in range(3)]
    favourite = rng.choice(operators.DTYPES)
    for number in range(rng.randint(1, 3)):
        shape = [rng.choice(common) if rng.random() < 0.75 else rng.choice(SIZES) for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4]))]
        while torch.Size(shape).numel() > MOST_ELEMENTS // 4:
            shape.pop()
        dtype = favourite if rng.random() < 0.6 else rng.choice(operators.DTYPES)
        dynamic = [d for d, n in enumerate(shape) if n >= 2 and rng.random() < 0.25] if seed % 3 == 0 else []
        inputs.append({"shape": shape, "dtype": dtype, "layout": "dense" if dynamic else rng.choice(LAYOUTS), "seed": rng.randrange(1 << 30), "dynamic": dynamic, "special": rng.random() < 0.08})
    program = {"inputs": inputs, "steps": [], "outputs": []}
    values = [make_input(i) for i in inputs]
    wide = widened(values)
    names, weights = list(operators.TABLE), [row[3] for row in operators.TABLE.values()]
    wanted, tries = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 12]), 0
    while len(program["steps"]) < wanted and tries < 200:
        tries += 1
        name = rng.choices(names, weights)[0]
        function, choose, _, _ = operators.TABLE[name]
        try:
            args, parameters = choose(operators.Chooser(rng, values))
            value = function(*(values[i] for i in args), *parameters)
            broad = function(*(wide[i] for i in args), *(["float64"] if name == "to" and parameters[0] in operators.FLOATS else parameters))
        except Exception:  # not a choice that PyTorch takes
            continue
        if not isinstance(value, torch.Tensor) or value.numel() > MOST_ELEMENTS or value.dim() > 6 or value.is_complex():
            continue
        if not is_sure(name, parameters, [values[i] for i in args], [wide[i] for i in args], value):
            continue
        program["steps"].append([name, args, parameters])
        values.append(value)
        wide.append(broad)
    used = {i for _, args, _ in program["steps"] for i in args}
    first = len(inputs)
    program["outputs"] = [i for i in range(first, len(values)) if i not in used or rng.random() < 0.2]
    return program


class Module(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, *inputs):
        values = run(self.program, inputs)
        return tuple(values[i] for i in self.program["outputs"])


def cut(program, keep):
    """The program with these outputs, without what they do not need."""
    count = len(program["inputs"])
    needed = set(keep)
    for number in reversed(range(len(program["steps"]))):
        if count + number in needed:
            needed.update(program["steps"][number][1])
    order = sorted(needed)
    place = {old: new for new, old in enumerate(order)}
    return {"inputs": [program["inputs"][i] for i in order if i < count],
            "steps": [[name, [place[a] for a in args], parameters] for number, (name, args, parameters) in enumerate(program["steps"]) if count + number in needed],
            "outputs": [place[i] for i in keep]}


def smaller(program, shapes):
    """Simpler programs, boldest first; `shapes`: (shape, dtype) of all values."""
    outputs, count = program["outputs"], len(program["inputs"])
    for i in outputs:
        if len(outputs) > 1:
            yield cut(program, [i])
    for number in range(len(program["steps"]) - 1):  # a result becomes an input
        shape, dtype = shapes[count + number]
        new = {"shape": shape, "dtype": dtype, "layout": "dense", "seed": number, "dynamic": [], "special": False}
        value = count + number
        move = {**{i: i for i in range(count)}, value: count, **{i: i + 1 if i < value else i for i in range(count, len(shapes)) if i != value}}
        steps = [[name, [move[a] for a in args], p] for k, (name, args, p) in enumerate(program["steps"]) if k != number]
        yield cut({"inputs": [*program["inputs"], new], "steps": steps, "outputs": [move[i] for i in outputs]}, [move[i] for i in outputs])
    for number, step in enumerate(program["steps"]):  # an earlier value instead of the last result
        if count + number in outputs:
            for a in step[1]:
                if a >= count:
                    yield cut(program, [a])
    for k, given in enumerate(program["inputs"]):
        for change in ({"dynamic": []}, {"layout": "dense"}, {"special": False}):
            if any(given.get(key, value) != value for key, value in change.items()):
                yield {**program, "inputs": [{**x, **change} if j == k else x for j, x in enumerate(program["inputs"])]}


def source(program):
    """As text, for people."""
    lines = [f"v{i} = input({x['shape']}, {x['dtype']}, {x['layout']}{', dynamic ' + str(x['dynamic']) if x['dynamic'] else ''}{', special' if x.get('special') else ''})" for i, x in enumerate(program["inputs"])]
    for i, (name, args, parameters) in enumerate(program["steps"], len(program["inputs"])):
        lines.append(f"v{i} = {name}({', '.join([f'v{a}' for a in args] + [repr(p) for p in parameters])})")
    return "\n".join([*lines, "return " + ", ".join(f"v{i}" for i in program["outputs"])])
