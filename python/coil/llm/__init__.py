"""Text generation with packages of language models: conversations, sampling, text through a tokenizer, an endpoint that speaks OpenAI's protocol.

    generator = coil.llm.Generator("llama.coil.pt2", tokenizer="tokenizer.json")
    for piece in generator.stream("Once upon a time", tokens=100, sampling=coil.llm.Sampling(temperature=0.8, seed=7)):
        print(piece, end="", flush=True)

The same loop in C is include/coil/generate.h, on the command line `coil generate` and `python -m coil.llm`.
"""

from ._generator import Conversation, Generator, Sampling
from ._tokenizer import Bytes, Tokenizer

__all__ = ["Bytes", "Conversation", "Generator", "Sampling", "Tokenizer"]
