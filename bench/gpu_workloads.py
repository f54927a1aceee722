"""What bench/gpu_peers.py times: the models of the CUDA target's goals, memory-bound kernels and matrix products at large sizes."""

import dataclasses
import functools
import pathlib
import sys
import typing

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests/gpu"), str(REPO / "tests/models")]


@dataclasses.dataclass
class Workload:
    """make() returns (module, args), on the current default device, with random weights.

    floor  (what it is, maker of a function that does the least that this work can cost), or None
    bytes  memory that has to be read and written; flops: multiplications and additions; 0: not said
    goal   what it was measured at before: {peer: microseconds}
    """

    group: str
    make: typing.Callable
    floor: tuple | None = None
    bytes: int = 0
    flops: int = 0
    goal: dict = dataclasses.field(default_factory=dict)
    tolerance: float = 2e-2


@functools.cache
def workloads():
    """{name: Workload}."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    import programs
    from case import Function

    bf16, f32 = torch.bfloat16, torch.float32
    rand = lambda *shape, dtype=bf16: torch.randn(*shape, dtype=f32).to(dtype)
    table = {}

    def add(name, group, make, **more):
        table[name] = Workload(group, make, **more)

    def llama(rows):
        def make():
            return programs.LlamaBlock().to(bf16), (rand(1, rows, 4096), rand(rows, 128), rand(rows, 128))

        return make

    def norm_gelu_softmax():
        norm = nn.LayerNorm(4096).to(bf16)
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
        return Net(norm, lambda n, x, y: F.softmax(F.gelu(n(x + y)) * 0.125, -1)), (rand(8192, 4096), rand(8192, 4096))

    class Net(nn.Module):
        """A function of a module and inputs."""

        def __init__(self, part, function):
            super().__init__()
            self.part, self.function = part, function

        def forward(self, *args):
            return self.function(self.part, *args)

    def vision(name, batch, dtype, layout):
        def make():
            import big

            net = big.vision(name).to(dtype).to(memory_format=layout)
            return net, (rand(batch, 3, 224, 224, dtype=dtype).to(memory_format=layout),)

        return make

    def bert():
        from transformers import BertConfig, BertModel

        net = BertModel(BertConfig(attn_implementation="sdpa")).eval().to(bf16)
        return Net(net, lambda n, ids, mask: n(input_ids=ids, attention_mask=mask, return_dict=False)[0]), (torch.randint(0, 30000, (8, 128)), torch.ones(8, 128, dtype=torch.int64))

    # The models; goals: an H200 with PyTorch 2.11
    copy_of = lambda count: ("copy of as many bytes", lambda: (lambda a, b: lambda: a.copy_(b))(torch.empty(count // 2, dtype=torch.uint8), torch.empty(count // 2, dtype=torch.uint8)))
    mib = 1 << 20
    add("multiply_10", "models", lambda: (Function(lambda x, y: x * y), (rand(10, dtype=f32), rand(10, dtype=f32))), goal={"eager": 14.5, "compile": 52, "aoti": 24}, tolerance=1e-4)
    add("norm_gelu_softmax_8192x4096_bf16", "models", norm_gelu_softmax, bytes=3 * 64 * mib, floor=copy_of(3 * 64 * mib), goal={"eager": 300, "compile": 262})
    add("resnet18_b2", "models", vision("resnet18", 2, f32, torch.contiguous_format), goal={"eager": 952, "compile": 679, "aoti": 388}, tolerance=1e-3)
    add("resnet50_b32_bf16", "models", vision("resnet50", 32, bf16, torch.channels_last), goal={"eager": 2808, "compile": 1940, "aoti": 1672}, tolerance=5e-2)
    add("bert_base_8x128_bf16", "models", bert, goal={"eager": 2934, "compile": 1929, "aoti": 998}, tolerance=5e-2)
    add("llama8b_block_2048_bf16", "models", llama(2048), goal={"eager": 1862, "compile": 1516, "aoti": 1492}, tolerance=5e-2)
    add("llama8b_block_1_bf16", "models", llama(1), goal={"eager": 424, "compile": 283, "aoti": 209}, tolerance=5e-2)
    add("resnet50_b32_bf16_nchw", "more", vision("resnet50", 32, bf16, torch.contiguous_format), tolerance=5e-2)

    # Memory-bound kernels on 8192x4096: bytes is what has to move
    one = 64 * mib  # a bf16 tensor of 8192x4096
    grid = lambda n=1, dtype=bf16: tuple(rand(8192, 4096, dtype=dtype) for _ in range(n))
    row = lambda dtype=bf16: rand(4096, dtype=dtype)

    def memory(name, function, args, count, **more):
        add(f"{name}_8192x4096", "memory", lambda: (Function(function), tuple(args())), bytes=count, floor=copy_of(count), **more)

    memory("add_bf16", lambda x, y: x + y, lambda: grid(2), 3 * one)
    memory("add_f32", lambda x, y: x + y, lambda: grid(2, f32), 6 * one)
    memory("gelu_bf16", lambda x: F.gelu(x), grid, 2 * one)
    memory("silu_mul_bf16", lambda x, y: F.silu(x) * y, lambda: grid(2), 3 * one)
    memory("layer_norm_bf16", lambda x, w, b: F.layer_norm(x, (4096,), w, b), lambda: (*grid(), row(), row()), 2 * one)
    memory("rms_norm_residual_bf16", lambda x, y, w: (lambda s: (F.rms_norm(s, (4096,), w, 1e-5), s))(x + y), lambda: (*grid(2), row()), 4 * one)
    memory("softmax_bf16", lambda x: x.softmax(-1), grid, 2 * one)
    memory("softmax_f32", lambda x: x.softmax(-1), lambda: grid(1, f32), 4 * one)
    memory("sum_rows_bf16", lambda x: x.sum(-1), grid, one)
    memory("sum_columns_f32", lambda x: x.sum(0), lambda: grid(1, f32), 2 * one)
    memory("sum_all_f32", lambda x: x.sum(), lambda: grid(1, f32), 2 * one)
    memory("transpose_bf16", lambda x: x.t().contiguous(), grid, 2 * one)
    memory("transpose_add_f32", lambda x, y: x.t() + y, lambda: (rand(4096, 8192, dtype=f32), *grid(1, f32)), 6 * one)
    memory("cat_bf16", lambda x, y: torch.cat([x, y], 1), lambda: grid(2), 4 * one)
    memory("cumsum_f32", lambda x: x.cumsum(-1), lambda: grid(1, f32), 4 * one)
    add("cross_entropy_4096x50257_bf16", "memory", lambda: (Function(lambda x, y: F.cross_entropy(x.float(), y, reduction="none")), (rand(4096, 50257), torch.randint(0, 50257, (4096,)))),
        bytes=2 * 4096 * 50257, floor=copy_of(2 * 4096 * 50257))
    add("embedding_8192_of_50257x4096_bf16", "memory", lambda: (Function(lambda w, i: F.embedding(i, w)), (rand(50257, 4096), torch.randint(0, 50257, (8192,)))), bytes=2 * one, floor=copy_of(2 * one))
    add("batch_norm_relu_64x256x56x56_bf16", "memory", lambda: (nn.Sequential(nn.BatchNorm2d(256), nn.ReLU()).to(bf16), (rand(64, 256, 56, 56),)), bytes=2 * 2 * 64 * 256 * 56 * 56, floor=copy_of(2 * 2 * 64 * 256 * 56 * 56))

    # Matrix products with an epilogue, beside cuBLAS without one
    def gemm(m, n, k, epilogue=True):
        def make():
            net = nn.Linear(k, n, bias=epilogue).to(bf16)
            return Net(net, lambda p, x: F.gelu(p(x)) if epilogue else p(x)), (rand(m, k),)

        def product():
            a, b = rand(m, k), rand(n, k)
            return lambda: a @ b.t()

        name = f"{'linear_gelu' if epilogue else 'linear'}_{m}x{n}x{k}_bf16"
        add(name, "gemm", make, flops=2 * m * n * k, bytes=2 * (m * k + n * k + m * n), floor=("cuBLAS, no epilogue", product))

    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 14336, 4096), (2048, 4096, 14336), (512, 4096, 4096)):
        gemm(m, n, k)
    for m, n, k in ((1, 4096, 4096), (1, 14336, 4096), (1, 4096, 14336), (4, 4096, 4096), (8, 14336, 4096), (32, 4096, 4096), (560, 1280, 3420), (2048, 1280, 3420), (2048, 4096, 4095)):
        gemm(m, n, k, epilogue=False)

    # A token's products at the sizes of Llama-3.2-1B, as many layers as no cache holds: all that counts is reading the weights
    class Layer(nn.Module):
        def __init__(self, width, *columns):
            super().__init__()
            self.norm, self.first = nn.RMSNorm(width), nn.ModuleList([nn.Linear(width, n, bias=False) for n in columns])
            self.last = nn.Linear(columns[0], width, bias=False)

        def forward(self, x):
            parts = [f(self.norm(x)) for f in self.first]
            if len(parts) == 2:
                return x + self.last(F.silu(parts[0]) * parts[1])
            q, k, v = [part.view(1, x.shape[0], -1, 64).transpose(1, 2) for part in parts]
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(x.shape)
            return x + self.last(mixed)

    def token(name, rows, *columns, width=2048, layers=12):
        count = 2 * layers * width * (sum(columns) + columns[0])
        add(f"{name}_{rows}x{width}_bf16", "token", lambda: (nn.Sequential(*[Layer(width, *columns) for _ in range(layers)]).to(bf16), (rand(rows, width),)), bytes=count, floor=copy_of(count // 2),
            tolerance=5e-2)

    for rows in (1, 4):
        token("gate_up_down", rows, 8192, 8192)
        token("qkv_o", rows, 2048, 512, 512, layers=24)
    return table


def build(name, device):
    """(module in eval mode without gradients, args): the same in each process."""
    import torch

    torch.manual_seed(0)
    with torch.device(device), torch.no_grad():
        module, args = workloads()[name].make()
    return module.eval().requires_grad_(False).to(device), args
