"""What the graph's guards say about its sizes beyond the values and ranges of symbols.

PyTorch replaces a symbol whose value follows from a guard. A guard that it cannot solve, such as (s0 + 1)//2 == 2 of a half that a layer of two
inputs takes, stays a guard: the shapes of the graph have both forms, and only the guard tells that they are one, and that s0 is 3 or 4.
"""

from __future__ import annotations

from typing import Any, Iterator

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

PASSES = 4  # a guard's side may have a part that another guard names
LONGEST_PERIOD = 1024  # of a size that steps; each place in a period is tried


class FixedSizes:
    """What the guards of a graph fix, read when the first symbolic size is asked about."""

    def __init__(self) -> None:
        self._fixed: dict[sympy.Expr, sympy.Expr] | None = None
        self._ranges: dict[sympy.Symbol, tuple[int, int]] = {}
        self._found: dict[sympy.Expr, sympy.Expr] = {}

    def simplest(self, value: torch.SymInt) -> sympy.Expr:
        """The simplest expression that the guards allow in the place of a size."""
        expression = value.node.expr
        if expression.is_number:
            return expression
        if self._fixed is None:
            self._read(value.node.shape_env)
        if not self._fixed:
            return expression
        found = self._found.get(expression)
        if found is None:
            found = self._found[expression] = _replaced(expression, self._fixed)
        return found

    def range_of(self, symbol: sympy.Symbol, low: int | None, high: int | None) -> tuple[int | None, int | None]:
        """The range of a symbol, by PyTorch's and by what solves its guards."""
        if symbol not in self._ranges:
            return low, high
        least, most = self._ranges[symbol]
        return least if low is None else max(low, least), most if high is None else min(high, most)

    def _read(self, shape_env: Any) -> None:
        guards = [shape_env.replace(guard.expr) for guard in shape_env.guards] if shape_env is not None else []
        equalities = [guard for guard in guards if isinstance(guard, sympy.Eq)]
        self._fixed = dict(_fixed_sides(equalities))
        of_symbol: dict[sympy.Symbol, list] = {}
        for guard in guards:
            if isinstance(guard, sympy.Basic) and len(guard.free_symbols) == 1:
                of_symbol.setdefault(next(iter(guard.free_symbols)), []).append(guard)
        for symbol, known in of_symbol.items():
            values = _solutions(symbol, known, shape_env.bound_sympy(symbol).lower)
            if values:
                self._ranges[symbol] = values[0], values[-1]
            if len(values) == 1:
                self._fixed[symbol] = sympy.Integer(values[0])


def _fixed_sides(equalities: list[sympy.Eq]) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """The side of each equality that the other one, a number, fixes. (A size by another symbol stays: what reads it may not know the other one.)"""
    for equality in equalities:
        for side, other in ((equality.lhs, equality.rhs), (equality.rhs, equality.lhs)):
            if other.is_Integer and not side.is_number:
                yield side, other


def _replaced(expression: sympy.Expr, fixed: dict[sympy.Expr, sympy.Expr]) -> sympy.Expr:
    for _ in range(PASSES):
        new = fixed.get(expression)
        if new is None:
            new = expression.xreplace(fixed)
        if new == expression:
            break
        expression = new
    return expression


# ---- The values of one symbol

def _solutions(symbol: sympy.Symbol, guards: list, lower: sympy.Expr) -> list[int]:
    """The values that fulfil all guards of a symbol, where one of them leaves finitely many; else none."""
    for guard in guards:
        values = _roots(symbol, guard) if isinstance(guard, sympy.Eq) else None
        if values is not None:
            fits = [v for v in values if sympy.Integer(v) >= lower and all(g.xreplace({symbol: sympy.Integer(v)}) != sympy.false for g in guards)]
            return sorted(fits)
    return []


def _roots(symbol: sympy.Symbol, equality: sympy.Eq) -> list[int] | None:
    """All integers that fulfil an equality of sums, whole quotients and remainders of one symbol: such a side repeats itself with a period, plus a
    constant for each period. None: another kind of equality, or one that endless many fulfil."""
    periods = [_period(symbol, side) for side in (equality.lhs, equality.rhs)]
    if not all(periods):
        return None
    period = sympy.ilcm(*periods)
    if period > LONGEST_PERIOD:
        return None
    off = [int((equality.lhs - equality.rhs).xreplace({symbol: sympy.Integer(v)})) for v in range(2 * period)]
    rise = off[period] - off[0]
    if rise == 0 or any(off[i + period] - off[i] != rise for i in range(period)):
        return None
    return [place - off[place] // rise * period for place in range(period) if off[place] % rise == 0]


def _period(symbol: sympy.Symbol, expression: sympy.Expr) -> int | None:
    """After how many steps of the symbol an expression repeats itself but for a constant; None where it has other parts than those."""
    if expression == symbol or expression.is_Integer:
        return 1
    if isinstance(expression, (FloorDiv, CleanDiv, Mod, PythonMod)):
        inner, divisor = expression.args
        period = _period(symbol, inner)
        return period * int(divisor) if period and divisor.is_Integer and divisor > 0 and period * int(divisor) <= LONGEST_PERIOD else None
    if isinstance(expression, sympy.Add) or (isinstance(expression, sympy.Mul) and sum(not a.is_Integer for a in expression.args) <= 1):
        periods = [_period(symbol, part) for part in expression.args]
        return int(sympy.ilcm(*periods)) if all(periods) else None
    return None
