"""Models of llama.cpp's GGUF files as programs and packages, with their weights quantised as they are there.

    import coil.gguf

    coil.gguf.import_gguf("llama.gguf", "llama.coil.pt2")       # and llama.tokenizer.json, where transformers can make one
    generator = coil.llm.Generator("llama.coil.pt2", tokenizer="llama.tokenizer.json")

On the command line: `coil import-gguf llama.gguf -o llama.coil.pt2`. Needs the package gguf (`pip install gguf`).
"""

from ._import import import_gguf, load_gguf, programs

__all__ = ["import_gguf", "load_gguf", "programs"]
