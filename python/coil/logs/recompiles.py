"""Graphs that Dynamo hands over again, because a call did not fit what was compiled before; why, TORCH_LOGS=recompiles says."""

from __future__ import annotations

import torch

from . import Artifact

artifact = Artifact(__name__)


def show(kind: str, inputs: str) -> None:
    """Of a graph that is about to be compiled. `inputs`: its tensors, as text."""
    current = torch._guards.CompileContext.current_compile_id()
    if current is not None and current.frame_compile_id:
        artifact.write(f"{kind} graph: compilation {current.frame_compile_id + 1} of frame {current.frame_id}, for inputs {inputs}")
