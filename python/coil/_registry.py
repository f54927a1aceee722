"""The kernels that are registered in this process, and what an option `kernels` stands for."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from ._arguments import listed, text_of


class Registered(Protocol):
    registration: dict


kernels_by_name: dict[str, Registered] = {}


def registrations(kernels: Any) -> tuple[list[str], list[str]]:
    """(registrations as JSON, paths) of an option: a list of kernels and of files or folders of registrations; None: all that are registered."""
    if kernels is None:
        kernels = list(kernels_by_name.values())
    if isinstance(kernels, (str, os.PathLike)) or hasattr(kernels, "registration"):
        kernels = [kernels]
    kernels = listed(kernels, "kernels")
    texts = [json.dumps(k.registration) for k in kernels if hasattr(k, "registration")]
    return texts, [text_of(os.fspath(k) if isinstance(k, os.PathLike) else k, "kernels") for k in kernels if not hasattr(k, "registration")]


def may_have_kernel(settings: dict, operator: str) -> bool:
    """Whether a user's kernel for "namespace::operator" may be among an option's `registrations`; those in files are not read here."""
    if operator.startswith("aten::"):  # a namespace that is no user's
        return False
    return bool(settings["kernel_files"]) or any(json.loads(text)["name"] == operator for text in settings["kernels"])
