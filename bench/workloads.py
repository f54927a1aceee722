"""The models that the benchmarks time, each at one size, and their artefacts: export, AOTInductor packages, ONNX file."""

import functools
import hashlib
import json
import os
import pathlib
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests/models"), str(REPO / "tests/python")]

CACHE = pathlib.Path(os.environ.get("COIL_BENCH", "~/.cache/coil/bench")).expanduser()
VERSION = ""  # change it when a workload below changes: it is part of the cache's key
MADE_BY = {"openvino": "ort"}  # whose artefact a peer reads
AOTI_OPTIONS = {"aoti": {}, "aoti:freeze": {"freezing": True}}


@functools.cache
def workloads():
    """{name: maker of (module, args)}. Weights and inputs have a fixed seed."""
    import bench_models
    import big
    import torch
    from case import BF16, F32, Function, rand

    def zoo(maker, *args):
        return lambda: (maker().module, tuple(a() for a in args))

    def ids(batch, seq, vocabulary=30000):
        return lambda: torch.randint(0, vocabulary, (batch, seq))

    def ones(*shape):
        return lambda: torch.ones(*shape, dtype=torch.int64)

    def mlp():
        return torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))

    def linear(rows, dtype):
        return lambda: (torch.nn.Linear(3420, 1280, bias=False).to(dtype), (rand(rows, 3420, dtype=dtype),))

    def vision(name, images):
        return lambda: (big.vision(name), (images(),))

    multiply = Function(lambda x, y: x * y)
    image = lambda: rand(1, 3, 224, 224)
    images = lambda: rand(8, 3, 224, 224)
    return {
        "multiply_10": lambda: (multiply, (rand(10), rand(10))),
        "multiply_16m": lambda: (multiply, (rand(1 << 24), rand(1 << 24))),
        "sin_mm_cos_512": lambda: (Function(lambda x, y: (x.sin() @ y).cos()), (rand(512, 512), rand(512, 512))),
        "mlp_256x1024": lambda: (mlp(), (rand(256, 1024),)),
        "norm_gelu_softmax_2048x4096": lambda: (big.NormGeluSoftmax(4096), (rand(2048, 4096), rand(2048, 4096))),
        **{f"linear_{rows}x3420x1280_{label}": linear(rows, dtype) for label, dtype in (("bf16", BF16), ("f32", F32)) for rows in (560, 1024, 2048)},
        "digits_b64": zoo(big.digits, lambda: rand(64, 1, 8, 8)),
        "resnet18_b1": zoo(big.resnet18, image),
        "minilm_b1_s128": zoo(big.minilm, ids(1, 128), ones(1, 128)),
        "minilm_b8_s128": zoo(big.minilm, ids(8, 128), ones(8, 128)),
        "minilm_b32_s32": zoo(big.minilm, ids(32, 32), ones(32, 32)),
        "mobilenet_v3_b1": zoo(big.mobilenet_v3_large, image),
        "resnet50_b1": zoo(big.resnet50, image),
        **{f"{name}_b1": vision(name, image) for name in ("efficientnet_b0", "convnext_tiny", "swin_t")},
        "vit_b_16_b1": zoo(big.vit_b_16, image),
        "resnet50_b8": zoo(big.resnet50, images),
        "mobilenet_v3_b8": zoo(big.mobilenet_v3_large, images),
        "vit_b_16_b8": zoo(big.vit_b_16, images),
        "gpt2_b1_s128": zoo(big.gpt2_f32, ids(1, 128)),
        "gpt2_decode_c512": lambda: bench_models.gpt2_decode(512),
        "llama_2_layers_b1_s128": zoo(big.llama_f32, ids(1, 128, 2000)),
        "whisper_tiny_encoder": bench_models.whisper_tiny_encoder,
        "unet_32": bench_models.unet_32,
        "resnet18_b8": zoo(big.resnet18, images),
        **{f"{name}_b8": vision(name, images) for name in ("efficientnet_b0", "convnext_tiny", "swin_t")},
        "gpt2_b8_s128": zoo(big.gpt2_f32, ids(8, 128)),
        "gpt2_decode_c512_b8": lambda: bench_models.gpt2_decode(512, 8),
        "whisper_tiny_encoder_b8": lambda: bench_models.whisper_tiny_encoder(8),
        "unet_32_b8": lambda: bench_models.unet_32(8),
    }


@functools.cache
def wide_workloads():
    """Further ones, "wide_...", which run where they are asked for."""
    from wide_workloads import wide

    return wide()


def build(name):
    """(module in eval mode, args)."""
    from case import seeded

    module, args = seeded(name, (wide_workloads() if name.startswith("wide_") else workloads())[name])
    return module.eval(), args


@functools.cache
def folder(name):
    import torch

    files = [REPO / "tests/models/case.py", REPO / "tests/models/big.py", REPO / "examples/digits/digits.pt2"]
    text = VERSION.encode() + torch.__version__.encode() + b"".join(f.read_bytes() for f in files)
    return CACHE / hashlib.sha256(text).hexdigest()[:12] / name


def prepare(name, peers):
    """Makes what is missing; times and errors go to prepare.json, so that a peer that cannot do a model is not tried each time."""
    import numpy as np
    import torch
    import zoo

    place = folder(name)
    place.mkdir(parents=True, exist_ok=True)
    record_file = place / "prepare.json"
    record = json.loads(record_file.read_text()) if record_file.exists() else {}
    wanted = [p for p in dict.fromkeys(("export", *(MADE_BY.get(p, p) for p in peers))) if p in ("export", "ort", *AOTI_OPTIONS) and p not in record]
    if not wanted:
        return record
    module, args = build(name)
    for peer in wanted:
        start = time.time()
        try:
            with torch.no_grad():
                if peer == "export":
                    torch.export.save(torch.export.export(module, args), place / "model.pt2")
                    outputs = module(*args)
                    leaves = outputs if isinstance(outputs, (tuple, list)) else [outputs]
                    np.savez(place / "io.npz", **{f"in_{i}": zoo.widen(a) for i, a in enumerate(args)}, **{f"out_{i}": zoo.widen(o) for i, o in enumerate(leaves)})
                elif peer == "ort":
                    torch.onnx.export(module, args, place / "model.onnx", dynamo=True, verbose=False)
                else:
                    program = torch.export.export(module, args)
                    torch._inductor.aoti_compile_and_package(program, package_path=str(place / artefact(peer)), inductor_configs=AOTI_OPTIONS[peer])
            record[peer] = {"seconds": round(time.time() - start, 2)}
        except Exception as error:  # a peer that cannot do a model is a result, not a failure
            record[peer] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        record_file.write_text(json.dumps(record, indent=1))
        print(f"{name:32} {peer:12} {record[peer]}", flush=True)
    return record


def artefact(peer):
    return {"aoti": "aoti.pt2", "aoti:freeze": "aoti_freeze.pt2", "ort": "model.onnx", "export": "model.pt2"}[peer]
