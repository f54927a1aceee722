"""The stages of a compile, for those who look: folders of texts while a program compiles, and what logs and traces take from them (coil.logs)."""

from __future__ import annotations

import itertools
import logging
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any, Iterable

import torch
from torch._dynamo.utils import get_debug_dir

from .._errors import make_error
from ..logs import count, fusion, graphs, output_code, perf_hints, recompiles, schedule
from ._decompositions import operator_name
from ._notes import note_graph
from ._places import short_place
from ._split import Split, is_number

log = logging.getLogger("coil")
_numbers = itertools.count()  # of the programs of this process
_graph_numbers = itertools.count()
_CODE = (".cc", ".cu")
_MOST_INPUTS = 8  # that a line of the log lists


def _traced() -> bool:
    """Whether TORCH_TRACE names a folder."""
    return any(getattr(handler, "root_dir", None) for handler in torch._logging._internal.trace_log.handlers)


def _debug_folder() -> str:
    """Where TORCH_COMPILE_DEBUG=1 wants coil's texts; "" without it."""
    return os.path.join(get_debug_dir(), "coil") if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1" else ""


def _asked_for(settings: dict) -> str:
    """The folder that the user named; "": none."""
    return settings.get("dump") or os.environ.get("COIL_DUMP", "")


def folder_for(settings: dict) -> str:
    """Where the next program's stages are to be written as texts, a folder for each; "" if nobody wants them. What cannot be written is an error where
    the user named the folder, and a warning where only logs and traces would have read it: looking on changes nothing of what is compiled."""
    name = f"{next(_numbers):03}_{settings['name']}"
    if debug := _debug_folder():
        folder = os.path.join(debug, name)
        return folder if _make(folder, "TORCH_COMPILE_DEBUG") else ""
    if asked := _asked_for(settings):
        folder = os.path.join(asked, name)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise make_error(3, f"COIL-E003: the folder '{folder}' for the stages cannot be made: {error.strerror}\n  hint: it is that of COIL_DUMP, or of the option "
                                "'dump'") from None
        return folder
    if _traced() or any(artifact.wanted() for artifact in (fusion.artifact, schedule.artifact, output_code.artifact)):
        try:
            return os.path.join(tempfile.mkdtemp(prefix="coil-stages-"), name)
        except OSError as error:
            log.warning("logs and traces lack schedules and code: no folder for them can be made: %s (TMPDIR names another)", error)
    return ""


def _make(folder: str, wish: str) -> bool:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        log.warning("%s: the folder '%s' cannot be made: %s; the stages are not written", wish, folder, error.strerror)
        return False
    return True


def program_compiled(folder: str, settings: dict, report: dict | None) -> None:
    """Logs and traces what a compile has left in its folder, which ends here unless it was asked for. `report`: None where it was refused."""
    name = os.path.basename(folder)
    if report is not None:
        perf_hints.show(name or settings["name"], report["hints"])
    if not folder:
        return
    texts = {path.name: path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).glob("*")) if path.is_file()}
    if not _debug_folder() and not _asked_for(settings):
        shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
    if report is None:
        return
    for stage, text in texts.items():
        if re.match(r"\d+_plan", stage):
            fusion.show(name, text)
            schedule.show(name, text)
    output_code.show(name, {stage: text for stage, text in texts.items() if stage.endswith(_CODE)})
    for stage, text in texts.items():
        _trace(f"coil_{name}_{stage.removesuffix('.txt')}", text)  # tlparse gives each a name that ends so


def graph_split(gm: torch.fx.GraphModule, split: Split, reasons: dict[torch.fx.Node, str], kind: str, models: Iterable[Any]) -> None:
    """Logs which operators of a graph became whose, and notes it for reports. `models`: of coil's programs, in their order."""
    numbers = {level: i for i, level in enumerate(sorted(split.programs))}
    rows = []
    for node in gm.graph.nodes:
        if node not in split.level or node.op != "call_function" or is_number(node) or not (split.is_torch(node) or split.is_coil(node)):
            continue
        program = None if split.is_torch(node) else numbers[split.level[node]]
        if program is not None or reasons.get(node):
            rows.append(graphs.Row(node.name, operator_name(node.target), program, reasons.get(node, ""), short_place(node)))
    note_graph(kind, _compile_id(), models, rows)
    graphs.show(kind, rows, len(split.programs))
    debug = _debug_folder()
    if not debug and not _traced():
        return
    text = graphs.text_of(kind, rows, len(split.programs))
    _trace(f"coil_{kind}_graph", text)
    if debug and _make(debug, "TORCH_COMPILE_DEBUG"):
        pathlib.Path(debug, f"graph_{next(_graph_numbers):03}_{kind}.txt").write_text(text + "\n")


def _compile_id() -> str:
    """"0/1", as PyTorch's logs have it: compilation 1 of frame 0."""
    current = torch._guards.CompileContext.current_compile_id()
    return "" if current is None else str(current)


def graph_begun(gm: torch.fx.GraphModule, kind: str) -> None:
    if not recompiles.artifact.wanted():
        return
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    parameters = _parameters(kind)
    texts = [f"{str(v.dtype).rpartition('.')[2]}{list(v.shape)}" if isinstance(v, torch.Tensor) else str(v) for i, v in enumerate(values) if i not in parameters]
    more = len(texts) - _MOST_INPUTS
    listed = texts[:_MOST_INPUTS] + ([f"and {more} more"] if more > 0 else []) + ([f"and {count(len(parameters), 'parameter')}"] if parameters else [])
    recompiles.show(kind, ", ".join(listed))


def _parameters(kind: str) -> set[int]:
    """The positions of inputs that stay the same tensors from call to call; of a backward graph nobody says."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None and kind != "backward" else None
    return set(getattr(metadata, "static_input_indices", None) or ())


def _trace(name: str, text: Any) -> None:
    if _traced():
        torch._logging.trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=lambda: text)
