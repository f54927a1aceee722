"""python -m coil.llm generate|chat|serve MODEL"""

from __future__ import annotations

import argparse
import sys
import time

from .._errors import Error
from . import Generator, Sampling


def sampling_of(options: argparse.Namespace) -> Sampling:
    return Sampling(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, min_p=options.min_p,
                    repetition_penalty=options.repetition_penalty, seed=options.seed)


def generate(generator: Generator, options: argparse.Namespace) -> None:
    prompt, source = options.prompt, options.source
    if generator.takes_source:  # what is read is the text; the decoder begins with few tokens, or none of its own
        source, prompt = source if source is not None else sys.stdin.read(), prompt or ""
    elif prompt is None:
        prompt = sys.stdin.read()
    talk = generator.conversation(options.start, sampling_of(options), source=source)
    talk.append(prompt)
    begin, first, known = time.perf_counter(), 0.0, len(talk.tokens)
    print(prompt, end="", flush=True)
    for piece in talk.stream(options.tokens, stop=options.stop, stop_text=options.stop_text, draft=options.draft, steps=options.steps):
        first = first or time.perf_counter() - begin
        print(piece, end="", flush=True)
    made, seconds = len(talk.tokens) - known, time.perf_counter() - begin - first
    print(f"\n{known} prompt tokens, the first new one after {first * 1e3:.0f} ms, {max(made - 1, 0)} more at {max(made - 1, 0) / max(seconds, 1e-9):.1f} tokens/s", file=sys.stderr)


def chat(generator: Generator, options: argparse.Namespace) -> None:
    talk = generator.conversation((), sampling_of(options))
    while line := input("> ").strip():
        talk.append(options.turn.replace("\\n", "\n").format(line))
        for piece in talk.stream(options.tokens, stop=options.stop, stop_text=options.stop_text, draft=options.draft, steps=options.steps):
            print(piece, end="", flush=True)
        print()


def serve(generator: Generator, options: argparse.Namespace) -> None:
    from .serve import make_server

    server = make_server(generator, options.host, options.port, name=options.name, stop=tuple(options.stop))
    print(f"'{options.name or generator.model.name}' at http://{server.server_address[0]}:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m coil.llm", description="Text from packages of language models.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text, run in (("generate", "continue a prompt", generate), ("chat", "talk, line by line", chat), ("serve", "an endpoint that speaks OpenAI's protocol", serve)):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("model", help="package (coil compile)")
        command.add_argument("--tokenizer", default="bytes", help="tokenizer.json; default: the tokens are bytes")
        command.add_argument("--device", help="cpu, cuda, cuda:1; default: the package's first target that runs here")
        command.add_argument("--threads", type=int, default=0, help="threads of a step")
        command.add_argument("--stop", type=lambda t: [int(x) for x in t.split(",")], default=[], help="tokens to stop at: 2,32000")
        if run is serve:
            command.add_argument("--host", default="127.0.0.1", help="default: this machine only")
            command.add_argument("--port", type=int, default=8000)
            command.add_argument("--name", help="of the model, for clients; default: the package's")
            continue
        command.add_argument("--tokens", type=int, default=100, help="how many new tokens at most")
        command.add_argument("--stop-text", action="append", default=[], help="text to stop at; may be repeated")
        command.add_argument("--temperature", type=float, default=0.0, help="0: always the most likely token")
        command.add_argument("--top-k", type=int, default=0)
        command.add_argument("--top-p", type=float, default=1.0)
        command.add_argument("--min-p", type=float, default=0.0)
        command.add_argument("--repetition-penalty", type=float, default=1.0)
        command.add_argument("--seed", type=int, default=0, help="the same seed gives the same text")
        command.add_argument("--draft", type=int, default=0, help="tokens of an earlier repetition that are tried in one step")
        command.add_argument("--steps", type=int, default=1, help="steps that a GPU makes before the first one's token is looked at")
        if run is generate:
            command.add_argument("--prompt", help="default: standard input")
            command.add_argument("--source", help="what the encoder reads, for models that have one; default: standard input")
            command.add_argument("--start", type=lambda t: [int(x) for x in t.split(",")], default=[], help="tokens in front of the prompt: 0")
        else:
            command.add_argument("--turn", default="{}\\n", help="what a line becomes, {} being the line")
    options = parser.parse_args(arguments)
    try:
        options.run(Generator(options.model, options.tokenizer, device=options.device, num_threads=options.threads), options)
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
