"""Decoding and prompts of language models: coil's package beside PyTorch's static cache (eager, Inductor) and llama.cpp.

usage: python bench/llm.py [--shapes tiny,135m] [--dtypes f32,bf16,q8_0,q4_0] [--threads 1,2] [--prompt 128] [--tokens 64] [--rounds 3]
                           [--peers eager,inductor] [--llama-bench FILE] [--peers-python PYTHON --peers-models FOLDER] [--device cuda]

Random weights of real shapes, greedy, batch 1. f32 and bf16 are a transformers model with a static cache. q8_0, q4_0 and the other types of GGUF are
files (bench/random_gguf.py, needs the package gguf) that `coil import-gguf` reads: exactly, and with `activations` in int8 ("coil int8"), which is how
llama.cpp multiplies them. --llama-bench names llama.cpp's program of that name, or what bench/llama_bench.cc makes; it then reads the same file
(of f32 and bf16 one of the same shape).

Rounds are interleaved: every competitor processes the prompt and then generates, in turn. Printed are tokens/s of decoding and ms of the prompt (medians,
with the quartiles), the share of the memory bandwidth measured in the same run (a copy's reads) that reading all weights once a token is, and the
package's size beside the weights'. On a GPU (--device cuda) the peers' steps are CUDA graphs (reduce-overhead), and threads mean nothing.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "build", "python"))

from llm_shapes import SHAPES  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CONTEXT = 512


def exportable(shape, dtype, device="cpu"):
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPES[shape], max_position_embeddings=2048, tie_word_embeddings=True)
    config._attn_implementation = "sdpa"
    model = transformers.LlamaForCausalLM(config).to(DTYPES[dtype]).eval().to(device)
    model.generation_config = transformers.GenerationConfig(use_cache=True, cache_implementation="static", max_length=CONTEXT, cache_config={"batch_size": 1, "max_cache_len": CONTEXT})
    model.generation_config.pad_token_id = 0
    return TorchExportableModuleWithStaticCache(model).to(device)


def weight_bytes(module):
    seen = {p.data_ptr(): p.numel() * p.element_size() for p in module.model.parameters()}
    return sum(seen.values())


class Torch:
    """PyTorch's own loop over the same module."""

    def __init__(self, module, compile=None, device="cpu"):
        self.device = device
        self.module, self.step = module, module
        if compile and device == "cpu":
            self.module = self.step = torch.compile(module, backend=compile, dynamic=True)
        elif compile:  # as PyTorch's users do it: the step alone, of fixed shape, as one CUDA graph
            self.step = torch.compile(module, backend=compile, mode="reduce-overhead", fullgraph=True)

    def run(self, prompt, tokens):
        with torch.no_grad():
            begin = time.perf_counter()
            logits = self.module(input_ids=torch.tensor([prompt], device=self.device), cache_position=torch.arange(len(prompt), device=self.device))
            token = int(logits[0, -1].argmax())
            first = time.perf_counter() - begin
            for place in range(len(prompt), len(prompt) + tokens - 1):
                step = dict(input_ids=torch.tensor([[token]], device=self.device), cache_position=torch.tensor([place], device=self.device))
                token = int(self.step(**step)[0, -1].argmax())
        return first, time.perf_counter() - begin - first


class Coil:
    """A package: how to compile it is the subclass's."""

    def __init__(self, package, threads, device="cpu"):
        import coil.llm

        self.bytes = package.stat().st_size
        self.generator = coil.llm.Generator(package, num_threads=threads, device=device if device != "cpu" else None)

    def run(self, prompt, tokens):
        talk = self.generator.conversation(prompt)
        begin = time.perf_counter()
        talk.generate(1)
        first = time.perf_counter() - begin
        talk.generate(tokens - 1)
        return first, time.perf_counter() - begin - first


def exported(module, folder, device):
    import coil

    n = torch.export.Dim("n", min=1, max=CONTEXT - 1)
    example = {"input_ids": torch.zeros(1, 5, dtype=torch.int64), "cache_position": torch.arange(5)}
    example = {name: value.to(device) for name, value in example.items()}
    program = torch.export.export(module, (), example, dynamic_shapes={"input_ids": {1: n}, "cache_position": {0: n}}, strict=False)
    coil.compile(program, folder / "m.coil.pt2", target=target(device))
    return folder / "m.coil.pt2"


def imported(file, folder, activations):
    import coil.gguf

    package = folder / f"{file.stem}-{activations}.coil.pt2"
    coil.gguf.import_gguf(file, package, context=CONTEXT, options={"activations": activations})
    return package


class LlamaCpp:
    """llama-bench, a process for each run; it does not count loading."""

    def __init__(self, program, file, threads):
        self.program, self.file, self.threads = program, file, threads

    def run(self, prompt, tokens):
        command = [self.program, "-m", self.file, "-t", str(self.threads), "-p", str(len(prompt)), "-n", str(max(tokens - 1, 1)), "-r", "1", "-o", "json"]
        runs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return tuple(next(run["avg_ns"] for run in runs if bool(run["n_prompt"]) == of_prompt) * 1e-9 for of_prompt in (True, False))


class Elsewhere:
    """A peer of bench/llm_peers.py, in a process of another Python, which waits between runs."""

    def __init__(self, python, peer, model, threads):
        command = [python, str(pathlib.Path(__file__).parent / "llm_peers.py"), "run", peer, str(model), str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{peer} does not run {model}: {' '.join(command)}")

    def run(self, prompt, tokens):
        print(len(prompt), tokens, file=self.process.stdin, flush=True)
        return tuple(map(float, self.process.stdout.readline().split()))


def target(device):
    return "cpu" if device == "cpu" else "cuda:sm_{}{}".format(*torch.cuda.get_device_capability())


def bandwidth(threads, device="cpu"):
    """Bytes a second of reading 256 MB by numpy's sums over parts on so many threads; on a GPU: of a copy of 2 GB, read and written."""
    if device != "cpu":
        data = torch.empty(1 << 30, dtype=torch.int8, device=device)
        other = torch.empty_like(data)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(3):
            events[0].record()
            other.copy_(data)
            events[1].record()
            torch.cuda.synchronize()
        return 2 * data.nbytes / (events[0].elapsed_time(events[1]) * 1e-3)
    from concurrent.futures import ThreadPoolExecutor

    data = np.ones(32 << 20)
    parts = np.array_split(data, threads)
    best = 0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(np.add.reduce, parts))
            best = max(best, data.nbytes / (time.perf_counter() - begin))
    return best


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{middle:8.1f} ({low:.1f} to {high:.1f})"


def competitors_of(options, shape, dtype, threads, folder):
    """{name: competitor} and the bytes of the weights."""
    from random_gguf import write

    file = folder / f"{shape}-{dtype}.gguf"
    found = {}
    if options.llama_bench or dtype not in DTYPES:
        write(SHAPES[shape], dtype, file)
    if dtype in DTYPES:
        module = exportable(shape, dtype, options.device)
        weights = weight_bytes(module)
        found["coil"] = Coil(exported(module, folder, options.device), threads, options.device)
        for peer in filter(None, options.peers.split(",")):
            found[peer] = Torch(exportable(shape, dtype, options.device), None if peer == "eager" else peer, options.device)
    else:
        weights = file.stat().st_size
        found["coil"] = Coil(imported(file, folder, "float"), threads)
        found["coil int8"] = Coil(imported(file, folder, "int8"), threads)
    if options.llama_bench:
        found["llama.cpp"] = LlamaCpp(options.llama_bench, file, threads)
    for peer, name in (("ort", f"ort-{dtype}"), ("openvino", f"openvino-{dtype}.gguf")):
        if options.peers_models and (options.peers_models / shape / name).exists():
            found[peer] = Elsewhere(options.peers_python, peer, options.peers_models / shape / name, threads)
    return found, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="135m")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="eager")
    parser.add_argument("--llama-bench", help="llama.cpp's program")
    parser.add_argument("--peers-python", help="the Python of ONNX Runtime GenAI and OpenVINO GenAI (bench/llm_peers.py)")
    parser.add_argument("--peers-models", type=pathlib.Path, help="folder with what `bench/llm_peers.py make SHAPE TYPE FOLDER/SHAPE` made")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--keep", type=pathlib.Path, help="folder in which the packages stay")
    parser.add_argument("--json", help="file for the numbers")
    options = parser.parse_args()
    rows = []
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        for shape in options.shapes.split(","):
            for dtype in options.dtypes.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    rows += compared(options, shape, dtype, threads, options.keep or pathlib.Path(folder))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))


def compared(options, shape, dtype, threads, folder):
    """A line, and a row of numbers, for each competitor."""
    competitors, weights = competitors_of(options, shape, dtype, threads, folder)
    prompt = [(7 * i + 3) % SHAPES[shape]["vocab_size"] for i in range(options.prompt)]
    times = {name: [] for name in competitors}
    for competitor in competitors.values():
        competitor.run(prompt, 4)
    for _ in range(options.rounds):
        for name, competitor in competitors.items():
            times[name].append(competitor.run(prompt, options.tokens))
    read, rows = bandwidth(threads, options.device), []
    for name, runs in times.items():
        rates = [(options.tokens - 1) / rest for _, rest in runs]
        share = statistics.median(rates) * weights / read
        size = f", package {competitors[name].bytes / weights:.2f} times the weights" if isinstance(competitors[name], Coil) else ""
        print(f"{shape} {dtype} {threads} threads {name:9s} {spread(rates)} tokens/s, prompt {spread([first * 1e3 for first, _ in runs])} ms, "
              f"{share:.0%} of {read / 1e9:.1f} GB/s{size}", flush=True)
        rows.append({"shape": shape, "dtype": dtype, "threads": threads, "name": name, "tokens_per_second": rates, "prompt_ms": [first * 1e3 for first, _ in runs]})
    return rows


if __name__ == "__main__":
    main()
