"""docs/coverage.md from the results of a conformance run."""

import collections
import re
import textwrap

COLUMNS = ["float32", "bfloat16", "float16", "int64", "int32", "bool", "complex64", "complex32", "uint16", "uint32", "uint64"]
HEAD = """# Coverage of PyTorch's operators

Every entry of PyTorch's `op_db` (the operator tests' database), with up to six samples in each of eleven dtypes, is
exported by `torch.export.export`, compiled standalone (no libtorch in the compiled code), run by coil's runtime, and
compared with eager. A pair of entry and dtype counts as right only if all its samples are.

Right means: equal by `torch.testing.assert_close` (with the OpInfo's own tolerance where it has one), or as near to the
result in double precision as eager's own is. Random operators are compared as distributions over many calls,
uninitialised tensors by shape and dtype.

This page is written by `python tests/conformance/run.py --report docs/coverage.md` from the results in
`tests/conformance/results`, which `--keep WAY=FILE` brings up to date.
"""
MARKS = {"right": "✓", "wrong": "WRONG", "crash": "CRASH", "hang": "HANG", "error": "ERROR", "export": "–", "eager": ""}


def wrapped(text):
    """A paragraph or an item of a list in lines of at most 120 characters, as all documents have them."""
    return textwrap.fill(text, 120, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)


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


def days(results):
    """When they were judged."""
    found = sorted({r["day"] for r in results if "day" in r})
    first, last = (found or [""])[0], (found or [""])[-1]
    return first if first == last else f"{first} to {last[8:] if last[:8] == first[:8] else last}"  # 2026-11-22 to 24


def columns(results):
    lines = ["| dtype | right | pairs | share | judged |", "|---|---|---|---|---|"]
    for dtype in COLUMNS:
        pairs = [r for r in counted(results) if r["dtype"] == dtype]
        right = sum(r["status"] == "right" for r in pairs)
        lines.append(f"| {dtype} | {right} | {len(pairs)} | {100 * right / max(1, len(pairs)):.1f} % | {days(pairs)} |")
    return lines


def table(results, numbers, extra):
    """Extra: {column: results}, of which float32 is shown."""
    by_name = collections.defaultdict(dict)
    for r in results:
        by_name[r["name"]][r["dtype"]] = r
    marks = {what: {r["name"]: MARKS.get(r["status"], r["status"]) for r in rows if r["dtype"] == "float32"} for what, rows in extra.items() if rows}
    titles = [*COLUMNS, *marks]
    lines = ["| op |" + "|".join(titles) + "|", "|---" * (len(titles) + 1) + "|"]
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
        cells += [of.get(name, "") for of in marks.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def shares(results):
    """[(what, number)] of a run through torch.compile."""
    right = [r for r in results if r["status"] == "right"]
    own = sum(r["in_pytorch"] == 0 for r in right)
    none = sum(0 < r["operators"] == r["in_pytorch"] for r in right)
    return [("computed by coil", own), ("some operators stay in PyTorch", len(right) - own - none), ("all operators stay in PyTorch", none),
            *((status, sum(r["status"] == status for r in results)) for status in ("refused", "wrong", "crash", "hang", "error"))]


def compiled_summary(results):
    pairs = counted(results)
    return f"{len(pairs)} pairs: " + ", ".join(f"{n} {what}" for what, n in shares(pairs)) + f"; apart: {len(results) - len(pairs)} that Dynamo or eager does not take"


COMPILED = ("torch.compile", "The same samples through `torch.compile(backend=\"coil\", fullgraph=True)` (`tests/conformance/run.py --compiled`), compared with eager in the same way")
GRADIENTS = ("Gradients", "The gradients of the differentiable entries' samples through `torch.compile(backend=\"coil\", fullgraph=True)` and `backward` "
             "(`tests/conformance/run.py --gradients`), compared with eager's in the same way; operators of both graphs are counted")


def compiled_section(results, title, what):
    """Lines for a run through torch.compile."""
    dtypes = [d for d in [*COLUMNS, "float64"] if any(r["dtype"] == d for r in counted(results))]
    columns = [[n for _, n in shares([r for r in counted(results) if r["dtype"] == d])] for d in dtypes]
    lines = [f"## {title}", "", wrapped(f"{what}, in {', '.join(dtypes)}."), "", wrapped(f"{compiled_summary(results)}."), "", "| | " + " | ".join(dtypes) + " |", "|---" * (len(dtypes) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(str(column[i]) for column in columns) + " |" for i, (row, _) in enumerate(shares([]))]
    judged = {}
    for d in dtypes:
        judged.setdefault(days([r for r in counted(results) if r["dtype"] == d]), []).append(d)
    when = "Judged: " + "; ".join(f"{', '.join(columns)} on {day}" for day, columns in judged.items())
    lines += ["", wrapped(f"{when}." if len(judged) > 1 else f"All were judged on {next(iter(judged))}.")]
    count = collections.Counter(reason for r in results for reason in r.get("fallbacks", {}))
    lines += ["", "What stays in PyTorch most often, with the number of pairs:", ""]
    lines += [wrapped(f"- {n}: {reason}") for reason, n in sorted(count.items(), key=lambda item: (-item[1], item[0]))[:40]]
    bad = [r for r in results if r["status"] in ("refused", "wrong", "crash", "hang", "error")]
    lines += ["", *(wrapped(f"- {r['name']} {r['dtype']}: {r['status']}: {r['reason']}") for r in bad), *([""] if bad else [])]
    return lines


ON_CUDA = " on CUDA"
WHY = {  # what is not right on CUDA
    "unique_consecutive": "of a tensor without elements, whose positions PyTorch 2.11's own shape function gives the tensor's type",
    "__rmod__": "integers divided by 0, of which CUDA says nothing; eager gives -1 or 4294967295",
    "nn.functional.layer_norm": "the gradient of a row of one number, 0, is what rounding leaves: a product and a sum are one operation",
}
WHERE = "One NVIDIA H200 with PyTorch 2.11, whose op_db has other entries and samples; eager and coil compute on the GPU. "


def text(results, more=(), compiled=(), gradients=(), compiled_cuda=(), gradients_cuda=()):
    """The whole file; the last four: results through torch.compile."""
    ranks = ranked(results)
    numbers = {reason: i + 1 for i, (reason, _) in enumerate(ranks)}
    lines = [HEAD, wrapped(f"**{summary(results)}.**"), "", *columns(results), "", *more, *(compiled_section(compiled, *COMPILED) if compiled else []), *(compiled_section(gradients, *GRADIENTS) if gradients else [])]
    for found, (title, what) in ((compiled_cuda, COMPILED), (gradients_cuda, GRADIENTS)):
        lines += compiled_section(found, title + ON_CUDA, WHERE + what.replace("`)", " --device cuda`)")) if found else []
        why = [f"{name}: {reason}" for name, reason in WHY.items() if any(r["name"] == name and r["status"] == "wrong" for r in found)]
        lines += [wrapped(f"Why: {'; '.join(why)}."), ""] if why else []
    lines += ["## Reasons", "", "The numbers that the table of pairs uses, the number of pairs, and the reason.", ""]
    lines += [wrapped(f"- **{numbers[reason]}** ({n}): {reason}") for reason, n in ranks]
    bad = [r for r in results if r["status"] in ("wrong", "crash", "hang", "error")]
    if bad:
        lines += ["", "## Wrong answers and crashes", ""] + [wrapped(f"- {r['name']} {r['dtype']}: {r['status']}: {r['reason']}") for r in bad]
    lost = [r for r in results if r["status"] == "export"]
    lines += ["", "## What torch.export cannot export", ""] + [wrapped(f"- {r['name']} {r['dtype']}: {r['reason']}") for r in lost]
    lines += ["", "## Pairs", "", wrapped("✓: right; a number: refused, for the reason above; –: torch.export cannot export it; empty: eager does not support it. The last columns: float32 through torch.compile."), "", *table(results, numbers, {"compiled": compiled, "gradient": gradients}), ""]
    return "\n".join(lines)
