"""What `coil import-gguf` runs: python -m coil.gguf MODEL.gguf -o MODEL.coil.pt2"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .._errors import Error


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m coil.gguf", description="A model of a GGUF file as a package of coil.")
    parser.add_argument("model", help="the GGUF file")
    parser.add_argument("-o", "--output", required=True, help="the package to write")
    parser.add_argument("--context", type=int, help="rows of the caches; default: what the model was trained for, at most 4096")
    parser.add_argument("--dtype", default="float32", help="of the program's floats: float32, bfloat16, float16; default: float32")
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON", help="options of coil.compile: '{\"activations\": \"int8\"}'")
    given = parser.parse_args(arguments)
    options: dict[str, Any] = dict(given.options)
    target = options.pop("target", None)
    try:
        from . import import_gguf

        tokenizer = import_gguf(given.model, given.output, context=given.context, dtype=given.dtype, target=target, options=options)
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"COIL-E402: {error}\n  hint: set COIL_TORCH to a Python that has coil, PyTorch and gguf", file=sys.stderr)
        return 1
    print(f"wrote {given.output} ({os.path.getsize(given.output) / 1e6:.1f} MB)" + (f" and {tokenizer}" if tokenizer else "; there is no tokenizer beside it: it takes tokens"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
