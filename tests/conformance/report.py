"""docs/coverage.md from the results of a conformance run."""

import collections
import re

COLUMNS = ["float32", "bfloat16", "float16", "int64", "int32", "bool", "complex64"]
HEAD = """# Coverage of PyTorch's operators

Written by `python tests/conformance/run.py --results FILE.jsonl --report docs/coverage.md`: every entry of PyTorch's `op_db` (the operator tests' database), up to six samples in each of
seven dtypes, exported by `torch.export.export`, compiled standalone (no libtorch in the compiled code), run by coil's runtime, compared with eager. A pair of entry and dtype counts as right only if all its samples are.

Right: `torch.testing.assert_close` (with the OpInfo's own tolerance where it has one), or as near to the result in double precision as eager's own is. Random operators are compared as distributions over many calls, uninitialised
tensors by shape and dtype.
"""
MARKS = {"right": "✓", "wrong": "WRONG", "crash": "CRASH", "hang": "HANG", "error": "ERROR", "export": "–", "eager": ""}


def counted(results):
    """Those that eager supports and torch.export can export."""
    return [r for r in results if r["status"] not in ("eager", "export")]


def summary(results):
    of = collections.Counter(r["status"] for r in results)
    pairs = counted(results)
    right = sum(r["status"] == "right" for r in pairs)
    share = 100 * right / max(1, len(pairs))
    return (f"{right} of {len(pairs)} pairs right ({share:.1f} %): {of['refused']} refused, {of['wrong']} wrong, {of['crash']} crashes, {of['hang']} hangs"
            + (f", {of['error']} errors of the test" if of["error"] else "") + f"; apart: {of['export']} that torch.export cannot export, {of['eager']} that eager does not run")


def reasons(result):
    """The reasons of a failure, without what is special to its values."""
    if result["status"] == "wrong":
        return ["wrong result"]
    return [re.sub(r"(?<!E)\d{3,}", "N", part) for part in result["reason"].split(" | ")]


def ranked(results):
    """[(reason, pairs)], most frequent first."""
    count = collections.Counter(reason for r in results if r["status"] not in ("right", "eager", "export") for reason in dict.fromkeys(reasons(r)))
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))


def columns(results):
    lines = ["| dtype | right | pairs | share |", "|---|---|---|---|"]
    for dtype in COLUMNS:
        pairs = [r for r in counted(results) if r["dtype"] == dtype]
        right = sum(r["status"] == "right" for r in pairs)
        lines.append(f"| {dtype} | {right} | {len(pairs)} | {100 * right / max(1, len(pairs)):.1f} % |")
    return lines


def table(results, numbers):
    by_name = collections.defaultdict(dict)
    for r in results:
        by_name[r["name"]][r["dtype"]] = r
    lines = ["| entry | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in by_name.items():
        cells = []
        for dtype in COLUMNS:
            r = row.get(dtype)
            if r is None:
                cells.append("")
            elif r["status"] == "refused":
                cells.append(", ".join(str(numbers[reason]) for reason in dict.fromkeys(reasons(r))))
            else:
                cells.append(MARKS[r["status"]])
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def text(results, more=()):
    """The whole file."""
    ranks = ranked(results)
    numbers = {reason: i + 1 for i, (reason, _) in enumerate(ranks)}
    lines = [HEAD, f"**{summary(results)}.**", "", *columns(results), "", *more]
    lines += ["## Reasons", "", "| number | pairs | reason |", "|---|---|---|"]
    lines += [f"| {numbers[reason]} | {n} | {reason.replace('|', '/')} |" for reason, n in ranks]
    bad = [r for r in results if r["status"] in ("wrong", "crash", "hang", "error")]
    if bad:
        lines += ["", "## Wrong answers and crashes", ""] + [f"- {r['name']} {r['dtype']}: {r['status']}: {r['reason']}" for r in bad]
    lost = [r for r in results if r["status"] == "export"]
    lines += ["", "## What torch.export cannot export", ""] + [f"- {r['name']} {r['dtype']}: {r['reason']}" for r in lost]
    lines += ["", "## Pairs", "", "✓ right, a number: the reason above, –: torch.export cannot, empty: eager does not support it.", "", *table(results, numbers), ""]
    return "\n".join(lines)
