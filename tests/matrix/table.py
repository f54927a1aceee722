"""The matrix as text: a line for each program, a mark for each column; every empty or bad cell with its reason; a summary for the documents."""

import collections
import re

import cells

MARKS = {"right": "+", "none": ".", "eager": "e", "export": "x", "refused": "R", "wrong": "W", "error": "E", "crash": "C", "timeout": "T", "not run": "?"}
BAD = ("wrong", "refused", "error", "crash", "timeout")
SLOW_FIRST_S, SLOW_CALL = 20, 3
MEANING = "+ right  . no such cell  e eager refuses  x cannot be exported  R coil refuses  W wrong  E error  C crash  T time limit  ? not run"


def reason_of(row):
    """A row's reason without the numbers that differ from program to program."""
    text = (row.get("text") or "").strip().splitlines()
    return re.sub(r"0x[0-9a-f]+", "0x..", text[0])[:200] if text else ""


def by_program(rows):
    """{program: {column: row}}, programs in order of appearance."""
    found = collections.defaultdict(dict)
    for name, row in rows.items():
        cell = cells.Cell.of(name)
        found[cell.program][cell.column] = row
    return found


def columns_of(rows):
    present = {cells.Cell.of(name).column for name in rows}
    order = [c.column for c in cells.all_cells([""])]
    return [c for c in order if c in present]


def title(column):
    door, target, dtype, direction, sizes = column
    return f"{door} {target} {dtype} {direction} {sizes}"


def text(rows, seconds):
    columns = columns_of(rows)
    lines = ["columns:"] + [f"  {i + 1:3} {title(c)}" for i, c in enumerate(columns)] + [MEANING, ""]
    for program, known in by_program(rows).items():
        marks = "".join(MARKS[known[c]["status"]] if c in known else " " for c in columns)
        lines.append(f"{program:52} {marks}")
    lines += ["", *reasons(rows), "", counts_line(rows) + f" in {seconds:.0f} s"]
    return "\n".join(lines)


def counts_line(rows):
    counts = collections.Counter(row["status"] for row in rows.values())
    slow = sum(1 for row in rows.values() if is_slow(row))
    parts = [f"{n} {status}" for status, n in counts.most_common()]
    kept = sum(1 for row in rows.values() if row.get("fallbacks"))
    return f"{len(rows)} cells: " + ", ".join(parts) + f"; {kept} with operators in PyTorch, {slow} slow"


def is_slow(row):
    return row.get("first_s", 0) > SLOW_FIRST_S or row.get("coil_ms", 0) > SLOW_CALL * row.get("eager_ms", float("inf")) and row["coil_ms"] > 1


def reasons(rows, shown=6):
    """Every cell that is not right, by its reason."""
    groups = collections.defaultdict(list)
    for name, row in rows.items():
        if row["status"] != "right":
            groups[row["status"], reason_of(row)].append(name)
    lines = []
    for (status, reason), names in sorted(groups.items(), key=lambda kv: (kv[0][0] not in BAD, kv[0][0], -len(kv[1]))):
        more = f" and {len(names) - shown} more" if len(names) > shown else ""
        lines.append(f"{status:8} {len(names):5} x {reason}\n               {', '.join(names[:shown])}{more}")
    kept = collections.Counter()
    for row in rows.values():
        kept.update(row.get("fallbacks", {}).keys())
    lines += [f"in PyTorch, in {n} cells: {reason}" for reason, n in kept.most_common()]
    lines += [f"slow: {name}: first call {row.get('first_s')} s, call {row.get('coil_ms')} ms, eager {row.get('eager_ms')} ms" for name, row in rows.items() if is_slow(row)]
    return lines


def summary(rows):
    """Lines of Markdown: for each column how many cells are right, of those that exist; then what is not right, and why cells are empty."""
    statuses = [("right", ("right",)), ("wrong", ("wrong", "error", "crash")), ("refused", ("refused",)), ("time", ("timeout",)), ("no export", ("export",)),
                ("eager refuses", ("eager",)), ("no such cell", ("none",))]
    lines = ["| door | target | type | direction | sizes | " + " | ".join(t for t, _ in statuses) + " |", "|---|---|---|---|---|" + "--:|" * len(statuses)]
    found = collections.defaultdict(collections.Counter)
    for name, row in rows.items():
        found[cells.Cell.of(name).column][row["status"]] += 1
    for column in columns_of(rows):
        numbers = [str(sum(found[column][s] for s in members) or "") for _, members in statuses]
        lines.append("| " + " | ".join([*column, *numbers]) + " |")
    return lines
