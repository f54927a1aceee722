"""coil import-gguf: programs that are written down after a few traced layers are those of a trace of all."""

import json

import numpy as np
import pytest
import torch

import coil
from coil._program import TextProgram, program_json
from coil.gguf import _layers
from coil.gguf._blocks import Rows
from coil.gguf._import import programs
from coil.gguf._forms import FORMS, Scaling, Shape
from coil.gguf._model import Decoder

WIDTH, INNER, VOCABULARY, CONTEXT = 64, 96, 100, 32


def decoder(kinds, floats=False):
    """Layers of these kinds: of kind 1 the last product has zeros beside its scales, of kind 2 there are biases."""
    random = np.random.default_rng(5)

    def matrix(n, k, zeros):
        if floats:
            return torch.from_numpy((random.standard_normal((n, k)) / 8).astype(np.float32))
        scale = (random.random((n, k // 32)) / 64).astype(np.float16)
        zero = random.standard_normal((n, k // 32)).astype(np.float32) if zeros else None
        return Rows(random.integers(-8, 8, (n, k)).astype(np.int8), scale, zero)

    def vector(n):
        return torch.from_numpy((1 + random.standard_normal(n) / 8).astype(np.float32))

    weights = {"token_embd.weight": matrix(VOCABULARY, WIDTH, False), "output_norm.weight": vector(WIDTH)}
    for layer, kind in enumerate(kinds):
        block = f"blk.{layer}."
        for name, n, k in (("attn_q", 64, WIDTH), ("attn_k", 32, WIDTH), ("attn_v", 32, WIDTH), ("attn_output", WIDTH, 64), ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH),
                           ("ffn_down", WIDTH, INNER)):
            weights[f"{block}{name}.weight"] = matrix(n, k, kind == 1 and name == "ffn_down")
            if kind == 2 and name in ("attn_q", "attn_k", "attn_v"):
                weights[f"{block}{name}.bias"] = vector(n)
        for name in ("attn_norm", "ffn_norm"):
            weights[f"{block}{name}.weight"] = vector(WIDTH)
    return Decoder(Shape("llama", FORMS["llama"], len(kinds), WIDTH, 4, 2, 16, 1e-5, 1e4, Scaling(), CONTEXT, turned_size=16), weights, CONTEXT).eval()


def in_order(text):
    """A program with its values named by their places in it, weights by their own names."""
    document = json.loads(text)
    graph, names = document["graph_module"]["graph"], {}
    for spec, value in zip(document["graph_module"]["signature"]["input_specs"], graph["inputs"]):
        (body,) = spec.values()
        names[value["as_tensor"]["name"]] = body.get("parameter_name") or body.get("buffer_name") or value["as_tensor"]["name"]
    rows = []
    for k, node in enumerate(graph["nodes"]):
        outputs = [o["name"] for out in node["outputs"] for o in (out.get("as_tensors") or [out["as_tensor"]])]
        names.update({name: f"{k}.{j}" for j, name in enumerate(outputs)})
        rows.append((node["target"], _layers._renamed([a["arg"] for a in node["inputs"]], names), [graph["tensor_values"][o] for o in outputs], node["metadata"].get("nn_module_stack")))
    return rows, sorted(names[i["as_tensor"]["name"]] for i in graph["inputs"]), _layers._renamed(graph["outputs"], names)


@pytest.mark.parametrize("kinds", [[0, 0, 0], [2, 1, 1, 2]])
def test_written_down_as_traced(kinds):
    model = decoder(kinds)
    assert [kinds[k] for k in _layers.kinds_of(model)] == kinds
    written, traced = _layers.programs_by_layer(model, programs), programs(model)
    assert all(isinstance(p, TextProgram) for p in written.values()) and written.keys() == traced.keys()
    for name, program in traced.items():
        assert in_order(written[name].text) == in_order(program_json(program))


@pytest.mark.parametrize("kinds", [[0], [0, 1], [1, 1]])
def test_few_layers_are_traced(kinds):
    assert _layers.programs_by_layer(decoder(kinds), lambda model: {"layers": len(model.blk)}) == {"layers": len(kinds)}


def test_the_package_computes_the_model(tmp_path):
    model = decoder([0, 1, 0])
    package = coil.compile(_layers.programs_by_layer(model, programs), tmp_path / "m.pt2", options={"opt_level": 1})
    ids, places = torch.tensor([[3, 14, 15, 92, 65]]), torch.arange(5)
    with torch.no_grad():
        want = model(ids, places)
    torch.testing.assert_close(package(ids, places), want, rtol=1e-3, atol=1e-3)
    decode = package["decode"].new_state()
    for k in range(5):
        torch.testing.assert_close(decode(ids[:, k:k + 1], places[k:k + 1]), want[:, k:k + 1], rtol=1e-3, atol=1e-3)


def test_a_program_in_another_form_is_traced_whole():
    traced = []

    def export(model):
        traced.append(len(model.blk))
        if len(traced) == 1:
            raise KeyError("graph_module")
        return {"whole": model}

    model = decoder([0, 0, 0])
    assert _layers.programs_by_layer(model, export) == {"whole": model} and traced == [2, 3]
