"""The programs that coil is tested with: exports each, in both forms, with inputs and eager's outputs, into a cache folder.

usage: python tests/models/zoo.py list [PATTERN...]
       python tests/models/zoo.py make [--jobs N] [--folders FILE] [PATTERN...]
patterns as in a shell; without any: every small program. FILE gets the folder of each program made, one a line.

A program NAME becomes NAME/NAME.aten.pt2 (as exported), NAME/NAME.core.pt2 (after run_decompositions()), NAME/TAG.npz (in_i
and out_i, flattened; bf16 widened to float32) and NAME/meta.json (dtypes and tolerance). Of the small programs one in four has
the second form, which takes PyTorch twice as long to make; with COIL_TEST_ALL=1 all have. The folder is keyed by the text of the
file that defines the program and PyTorch's version: what is there is right, and is re-made only when one of them changes.
"""

import argparse
import fnmatch
import functools
import hashlib
import importlib
import json
import os
import pathlib
import shutil
import sys
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

ALL = os.environ.get("COIL_TEST_ALL", "0") != "0"
LAYOUT = "1"  # raise when the files below change their meaning

FILES = [
    "ops_pointwise", "ops_core", "ops_conv", "ops_nn", "ops_checks", "ops_sizes", "ops_special", "ops_small_products", "ops_attention", "ops_vectors",
    "ops_groups", "ops_grouped", "ops_ranges", "ops_data_sizes", "ops_control", "ops_recurrent", "ops_resized", "ops_messages", "ops_positions", "ops_lists", "ops_caches", "ops_orders", "ops_out",
    "ops_counting", "ops_statistics", "ops_complex", "ops_fft", "ops_linalg", "ops_fuzzed", "ops_lines", "ops_f64", "ops_gradients",
    "ops_float8", "ops_bits", "ops_unsigned", "ops_quantised", "quantised_models", "big",
]


@functools.cache
def programs():
    """{name: Program}, in order."""
    rows = [row for name in FILES for row in importlib.import_module(name).PROGRAMS]
    table = {row.name: row for row in rows}
    assert len(table) == len(rows), "two programs of one name: " + str([r.name for r in rows if table[r.name] is not r])
    return table


def root():
    return pathlib.Path(os.environ.get("COIL_ZOO", "~/.cache/coil/zoo")).expanduser()


@functools.cache
def key(source):
    import torch

    files = [pathlib.Path(source), HERE / "case.py"]
    if files[0].name == "big.py":
        examples = HERE.parents[1] / "examples"
        files += [examples / "digits/train.py", examples / "digits/digits.pt2", examples / "minilm/encoder.py"]
    text = (LAYOUT + torch.__version__).encode() + b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:12]


def widen(value):
    """A tensor or plain value as a numpy array; bf16 as float32, which numpy lacks."""
    import numpy as np
    import torch

    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach().resolve_conj().resolve_neg()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def dtype_name(value):
    import torch

    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else type(value).__name__


def tolerance(case, values):
    import torch
    from case import TOLERANCE

    if case.tolerance is not None:
        return case.tolerance
    state = [*case.module.parameters(), *case.module.buffers()]
    tensors = [v for v in [*values, *state] if isinstance(v, torch.Tensor)]
    return max((TOLERANCE.get(t.dtype, 0.0) for t in tensors), default=0.0)


def fresh(case):
    """A copy of the module, for programs that change their buffers."""
    import copy

    return copy.deepcopy(case.module) if any(True for _ in case.module.buffers()) else case.module


def forms(name):
    """The forms that the tests try."""
    program = programs()[name]
    return program.forms if ALL or program.group == "model" or zlib.crc32(name.encode()) % 4 == 0 else program.forms[:1]


def write_forms(case, wanted, name, folder):
    """A file of each form that is wanted. A file is complete or absent."""
    import torch

    program = torch.export.export(fresh(case), case.args, case.kwargs or None, dynamic_shapes=case.dynamic)
    for form in wanted:
        path = folder / f"{name}.{form}.pt2"
        unfinished = path.with_name(f".{os.getpid()}.{path.name}")
        torch.export.save(program if form == "aten" else program.run_decompositions(), unfinished)
        unfinished.rename(path)


def write_sets(case, folder):
    """Runs eager on every input set; returns (the widest tolerance, {tag: {"in": dtypes, "out": dtypes}})."""
    import numpy as np
    import torch
    from torch.utils._pytree import tree_flatten, tree_map

    table, loosest = {}, 0.0
    for tag, args in (case.inputs or {"example": case.args}).items():
        inputs = tree_flatten((args, case.kwargs))[0]
        arrays = {f"in_{i}": widen(v) for i, v in enumerate(inputs) if not isinstance(v, str)}  # the export fixed strings
        own = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, case.kwargs))
        arrays = {k: np.array(v, order="K") for k, v in arrays.items()}
        outputs = [v for v in tree_flatten(fresh(case)(*own[0], **own[1]))[0] if v is not None]
        np.savez(folder / f"{tag}.npz", **arrays, **{f"out_{i}": widen(v) for i, v in enumerate(outputs)})
        table[tag] = {"in": [dtype_name(v) for v in inputs], "out": [dtype_name(v) for v in outputs]}
        loosest = max(loosest, tolerance(case, [*inputs, *outputs]))
    return loosest, table


def folder_of(name):
    source = programs()[name].source
    return root() / key(source) / name


def is_made(name, *more):
    folder = folder_of(name)
    return all((folder / file).exists() for file in ["meta.json", *(f"{name}.{form}.pt2" for form in {*forms(name), *more})])


def make(name, *more):
    """Makes one program, in the forms that are tried and in `more`, unless it is there; returns its folder. Atomic: a folder with its meta.json is complete
    or absent, and so is each file of a form."""
    import torch
    from case import seeded

    done = folder_of(name)
    if is_made(name, *more):
        return done
    with torch.no_grad():
        case = seeded(name, programs()[name].make)
        if not is_described(done):
            describe(case, name, done)
        wanted = [form for form in ("aten", "core") if form in (*forms(name), *more) and not (done / f"{name}.{form}.pt2").exists()]
        write_forms(case, wanted, name, done)
    return done


def is_described(folder):
    return (folder / "meta.json").exists()


def describe(case, name, done):
    """Makes the folder, with inputs, eager's outputs and meta.json."""
    work = done.with_name(f".{name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    limit, sets = write_sets(case, work)
    meta = {"name": name, "group": programs()[name].group, "tolerance": limit, "cosine": case.cosine, "sets": sets}
    (work / "meta.json").write_text(json.dumps(meta, indent=1))
    try:
        work.rename(done)
    except OSError:  # another process was quicker
        shutil.rmtree(work, ignore_errors=True)


def make_some(names):
    """Makes many; returns {name: error} of those that PyTorch could not export."""
    failed = {}
    for name in names:
        try:
            make(name)
        except Exception as error:  # one program that PyTorch refuses must not hide the others
            failed[name] = f"{type(error).__name__}: {str(error)[:600]}"
    return failed


def matching(patterns):
    if not patterns:
        return [name for name, row in programs().items() if row.group == "op"]
    return [name for name in programs() if any(fnmatch.fnmatch(name, p) for p in patterns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["list", "make"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folders", type=pathlib.Path)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_intermixed_args()
    names = matching(options.patterns)
    if options.command == "list":
        for name in names:
            program = programs()[name]
            state = "ready" if is_made(name) else "-"
            print(f"{name:32} {program.group:6} {'+'.join(forms(name)):10} {state}")
        return 0
    start = time.time()
    if options.jobs > 1 and len(names) > 1:
        import concurrent.futures
        import multiprocessing

        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            parts = pool.map(make_some, [names[i :: options.jobs * 4] for i in range(options.jobs * 4)])
            failed = {name: text for part in parts for name, text in part.items()}
    else:
        failed = make_some(names)
    for name, text in failed.items():
        print(f"FAILED {name}: {text}")
    if options.folders:
        made = [folder_of(name) for name in names if name not in failed]
        options.folders.write_text("".join(f"{folder}\n" for folder in made))
    print(f"{len(names) - len(failed)} of {len(names)} programs in {root()}, {time.time() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
