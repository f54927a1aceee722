"""What PyTorch's own ways to look into a compiler show of coil: TORCH_LOGS, TORCH_TRACE (tlparse) and TORCH_COMPILE_DEBUG=1.

Each module here is one artifact; its name is what TORCH_LOGS takes:

    TORCH_LOGS=coil                      a line or a few for each: graphs, fusion, perf_hints, recompiles
    TORCH_LOGS=+coil                     all of it: schedules and generated code as well
    TORCH_LOGS=+coil.logs.output_code    one alone; the others are graphs, fusion, schedule, perf_hints, recompiles
    TORCH_LOGS=output_code               PyTorch's artifact of that name (fusion, schedule, perf_hints too): of coil's programs it shows coil's

`torch._logging.set_logs(modules={"coil.logs.fusion": logging.INFO})` does the same from within. With TORCH_COMPILE_DEBUG=1 every stage of every program is a text in
torch_compile_debug/run_.../coil, as COIL_DUMP writes it for files (docs/debugging.md).
"""

from __future__ import annotations

import functools
import logging


class Artifact:
    """One of coil's logs, and PyTorch's artifact of the same name where `stock` says that it has one."""

    def __init__(self, name: str, stock: bool = False) -> None:
        self.log = logging.getLogger(name)
        self._stock = name.rpartition(".")[2] if stock else ""

    def wanted(self) -> bool:
        return self.log.isEnabledFor(logging.INFO) or self._stock_wanted()

    def wanted_in_full(self) -> bool:
        return self.log.isEnabledFor(logging.DEBUG) or self._stock_wanted()

    def write(self, text: str, in_full: bool = False) -> None:
        """As a record of the module that calls."""
        level = logging.DEBUG if in_full else logging.INFO
        log = self.log if self.log.isEnabledFor(level) or not self._stock_wanted() else _stock_logger(self._stock)
        log.log(level, "%s", text, stacklevel=2)

    def _stock_wanted(self) -> bool:
        if not self._stock:
            return False
        from torch._logging import _internal  # not sooner: TORCH_LOGS is read, and this package found, while torch is imported

        return self._stock in _internal.log_registry.artifact_names and bool(_internal.log_state.is_artifact_enabled(self._stock))


@functools.cache
def _stock_logger(name: str) -> logging.Logger:
    """Below torch's loggers, whose handlers TORCH_LOGS has made; artifacts' records go there."""
    from torch._logging import getArtifactLogger

    return getArtifactLogger("torch._dynamo.backends.coil", name)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
