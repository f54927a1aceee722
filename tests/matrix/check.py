"""One cell in this process: builds the program, runs it in eager, in float64 and through the door, and says what came of it.

A row has "status": right, wrong, refused (by coil, with its code), error (anything else that is raised), eager (PyTorch's eager refuses the
program in this type), export (torch.export or AOTAutograd refuses it), none (there is no such cell); crash and timeout come from jobs.py.
"text" says why, and more is measured: error and eager_error, first_s, eager_ms and coil_ms, programs, operators, in_torch, fallbacks."""

import contextlib
import copy
import gc
import tempfile
import time

import torch

import cells
import doors
import judge
import subjects

BY_DESIGN = "random numbers are PyTorch's"


class Known:
    """What the cells of one program share, kept until another program comes."""

    def __init__(self):
        self.program, self.parts = None, {}

    def get(self, program, key, make):
        if program != self.program:
            self.program, self.parts = program, {}
            gc.collect()
        if key not in self.parts:
            try:
                self.parts[key] = make(), None
            except Exception as error:
                self.parts[key] = None, error
        value, error = self.parts[key]
        if error is not None:
            raise error
        return value


class Stop(Exception):
    """The row is known."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def line_of(error, length=300):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:length]


@contextlib.contextmanager
def otherwise(status, what):
    """What is raised inside becomes a row of that status."""
    try:
        yield
    except Stop:
        raise
    except Exception as error:
        raise Stop(status, f"{what}: {line_of(error)}") from error


class Bench:
    def __init__(self, device=None):
        self.device, self.known = device or "cpu", Known()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is judged as such

    def place(self, cell):
        """The device of tensors; None: emulated."""
        return "cpu" if cell.target == "cpu" else self.device if self.device.startswith("cuda") else None

    def references(self, cell, subject, device):
        """(module, sets, eager's results, results in float64 or None)."""
        program, part = cell.program, (cell.direction, cell.sizes, device)

        def build(dtype):
            module, sets = subjects.in_dtype(subject, dtype)
            return (module, sets) if device == "cpu" else (module.to(device), torch.utils._pytree.tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, sets))

        module, sets = self.known.get(program, ("module", cell.dtype, *part), lambda: build(cell.dtype))
        run = lambda m, s, dtype: doors.eager(m, s, dtype, cell.direction, device.partition(":")[0])
        with otherwise("eager", "eager refuses"):
            eager = self.known.get(program, ("eager", cell.dtype, *part), lambda: run(module, sets, cell.dtype))
        if any(e is None for e in eager):
            raise Stop("none", "nothing to differentiate")
        try:
            exact = self.known.get(program, ("exact", *part), lambda: doors.exact(*build("float64"), cell.direction, device.partition(":")[0]))
        except Exception:
            exact = None
        return module, sets, eager, exact

    def exported(self, cell, subject, module, sets, place="cpu"):
        def export():
            made = doors.Exported(module, sets, cell.dtype, cell.direction, subject.dynamic if cell.sizes == "dynamic" else None, place.partition(":")[0])
            if cell.sizes == "dynamic" and not made.has_symbols():
                raise Stop("export", "cannot be exported: every size becomes a constant")
            return made

        with otherwise("export", "cannot be exported"):
            return self.known.get(cell.program, ("export", cell.dtype, cell.direction, cell.sizes, place), export)

    def check(self, cell, stage):
        reason = cells.without_a_run(cell, self.device.startswith("cuda"))
        if reason:
            raise Stop("none", reason)
        stage("building")
        with otherwise("eager", "cannot be built"):
            subject = self.known.get(cell.program, ("subject", cell.direction, cell.sizes), lambda: subjects.make(cell.program, cell.direction, cell.sizes))
        if cell.dtype != "float32" and not subjects.has_float32(subject):
            raise Stop("none", "nothing of it is float32")
        place = self.place(cell)
        stage("eager")
        module, sets, eager, exact = self.references(cell, subject, place or "cpu")
        if cell.sizes == "dynamic" and cell.door != "compile" and subject.dynamic is None:
            raise Stop("none", subject.note or "no other size is known")
        stage(cell.door)
        row = {"note": subject.note} if subject.note else {}
        if place is None:
            found = self.emulate(cell, subject, module, sets, eager)
        elif cell.door == "compile":
            found = self.compile(cell, module, sets, row, place)
        else:
            found = self.package(cell, subject, module, sets, row, place)
        verdict = judged(cell, found, eager, exact, subject.tolerance)
        if verdict["status"] == "wrong" and cell.direction == "gradients" and len(found[0]) < len(eager[0]) and self.aot_gives(cell, module, sets, place) == len(found[0]):
            raise Stop("eager", "AOTAutograd gives no gradient where eager does (backend='aot_eager')")
        if verdict["status"] == "wrong":
            others = self.known.get(cell.program, ("nudged", cell.direction, cell.dtype, cell.sizes, place or "cpu"), lambda: nudged_results(cell, module, sets, place or "cpu"))
            verdict = judged(cell, found, eager, exact, subject.tolerance, others)
            if verdict["status"] == "wrong" and cell.direction == "gradients" and cell.door == "compile" and place == "cpu":
                verdict = graph_by_graph(cell, module, sets, verdict)
        return row | verdict

    def aot_gives(self, cell, module, sets, device):
        """How many gradients PyTorch's own backend gives that runs the graphs of AOTAutograd; None where that fails, too."""
        if cell.door != "compile":
            return None
        torch._dynamo.reset()
        try:
            return len(doors.call(torch.compile(module, backend="aot_eager"), module, *doors.fresh(sets[0]), cell.dtype, cell.direction, device.partition(":")[0]))
        except Exception:
            return None
        finally:
            torch._dynamo.reset()

    def emulate(self, cell, subject, module, sets, eager):
        exported = self.exported(cell, subject, module, sets)
        with tempfile.TemporaryDirectory(prefix="coil-matrix-") as folder:
            done, found = doors.emulated(exported, sets, folder)
        if found is None:
            text = (done.stderr or done.stdout).strip()
            refused = "COIL-E" in text and 2 <= done.returncode < 70
            raise Stop("refused" if refused else "error", ("coil refuses: " if refused else f"exit code {done.returncode}: ") + " ".join(text.split())[:300])
        return [[a.reshape(e.shape).to(e.dtype) if a.numel() == e.numel() else a for a, e in zip(f, es)] if len(f) == len(es) else f for f, es in zip(found, eager)]

    def compile(self, cell, module, sets, row, device):
        import coil

        torch._dynamo.reset()
        coil.reset_compile_stats()
        module = copy.deepcopy(module)
        compiled = torch.compile(module, backend="coil", dynamic=cell.sizes == "dynamic")
        run = lambda s: doors.call(compiled, module, *s, cell.dtype, cell.direction, device.partition(":")[0])
        found, start = [], time.perf_counter()
        with by_coil():
            for s in doors.fresh(sets):
                found.append(run(s))
                row.setdefault("first_s", round(time.perf_counter() - start, 2))
        stats = coil.compile_stats()
        row.update(programs=stats.packages, graphs=stats.graphs, operators=stats.operators, in_torch=stats.fallback_operators)
        fallbacks = {reason: count for reason, count in stats.fallbacks.items() if BY_DESIGN not in reason}
        if fallbacks:
            row["fallbacks"] = fallbacks
        calls = {"eager_ms": lambda: doors.call(module, module, *sets[0], cell.dtype, cell.direction, device.partition(":")[0]), "coil_ms": lambda: run(sets[0])}
        row.update(interleaved(calls))
        return found

    def package(self, cell, subject, module, sets, row, place):
        import coil

        exported = self.exported(cell, subject, module, sets, place)
        target = "cpu" if place == "cpu" else "cuda:sm_{}{}".format(*torch.cuda.get_device_capability(place))

        def build():
            start = time.perf_counter()
            package = coil.compile(exported.program, target=target)
            row["first_s"] = round(time.perf_counter() - start, 2)
            return package

        with by_coil():
            package = self.known.get(cell.program, ("package", cell.dtype, cell.direction, cell.sizes, place), build)
            run = doors.stock(package) if cell.door == "stock" else package
            return [exported.call(run, *s) for s in sets]


@contextlib.contextmanager
def by_coil():
    """Errors of coil's are refusals, its bugs and all others errors; Dynamo wraps them."""
    import coil

    try:
        yield
    except Exception as error:
        cause, chain = error, []
        while cause is not None:
            chain.append(cause)
            cause = getattr(cause, "inner_exception", None) or cause.__cause__
        ours = next((e for e in chain if isinstance(e, coil.Error)), None)
        if ours is not None and not isinstance(ours, coil.InternalError):
            raise Stop("refused", "coil refuses: " + " ".join(str(ours).split())[:300]) from error
        if "COIL-E" in str(error):
            raise Stop("refused", "coil refuses: " + " ".join(str(error)[str(error).index("COIL-E"):].split())[:300]) from error
        raise Stop("error", line_of(ours or chain[-1])) from error


def interleaved(calls, seconds=0.4, rounds=5):
    """{name: least ms of a call}, in turns."""
    best, end = dict.fromkeys(calls, float("inf")), time.perf_counter() + seconds
    for n in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
        if n >= 1 and time.perf_counter() > end:
            break
    return {name: round(s * 1e3, 3) for name, s in best.items()}


NUDGES = 6


def nudged_results(cell, module, sets, device):
    """For each set of arguments eager's results, NUDGES times, of numbers that differ in their last bit."""
    runs = [doors.eager(*doors.nudged(module, sets, cell.dtype, seed), cell.dtype, cell.direction, device.partition(":")[0]) for seed in range(NUDGES)]
    return list(zip(*runs))


def graph_by_graph(cell, module, sets, verdict):
    """The verdict of a cell whose gradients are further from float64 than eager's: right if each of its graphs is, given the same arguments."""
    import graphs

    torch._dynamo.reset()
    module = copy.deepcopy(module)
    compiled = torch.compile(module, backend="coil", dynamic=cell.sizes == "dynamic")
    with graphs.Graphs(cell.dtype).watched() as seen:
        for s in doors.fresh(sets):
            doors.call(compiled, module, *s, cell.dtype, cell.direction)
    if seen.text or not seen.calls:
        return verdict | {"text": f"{verdict['text']}; {seen.text or 'coil is given no graph'}"}
    return verdict | {"status": "right", "text": "", "by_graph": verdict["text"]}


def judged(cell, found, eager, exact, tolerance, others=None):
    """`others`: see judge.gradients, for each set of arguments."""
    worst = None
    for n, (f, e) in enumerate(zip(found, eager)):
        x = exact[n] if exact is not None and len(exact[n]) == len(e) else None
        nudged = others[n] if others else ()
        one = judge.forward(f, e, x, cell.dtype, tolerance, nudged) if cell.direction == "forward" else judge.gradients(f, e, x, cell.dtype, nudged)
        if len(found) > 1 and one["status"] != "right":
            one["text"] = f"call {n + 1}: {one['text']}"
        if worst is None or (one["status"] != "right", one.get("error", 0)) > (worst["status"] != "right", worst.get("error", 0)):
            worst = one
    return worst


def check(bench, item, stage):
    cell = cells.Cell.of(item["id"])
    try:
        return bench.check(cell, lambda text: stage(text))
    except Stop as stop:
        return {"status": stop.status, "text": str(stop)}
    except Exception as error:
        import traceback

        return {"status": "error", "text": line_of(error), "trace": traceback.format_exc()[-1500:]}
