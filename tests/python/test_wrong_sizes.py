"""Programs whose sizes do not go together: a named error or an answer, never a crash, whatever size is changed."""

import json
import os
import random
import subprocess
import zipfile

import numpy as np
import pytest
import torch

import harness
from harness import COIL, coil_ok

TYPES = {4: np.int32, 5: np.int64, 6: np.float16, 7: np.float32, 8: np.float64, 12: np.bool_}


class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GroupNorm(4, 8)

    def forward(self, x):
        y = self.norm(self.conv(x))
        return torch.cat([y, y * 2], 1).flatten(1), torch.nn.functional.max_pool2d(y, 2)


class Attend(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.q = torch.nn.Embedding(11, 16), torch.nn.Linear(16, 16)

    def forward(self, ids):
        x = self.table(ids)
        q = self.q(x).view(2, 5, 4, 4).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(2, 5, 16), x.sort(-1).values[:, 1:4], x.gather(1, ids[:, :, None])


class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(6, 4))

    def forward(self, at, x):
        self.rows.index_copy_(0, at, x)
        return self.rows.cumsum(0), x.logcumsumexp(1), x[:, 1:].softmax(-1), torch.linalg.solve(self.rows[:4] + torch.eye(4), x.T)


class One(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Two(One):
    def forward(self, x, i):
        return self.function(x, i)


def programs():
    return {"conv": (Conv(), (torch.randn(2, 3, 8, 8),)), "attend": (Attend(), (torch.randint(0, 11, (2, 5)),)), "kept": (Kept(), (torch.tensor([1, 3]), torch.randn(2, 4)))}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("sizes"), {}
    for name, (module, inputs) in programs().items():
        made[name] = folder / f"{name}.pt2"
        torch.export.save(torch.export.export(module.eval(), inputs), made[name])
    return made


def integers(argument):
    """(container, key) of each whole number in an argument."""
    for key, value in argument.items() if isinstance(argument, dict) else enumerate(argument) if isinstance(argument, list) else ():
        if isinstance(value, int) and not isinstance(value, bool) and key in ("as_int", *range(64)):
            yield argument, key
        else:
            yield from integers(value)


def changed(document, dice):
    """Changes one size, all sizes of one value, the number of dimensions of a value, or a number among the arguments."""
    graph = document["graph_module"]["graph"]
    sizes = [s for tensor in graph["tensor_values"].values() for s in tensor["sizes"] if "as_int" in s]
    arguments = [spot for node in graph["nodes"] for given in node["inputs"] for spot in integers(given["arg"])]
    way = dice.random()
    chosen = dice.choice(sizes)
    old = chosen["as_int"]
    new = dice.choice([0, 1, 2, old - 1, old + 1, old // 2, old * 2, old * 3, old + 100])
    if way < 0.1:
        tensor = dice.choice(list(graph["tensor_values"].values()))
        at = dice.randrange(len(tensor["sizes"]) + 1)
        for key, extra in (("sizes", new), ("strides", 1)):
            if dice.random() < 0.5 and tensor[key]:
                del tensor[key][min(at, len(tensor[key]) - 1)]
            else:
                tensor[key].insert(at, {"as_int": max(extra, 0)})
    elif way < 0.3:
        chosen["as_int"] = max(new, 0)
    elif way < 0.7:
        for size in sizes:
            size["as_int"] = max(new, 0) if size["as_int"] == old else size["as_int"]
        for holder, key in arguments if way < 0.5 else ():
            holder[key] = new if holder[key] == old else holder[key]
    else:
        holder, key = dice.choice(arguments)
        holder[key] += dice.choice([-3, -1, 1, 2, 7, 100])


def inputs_of(document, folder):
    graph, arrays, made = document["graph_module"]["graph"], {}, np.random.default_rng(1)
    for spec in document["graph_module"]["signature"]["input_specs"]:
        if "user_input" in spec:
            tensor = graph["tensor_values"][spec["user_input"]["arg"]["as_tensor"]["name"]]
            shape, kind = [s["as_int"] for s in tensor["sizes"]], TYPES[tensor["dtype"]]
            arrays[f"in_{len(arrays)}"] = (made.random(shape) if np.issubdtype(kind, np.floating) else made.integers(0, 2, shape)).astype(kind)
    np.savez(folder / "inputs.npz", **arrays)
    return folder / "inputs.npz"


def run(program, inputs):
    environment = dict(os.environ, COIL_CACHE="off", MALLOC_PERTURB_="77")
    return subprocess.run([COIL, "run", "-O", "0", program, "-i", inputs], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.parametrize("name", ["conv", "attend", "kept"])
def test_a_changed_size_is_an_error_or_an_answer(exported, tmp_path, name):
    dice, refused, whole = random.Random(name), 0, zipfile.ZipFile(exported[name])
    (entry,) = [n for n in whole.namelist() if n.endswith("models/model.json")]
    coil_ok("run", "-O", "0", exported[name], "-i", inputs_of(json.loads(whole.read(entry)), tmp_path))
    tries = int(os.environ.get("COIL_TEST_SIZES", 8))
    for number in range(tries):
        document = json.loads(whole.read(entry))
        changed(document, dice)
        program = tmp_path / f"{number}.pt2"
        with zipfile.ZipFile(program, "w") as out:
            for n in whole.namelist():
                out.writestr(n, json.dumps(document) if n == entry else whole.read(n))
        done = run(program, inputs_of(document, tmp_path))
        assert 0 <= done.returncode < 70, (number, done.returncode, done.stderr)
        refused += done.returncode != 0
    assert refused >= tries // 3  # most changes make a program that is none


def edited(source, target, change):
    whole = zipfile.ZipFile(source)
    with zipfile.ZipFile(target, "w") as out:
        for n in whole.namelist():
            text = whole.read(n)
            if n.endswith("models/model.json"):
                document = json.loads(text)
                change(document["graph_module"]["graph"])
                text = json.dumps(document)
            out.writestr(n, text)
    return target


# What was read or written out of bounds, or ended as a bug in coil: the program, and which size of which value says what.
CASES = {
    "a result is larger than its operands": (lambda x: torch.relu(x), (torch.rand(7, 9),), ("relu", 0, 900), "does not go with"),
    "a result is smaller": (lambda x: x * 2, (torch.rand(7, 9),), ("mul", 1, 4), "does not go with"),
    "an operand is empty": (lambda x: torch.sqrt(x), (torch.rand(7, 9),), ("x", 1, 0), "does not go with"),
    "pieces are more than the whole": (lambda x: torch.cat([x, x + 1], 1), (torch.rand(7, 9),), ("cat", 1, 3), "joined"),
    "pieces are less than the whole": (lambda x: torch.stack([x, x + 1]), (torch.rand(7, 9),), ("stack", 0, 500), "joined"),
    "elements of a view": (lambda x: x.view(63).sin(), (torch.rand(7, 9),), ("view", 0, 64), "63 elements are seen as 64"),
    "channels in no groups": (lambda x: torch.nn.functional.group_norm(x, 3), (torch.rand(2, 9, 4),), ("x", 1, 2), "not positive"),
    "rows that are turned": (lambda x: x.flip(0), (torch.rand(7, 9),), ("flip", 1, 12), "has sizes"),
    "columns of a part": (lambda x: x[:, 2:6] + 1, (torch.rand(7, 9),), ("slice_1", 1, 30), "is read at"),
    "a convolution's rows": (lambda x: torch.nn.functional.conv1d(x, torch.ones(4, 3, 3)), (torch.rand(2, 3, 12),), ("conv1d", 2, 40), "do not give"),
    "rows of a copy": (lambda x, i: torch.zeros(5, 9).index_copy(0, i, x), (torch.rand(2, 9), torch.tensor([0, 3])), ("x", 0, 0), "positions for 'source'"),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_that_do_not_go_together_are_named(tmp_path, case):
    function, inputs, (value, dim, size), message = CASES[case]
    torch.export.save(torch.export.export((One, Two)[len(inputs) - 1](function), inputs), tmp_path / "whole.pt2")

    def change(graph):
        (tensor,) = [t for name, t in graph["tensor_values"].items() if name.startswith(value)][:1]
        tensor["sizes"][dim]["as_int"] = size

    program = edited(tmp_path / "whole.pt2", tmp_path / "wrong.pt2", change)
    done = subprocess.run([COIL, "compile", program, "-o", tmp_path / "out.pt2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5 and "COIL-E104" in done.stderr and message in done.stderr, done.stderr
    assert not (tmp_path / "out.pt2").exists()


RANKS = {
    "linalg_vector_norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "max_pool2d": lambda x: torch.nn.functional.max_pool2d(x.view(1, 1, 7, 9), 2),
    "conv2d": lambda x: torch.nn.functional.conv2d(x.view(1, 1, 7, 9), torch.ones(2, 1, 3, 3)),
    "upsample_nearest2d": lambda x: torch.nn.functional.interpolate(x.view(1, 1, 7, 9), scale_factor=2),
}


@pytest.mark.parametrize("more", [1, -1])
@pytest.mark.parametrize("name", RANKS)
def test_a_result_of_another_number_of_dimensions_is_named(tmp_path, name, more):
    torch.export.save(torch.export.export(One(RANKS[name]), (torch.rand(7, 9),)), tmp_path / "whole.pt2")

    def change(graph):
        (tensor,) = [t for value, t in graph["tensor_values"].items() if value.startswith(name)]
        for key in ("sizes", "strides"):
            tensor[key] = tensor[key] + [{"as_int": 1}] if more == 1 else tensor[key][:-1]

    program = edited(tmp_path / "whole.pt2", tmp_path / "wrong.pt2", change)
    done = subprocess.run([COIL, "compile", program, "-o", tmp_path / "out.pt2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5 and "COIL-E104" in done.stderr and name in done.stderr, done.stderr


@pytest.mark.parametrize("change", [{"dtype": 2}, {"sizes": [{"as_int": 2}, {"as_int": 1}], "strides": [{"as_int": 1}, {"as_int": 1}]}], ids=["int8", "rows"])
def test_ends_of_groups_are_a_list_of_integers(tmp_path, change):
    product = Two(lambda x, i: torch._grouped_mm(x, torch.ones(2, 16, 16, dtype=torch.bfloat16), offs=i))
    inputs = torch.ones(6, 16, dtype=torch.bfloat16), torch.tensor([2, 6], dtype=torch.int32)
    torch.export.save(torch.export.export(product, inputs), tmp_path / "whole.pt2")
    program = edited(tmp_path / "whole.pt2", tmp_path / "wrong.pt2", lambda graph: graph["tensor_values"]["i"].update(change))
    done = subprocess.run([COIL, "compile", program, "-o", tmp_path / "out.pt2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5 and "COIL-E104" in done.stderr and "'offs'" in done.stderr, done.stderr


def test_logarithms_of_sums_compile_without_optimisation(tmp_path):
    """Without the precompiled headers, what a kernel needs has to be in its text."""
    torch.export.save(torch.export.export(One(lambda x: x.logcumsumexp(1)), (torch.rand(3, 5),)), tmp_path / "m.pt2")
    coil_ok("compile", "-O", "0", tmp_path / "m.pt2", "-o", tmp_path / "out.pt2")


def test_sizes_that_differ_in_the_call_are_an_error(tmp_path):
    """The export knows two dynamic sizes where eager wants one."""
    module = Two(lambda x, i: torch.ops.aten.embedding_dense_backward(x, i, 30, -1, False))
    shapes = {"x": {0: torch.export.Dim.AUTO}, "i": {0: torch.export.Dim.AUTO}}
    torch.export.save(torch.export.export(module, (torch.rand(5, 9, 4), torch.randint(0, 30, (5, 9))), dynamic_shapes=shapes), tmp_path / "m.pt2")
    for rows, code in ((5, 0), (40, 6)):
        np.savez(tmp_path / "in.npz", in_0=np.ones((5, 9, 4), np.float32), in_1=np.ones((rows, 9), np.int64))
        done = run(tmp_path / "m.pt2", tmp_path / "in.npz")
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize("name,f,sizes,change,text", [
    ("place", lambda x: x.select(1, 2), [(3, 4)], ("index", {"as_int": 4}), "index 4 of dimension 1 of sizes [3, 4]"),
    ("place from the end", lambda x: x.select(1, 2), [(3, 4)], ("index", {"as_int": -5}), "index -5 of dimension 1 of sizes [3, 4]"),
    ("divisor", lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3), [(1, 2, 4, 4)], ("divisor_override", {"as_int": 0}), "the divisor is 0"),
])
def test_numbers_that_older_exports_let_through(name, f, sizes, change, text, tmp_path):
    """PyTorch 2.11 exports what its eager refuses; 2.15 does not, so the file is edited."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return f(x)

    torch.export.save(torch.export.export(Model(), tuple(torch.zeros(s) for s in sizes)), tmp_path / "good.pt2")

    def edit(graph):
        argument, value = change
        (given,) = [i for n in graph["nodes"] for i in n["inputs"] if i["name"] == argument]
        given["arg"] = value

    edited(tmp_path / "good.pt2", tmp_path / "bad.pt2", edit)
    harness.assert_refused(harness.coil("compile", tmp_path / "bad.pt2", "-o", tmp_path / "x.pt2"), text, code=104)


def test_images_and_grids(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, grid):
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    torch.export.save(torch.export.export(Model(), (torch.zeros(2, 3, 5, 5), torch.zeros(0, 0, 5, 2))), tmp_path / "p.pt2")
    harness.assert_refused(harness.coil("compile", tmp_path / "p.pt2", "-o", tmp_path / "x.pt2"), "grids of sizes [0, 0, 5, 2] for images of sizes [2, 3, 5, 5]", code=104)
