"""The whole models of the zoo. Weights are random with a fixed seed, but for the digits net and MiniLM."""

import importlib.util
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import BF16, F32, Case, Function, Program, rand

REPO = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = []


def model(*forms):
    def add(make):
        PROGRAMS.append(Program(make.__name__, make, "model", __file__, forms or ("aten", "core")))
        return make

    return add


def example_module(folder, name):
    """A Python file of examples/, without making that folder a package."""
    spec = importlib.util.spec_from_file_location(f"example_{folder}_{name}", REPO / "examples" / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch_dim(high=64):
    return Dim("batch", min=1, max=high)


@model()
def digits():
    example = example_module("digits", "train")
    net = example.Digits()
    net.load_state_dict(torch.export.load(REPO / "examples/digits/digits.pt2").state_dict)
    sets = {f"b{b}": (rand(b, 1, 8, 8, low=0, high=1),) for b in (1, 2, 7, 64, 512)}
    return Case(net.eval(), (rand(4, 1, 8, 8, low=0, high=1),), dynamic={"image": {0: batch_dim(example.MAX_BATCH)}}, inputs=sets)


class Mlp(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(width, 2 * width), nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, 10)

    def forward(self, x):
        return self.c(F.gelu(self.b(F.relu(self.a(x)))))


@model()
def mlp():
    return Case(Mlp(), (rand(4, 256),), dynamic={"x": {0: batch_dim()}}, inputs={f"b{b}": (rand(b, 256),) for b in (1, 3, 33, 64)})


@model()
def mlp_bf16():
    return Case(Mlp().to(BF16), (rand(4, 256, dtype=BF16),), dynamic={"x": {0: batch_dim()}},
                inputs={f"b{b}": (rand(b, 256, dtype=BF16),) for b in (1, 3, 33)})


@model()
def sin_mm_cos():
    return Case(Function(lambda x, y: (x.sin() @ y).cos()), (rand(37, 53), rand(53, 71)))


class NormGeluSoftmax(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x, y):
        return torch.softmax(F.gelu(self.norm(x + y)), dim=-1)


@model()
def norm_gelu_softmax():
    rows = {0: Dim("rows", min=1, max=4096)}
    sets = {f"r{r}": (rand(r, 1000), rand(r, 1000)) for r in (1, 2, 77)}
    return Case(NormGeluSoftmax(1000), (rand(8, 1000), rand(8, 1000)), dynamic={"x": rows, "y": rows}, inputs=sets)


def vision(name):
    """A torchvision model with batch norm statistics that differ by channel, so that folding them is tested."""
    import torchvision

    net = getattr(torchvision.models, name)(weights=None).eval()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.7, 1.4)
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.uniform_(part.bias, -0.2, 0.2)
    return net


def images(batch):
    return (rand(batch, 3, 224, 224),)


@model("aten")
def resnet18_b1():
    return Case(vision("resnet18"), images(1))


@model("aten")
def resnet18_b2():
    return Case(vision("resnet18"), images(2))


@model()
def resnet18():
    return Case(vision("resnet18"), images(2), dynamic={"x": {0: batch_dim()}}, inputs={f"b{b}": images(b) for b in (1, 3, 64)})


@model()
def resnet50():
    return Case(vision("resnet50"), images(1))


@model()
def mobilenet_v3_large():
    return Case(vision("mobilenet_v3_large"), images(2), dynamic={"x": {0: batch_dim()}}, inputs={f"b{b}": images(b) for b in (1, 5)})


@model()
def vit_b_16():
    net = vision("vit_b_16")
    nn.init.normal_(net.heads.head.weight, std=0.02)  # torchvision starts it at zero: every output would be the bias
    return Case(net, images(2), dynamic={"x": {0: batch_dim()}}, inputs={f"b{b}": images(b) for b in (1, 3)})


@model()
def minilm():
    example = example_module("minilm", "encoder")

    def tokens(batch, seq):
        ids = torch.randint(1000, 30000, (batch, seq))
        ids[:, 0] = 101
        length = torch.randint(1, seq + 1, (batch,))
        length[0] = seq
        return ids, (torch.arange(seq)[None] < length[:, None]).to(torch.int64)

    sets = {f"b{b}_s{s}": tokens(b, s) for b, s in ((1, 1), (1, 2), (2, 9), (3, 33), (8, 128), (1, 256), (64, 3))}
    return Case(example.SentenceEncoder(), tokens(2, 9), dynamic=example.dynamic_shapes(), inputs=sets, cosine=0.99999)


class Logits(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, input_ids):
        return self.net(input_ids=input_ids, use_cache=False, return_dict=False)[0]


def language_model(net, vocabulary, sizes, longest, batch=16):
    """Dynamic sequence and, but for batch=1, dynamic batch."""
    sets = {f"b{b}_s{s}": (torch.randint(0, vocabulary, (b, s)),) for b, s in sizes}
    dynamic = {"input_ids": {1: Dim("seq", min=1, max=longest)} | ({0: batch_dim(batch)} if batch > 1 else {})}
    return Case(Logits(net.eval()), (torch.randint(0, vocabulary, (min(batch, 2), 9)),), dynamic=dynamic, inputs=sets)


def gpt2(dtype, sizes):
    from transformers import GPT2Config, GPT2LMHeadModel

    # Batch 1: with a dynamic batch PyTorch's own run_decompositions fails on a view that it makes itself.
    return language_model(GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).to(dtype), 50257, sizes, 1024, batch=1)


@model()
def gpt2_f32():
    return gpt2(F32, ((1, 1), (1, 2), (1, 7), (1, 128)))


@model("aten")
def gpt2_bf16():
    return gpt2(BF16, ((1, 1), (1, 64)))


def llama(dtype):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=2000, hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=2, max_position_embeddings=512, attn_implementation="sdpa")
    return language_model(LlamaForCausalLM(config).to(dtype), 2000, ((1, 1), (1, 2), (3, 17), (1, 300), (16, 4)), 512)


@model()
def llama_f32():
    return llama(F32)


@model()
def llama_bf16():
    return llama(BF16)


def encoder(layers):
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, activation="gelu")
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    for parameter in net.parameters():  # TransformerEncoder copies one layer: give each its own weights
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return Case(net, (rand(2, 16, 256),), dynamic={"src": {0: batch_dim(), 1: Dim("seq", min=1, max=512)}},
                inputs={f"b{b}_s{s}": (rand(b, s, 256),) for b, s in ((1, 1), (2, 37))})


@model()
def encoder_1():
    return encoder(1)


@model("aten")
def encoder_12():
    return encoder(12)
