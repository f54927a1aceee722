"""ONNX Runtime GenAI and OpenVINO GenAI for bench/llm.py: their models with random weights, and a process that runs one when it is told to.

usage: PYTHON bench/llm_peers.py make SHAPE TYPE FOLDER [--torch SITE_PACKAGES]     TYPE: f32, q4_0 (ORT's int4 in blocks of 32), q8_0
       PYTHON bench/llm_peers.py run {ort,openvino} MODEL THREADS

PYTHON has onnxruntime-genai, onnx_ir, openvino-genai and gguf; --torch names the site-packages of another one with PyTorch and transformers, of which
ORT's builder makes its model. OpenVINO reads a GGUF file, for which `make` writes one with a vocabulary. Nothing is downloaded.

`run` reads lines "PROMPT TOKENS" (numbers of tokens) and answers with the seconds of the prompt with its first token, and of the others.
"""

import argparse
import pathlib
import subprocess
import sys
import time


def prompt_of(count, vocabulary):
    return [(7 * i + 3) % vocabulary for i in range(count)]


def make_huggingface(shape, folder):
    """A model of transformers with a tokenizer of one word a token, without which ORT's builder makes nothing."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape, max_position_embeddings=2048, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5)
    transformers.LlamaForCausalLM(config).eval().save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(shape["vocab_size"])}, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", unk_token="t0").save_pretrained(folder)


def make(shape, kind, folder, site):
    from llm_shapes import SHAPES
    from random_gguf import write

    folder.mkdir(parents=True, exist_ok=True)
    made = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(pathlib.Path(__file__).parent)!r}]; import llm_peers, llm_shapes; "
            f"llm_peers.make_huggingface(llm_shapes.SHAPES[{shape!r}], {str(folder / 'huggingface')!r})"]
    environment = {"PYTHONPATH": site, "HOME": str(folder)} if site else None
    if not (folder / "huggingface").exists():
        subprocess.run(made, check=True, env=environment)
    precision = {"f32": "fp32", "q4_0": "int4", "q8_0": "int8"}[kind]
    subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(folder / "huggingface"), "-m", "local/model", "-o", str(folder / f"ort-{kind}"),
                    "-p", precision, "-e", "cpu", "-c", str(folder / "cache")], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if kind != "f32":
        write(SHAPES[shape], kind, folder / f"openvino-{kind}.gguf", words=True)


class Ort:
    def __init__(self, model, threads):
        import onnxruntime_genai as og

        self.og = og
        config = og.Config(model)
        config.overlay('{"model": {"decoder": {"session_options": {"intra_op_num_threads": %d}}}}' % threads)
        self.model = og.Model(config)
        self.vocabulary = 1 << 15  # all shapes have more

    def run(self, prompt, tokens):
        parameters = self.og.GeneratorParams(self.model)
        parameters.set_search_options(max_length=prompt + tokens + 1, min_length=prompt + tokens + 1, do_sample=False)
        generator = self.og.Generator(self.model, parameters)
        begin = time.perf_counter()
        generator.append_tokens(prompt_of(prompt, self.vocabulary))
        generator.generate_next_token()
        first = time.perf_counter() - begin
        for _ in range(tokens - 1):
            generator.generate_next_token()
        return first, time.perf_counter() - begin - first


class OpenVino:
    def __init__(self, model, threads):
        import openvino_genai

        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.vocabulary = 1 << 15

    def run(self, prompt, tokens):
        import numpy
        import openvino

        ids = openvino.Tensor(numpy.array([prompt_of(prompt, self.vocabulary)], numpy.int64))
        made = self.pipeline.generate(ids, max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        metrics = made.perf_metrics
        return metrics.get_ttft().mean * 1e-3, metrics.get_tpot().mean * 1e-3 * (tokens - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("shape")
    making.add_argument("type", choices=["f32", "q4_0", "q8_0"])
    making.add_argument("folder", type=pathlib.Path)
    making.add_argument("--torch")
    running = commands.add_parser("run")
    running.add_argument("peer", choices=["ort", "openvino"])
    running.add_argument("model")
    running.add_argument("threads", type=int)
    given = parser.parse_args()
    if given.command == "make":
        make(given.shape, given.type, given.folder, given.torch)
        return
    peer = {"ort": Ort, "openvino": OpenVino}[given.peer](given.model, given.threads)
    print("ready", flush=True)
    for line in sys.stdin:
        print(*peer.run(*map(int, line.split())), flush=True)


if __name__ == "__main__":
    main()
