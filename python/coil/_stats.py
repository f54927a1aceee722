"""What torch.compile(backend="coil") has done in this process."""

from __future__ import annotations

import copy
import dataclasses

from .logs import count


@dataclasses.dataclass
class CompileStats:
    """Counts since the process began, or since `reset_compile_stats`."""

    graphs: int = 0
    """Graphs that PyTorch handed over (forward and backward count apart)."""
    packages: int = 0
    """Programs that were compiled for them; a graph with operators in between that coil has no code for takes several."""
    cache_hits: int = 0
    """Programs that were compiled before and used again."""
    kernels: int = 0
    """Kernels of the graphs' programs: what a call of each graph starts, operators that run in PyTorch aside."""
    operators: int = 0
    """Operators of the graphs."""
    fallback_operators: int = 0
    """Those of them that run in PyTorch."""
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    """The operators that run in PyTorch, counted by "operator: reason"."""
    strided_copies: int = 0
    """Inputs of calls that were copied because their strides were not those of the compilation."""
    serialize_seconds: float = 0.0
    compile_seconds: float = 0.0
    """Of waiting for programs to be compiled (several at once) and opened."""

    def __str__(self) -> str:
        lines = [f"{count(self.graphs, 'graph')}, {count(self.packages, 'program')} compiled, {self.cache_hits} from the cache; "
                 f"{count(self.operators, 'operator')}, {self.fallback_operators} of them in PyTorch, the others in {count(self.kernels, 'kernel')}; "
                 f"{self.serialize_seconds + self.compile_seconds:.3f} s"]
        lines += [f"  {count} x {reason}" for reason, count in sorted(self.fallbacks.items(), key=lambda kv: (-kv[1], kv[0]))]
        return "\n".join(lines)


stats = CompileStats()


def compile_stats() -> CompileStats:
    """A copy of the counts; print it to see which operators run in PyTorch, and why."""
    return copy.deepcopy(stats)


def reset_compile_stats() -> None:
    """Starts the counts anew."""
    stats.__dict__.update(CompileStats().__dict__)
