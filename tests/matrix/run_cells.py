"""The matrix: every program of the zoo and every architecture, through every door, on every target, in every type, forward and with gradients,
with fixed and with dynamic sizes.

usage: python tests/matrix/run_cells.py [--door D,..] [--target T,..] [--dtype T,..] [--direction D,..] [--sizes S,..] [--only WORD ...]
           [--sample N [--seed S]] [--jobs N] [--limit SECONDS] [--budget SECONDS] [--results FILE.jsonl] [--fresh] [--retry] [--device cuda:0]
           [--json FILE] [--table FILE]

Cells are done in worker processes, each within a time limit; a crash costs one cell. Each is a line of the results file when it is known, and a
second run goes on where the first stopped (--fresh: anew; --retry: what was not right). Prints a table in which every cell that is not right has
its reason. CUDA is emulated on the CPU, for packages; with --device cuda:0 it is that GPU, through every door. Exit code 1 when a cell is wrong,
crashes or raises. The whole (hours): nice python tests/matrix/run_cells.py --jobs $(nproc) --json matrix.json"""

import argparse
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(HERE), str(REPO / "tests/gpu")]
os.environ["COIL_CACHE"] = "off"

import cells
import jobs
import table

RETIRE_KB = 5 << 20  # a worker that holds more gives its memory back


def worker(options):
    import resource
    import warnings

    warnings.simplefilter("ignore")
    os.nice(options.nice)
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # the stock loader's test compiles for the CPU: 20 seconds a process
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    build = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build")).resolve()
    sys.path.insert(0, str(build / "python"))
    import torch

    torch.set_num_threads(options.threads)
    torch._dynamo.config.recompile_limit = 16
    import check

    bench = check.Bench(options.device)

    def handle(item, stage):
        row = check.check(bench, item, stage)
        return row | {"retire": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > RETIRE_KB}

    jobs.worker_loop(handle)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, values in cells.AXES.items():
        parser.add_argument(f"--{axis}", help="of " + ",".join(values))
    parser.add_argument("--only", nargs="*", default=[], help="words: programs whose names contain one of them")
    parser.add_argument("--sample", type=int, help="so many cells, half of them of networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch in each worker")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--limit", type=float, default=180, help="seconds of a cell")
    parser.add_argument("--budget", type=float, help="seconds; what has not started by then is not run")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("/tmp/coil-matrix.jsonl"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--retry", action="store_true", help="run again what is known not to be right")
    parser.add_argument("--device", default="cpu", help="cuda:0: the cells of CUDA run there")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, help="the table goes there, too")
    parser.add_argument("--list", action="store_true", help="print the cells, run none")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.chosen = {}
    for axis, values in cells.AXES.items():
        wanted = (getattr(options, axis) or "").split(",") if getattr(options, axis) else []
        if unknown := set(wanted) - set(values):
            parser.error(f"--{axis}: {', '.join(sorted(unknown))}: not of {', '.join(values)}")
        options.chosen[axis] = wanted
    return options


def wanted_cells(options):
    import subjects

    found = list(cells.all_cells(subjects.names(options.only), options.chosen, options.device.startswith("cuda")))
    return cells.sample(found, options.sample, options.seed, subjects.is_network) if options.sample else found


def read_results(path):
    """{cell: row}, the last of each; a line that a stop cut short is left out."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row.pop("id")] = row
    return rows


def run(options, wanted):
    """{cell: row} of all that are wanted, known ones and new ones."""
    if options.fresh:
        options.results.unlink(missing_ok=True)
    known = read_results(options.results)
    keep = lambda row: row["status"] != "not run" and not (options.retry and row["status"] in table.BAD)
    todo = [c for c in wanted if c.id not in known or not keep(known[c.id])]
    has_gpu = options.device.startswith("cuda")
    with open(options.results, "a") as file:
        def on_row(item, row):
            row.pop("retire", None)
            known[item["id"]] = row
            if row["status"] != "not run":
                file.write(json.dumps({"id": item["id"], **row}) + "\n")
                file.flush()
            if row["status"] in table.BAD:
                print(f"{row['status']:8} {item['id']}: {table.reason_of(row)}", flush=True)

        items = []
        for cell in todo:
            reason = cells.without_a_run(cell, has_gpu)
            if reason:
                on_row({"id": cell.id}, {"status": "none", "text": reason})
            else:
                items.append({"id": cell.id, "limit": options.limit, "group": cell.program})
        command = [sys.executable, __file__, "--worker", "--device", options.device, "--threads", str(options.threads), "--nice", str(options.nice)]
        deadline = time.monotonic() + options.budget if options.budget else None
        jobs.run(command, items, options.jobs, on_row, deadline=deadline)
    return {c.id: known[c.id] for c in wanted}


def main():
    options = parse()
    if options.worker:
        worker(options)
        return 0
    start = time.monotonic()
    wanted = wanted_cells(options)
    if options.list:
        print("\n".join(c.id for c in wanted))
        return 0
    rows = run(options, wanted)
    seconds = time.monotonic() - start
    shown = table.text(rows, seconds)
    print(shown)
    if options.table:
        options.table.write_text(shown + "\n")
    if options.json:
        sys.path.append(str(REPO / "bench"))
        import machine

        options.json.write_text(json.dumps({"machine": machine.describe(), "seconds": round(seconds, 1), "rows": rows}, indent=1))
    return 1 if any(row["status"] in ("wrong", "crash", "error") for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
