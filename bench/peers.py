"""Times coil beside PyTorch eager, torch.compile, AOTInductor, ONNX Runtime and OpenVINO, in one interleaved run.

usage: python bench/peers.py run [--models PATTERN...] [--peers P...] [--rounds 9] [--burst 0.4] [--json OUT.json] [--markdown OUT.md]
       python bench/peers.py prepare [--models PATTERN...]      makes and caches AOTInductor packages and ONNX files (minutes)

Each peer lives in a warm process of its own with two threads; with --threads 1 times are the computing thread's processor time, which
other work on the machine does not stretch. A round gives every peer one burst of calls, in turn, starting with
another peer each round; processes that wait are stopped, so that no spinning thread of one disturbs another. What is shown: the
median over rounds of each burst's median, and the smallest and largest burst median. "ratio" is coil against the best peer.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import MADE_BY, REPO, artefact, build, folder, prepare, wide_workloads, workloads

PEERS = ["eager", "compile", "compile:freeze", "aoti", "aoti:freeze", "ort", "openvino", "coil"]
BUILD = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build"))
START_SECONDS = 600  # torch.compile of a large model on a busy machine


# In the worker process
def flat(outputs):
    return [o for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def torch_callable(peer, name):
    import torch
    import zoo

    torch.set_num_threads(THREADS)
    module, args = build(name)
    start = time.perf_counter()
    if peer == "eager":
        call = lambda: module(*args)
    elif peer.startswith("compile"):
        compiled = torch.compile(module, options={"freezing": True} if peer.endswith("freeze") else {})
        call = lambda: compiled(*args)
    else:
        loaded = torch._inductor.aoti_load_package(str(folder(name) / artefact(peer)))
        call = lambda: loaded(*args)
    guard = torch.inference_mode() if not peer.startswith("compile") else torch.no_grad()
    guard.__enter__()  # for the life of the worker
    outputs = [zoo.widen(o) for o in flat(call())]
    return call, outputs, time.perf_counter() - start


def ort_callable(name):
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    start = time.perf_counter()
    session = ort.InferenceSession(folder(name) / artefact("ort"), options, providers=["CPUExecutionProvider"])
    with np.load(folder(name) / "io.npz") as data:
        feeds = {i.name: data[f"in_{k}"] for k, i in enumerate(session.get_inputs())}
    call = lambda: session.run(None, feeds)
    return call, call(), time.perf_counter() - start


def openvino_callable(name):
    """The ONNX file in OpenVINO, at the model's own precision: by itself it computes float32 models in bfloat16 where the processor has it."""
    import numpy as np
    import openvino as ov

    start = time.perf_counter()
    core = ov.Core()
    model = core.read_model(folder(name) / artefact("ort"))
    precision = ov.Type.bf16 if any(i.element_type == ov.Type.bf16 for i in model.inputs) else ov.Type.f32
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    with np.load(folder(name) / "io.npz") as data:
        for i, port in enumerate(compiled.inputs):
            tensor = ov.Tensor(port.element_type, ov.Shape(data[f"in_{i}"].shape))
            if port.element_type == ov.Type.bf16:
                tensor.data.view(np.uint16)[...] = data[f"in_{i}"].view(np.uint32) >> 16
            else:
                tensor.data[...] = data[f"in_{i}"]
            request.set_input_tensor(i, tensor)
    call = lambda: request.infer()
    call()
    ready = time.perf_counter() - start
    values = [request.get_output_tensor(i) for i in range(len(compiled.outputs))]  # numpy has no bfloat16: it sees its bits as float16
    return call, [(v.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if v.element_type == ov.Type.bf16 else v.data.copy() for v in values], ready


def coil_callable(name):
    import capi
    import numpy as np

    package = pathlib.Path(tempfile.mkdtemp(prefix="coil-bench-")) / "model.coil.pt2"
    start = time.perf_counter()
    subprocess.run([os.environ.get("COIL_BIN", BUILD / "coil"), "compile", folder(name) / "model.pt2", "-o", package], check=True, stdout=subprocess.DEVNULL)
    compiled = time.perf_counter() - start
    model = capi.Model(BUILD / "libcoil_runtime.so", package, threads=THREADS)
    with np.load(folder(name) / "io.npz") as data:
        arrays = [data[f"in_{i}"] for i in range(model.num_inputs)]
    for i, array in enumerate(arrays):
        if model.input_info(i).dtype == capi.BFLOAT16:
            arrays[i] = (array.view(np.uint32) >> 16).astype(np.uint16)  # exact: the values came from bf16
    inputs, outputs = model.bind(*arrays)
    call = lambda: model.call(inputs, outputs, len(arrays))
    call()
    values = [model.array(outputs[i]) for i in range(model.num_outputs)]
    values = [(v.astype(np.uint32) << 16).view(np.float32) if v.dtype == np.uint16 else v for v in values]
    package.unlink()
    package.parent.rmdir()
    return call, values, compiled


def relative_error(outputs, name):
    import numpy as np

    with np.load(folder(name) / "io.npz") as data:
        expected = data["out_0"].astype(np.float64)
    got = np.asarray(outputs[0]).astype(np.float64)
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)) if got.shape == expected.shape else float("inf")


THREADS = int(os.environ.get("COIL_BENCH_THREADS", "2"))


def worker(peer, name):
    """Prints a JSON line when ready, then answers each line on stdin (seconds of a burst) with the times of the calls in it."""
    own = {"coil": coil_callable, "ort": ort_callable, "openvino": openvino_callable}
    call, outputs, ready = own[peer](name) if peer in own else torch_callable(peer, name)
    for _ in range(3):
        call()
    print(json.dumps({"ready_seconds": round(ready, 3), "error": relative_error(outputs, name)}), flush=True)
    own_thread = time.process_time if peer == "openvino" else time.thread_time  # OpenVINO computes on a thread of its own
    clock = own_thread if THREADS == 1 else time.perf_counter
    for line in sys.stdin:
        seconds, times = float(line), []
        call()
        end = clock() + seconds
        while len(times) < 3 or clock() < end and len(times) < 100_000:
            start = clock()
            call()
            times.append(clock() - start)
        print(json.dumps({"median": statistics.median(times), "min": min(times), "calls": len(times)}), flush=True)


# In the parent
class Peer:
    def __init__(self, peer, name):
        self.name, self.bursts = peer, []
        env = dict(os.environ, COIL_BENCH_THREADS=str(THREADS), OMP_NUM_THREADS=str(THREADS), MKL_NUM_THREADS=str(THREADS), TORCHINDUCTOR_FREEZING="0")
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, __file__, "worker", peer, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)

    def answer(self, seconds):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"no answer in {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError((self.log.read().strip().splitlines() or ["the worker ended"])[-1][:300])
        return json.loads(line)

    def burst(self, seconds):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.bursts.append(self.answer(seconds + 120))
        self.process.send_signal(signal.SIGSTOP)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def measure(name, peers, rounds, seconds):
    """One row: {"model", "peers": {peer: {...}}}."""
    record, row, alive = prepare(name, peers), {"model": name, "peers": {}}, []
    try:
        for peer in peers:  # one after the other: torch.compile uses both cores
            made = record.get(MADE_BY.get(peer, peer), {})
            if "error" in made:
                row["peers"][peer] = {"failed": made["error"]}
                continue
            process = Peer(peer, name)
            try:
                row["peers"][peer] = process.answer(START_SECONDS)
                process.process.send_signal(signal.SIGSTOP)
                alive.append(process)
            except (RuntimeError, TimeoutError, ValueError) as error:
                row["peers"][peer] = {"failed": str(error)}
                process.stop()
        for i in range(rounds):
            for k in range(len(alive)):
                alive[(i + k) % len(alive)].burst(seconds)
    finally:
        for process in alive:
            process.stop()
    for process in alive:
        medians = [b["median"] for b in process.bursts]
        row["peers"][process.name] |= {"us": statistics.median(medians) * 1e6, "us_low": min(medians) * 1e6, "us_high": max(medians) * 1e6,
                                       "calls": sum(b["calls"] for b in process.bursts)}
    others = [p["us"] for n, p in row["peers"].items() if n != "coil" and "us" in p]
    if others and "us" in row["peers"].get("coil", {}):
        row["ratio"] = row["peers"]["coil"]["us"] / min(others)
    return row


def human(us):
    return f"{us:.2f} us" if us < 100 else f"{us:.0f} us" if us < 1000 else f"{us / 1e3:.2f} ms" if us < 1e5 else f"{us / 1e3:.0f} ms"


def markdown(rows, peers):
    lines = ["| model | " + " | ".join(peers) + " | coil / best |", "|---" * (len(peers) + 2) + "|"]
    for row in rows:
        cells = []
        for peer in peers:
            p = row["peers"].get(peer, {})
            cells.append(f"{human(p['us'])} ({human(p['us_low'])}-{human(p['us_high'])})" if "us" in p else "failed" if "failed" in p else "-")
        lines.append(f"| {row['model']} | " + " | ".join(cells) + f" | {row['ratio']:.2f} |" if "ratio" in row else f"| {row['model']} | " + " | ".join(cells) + " | - |")
    return "\n".join(lines) + "\n"


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "threads": THREADS, "load": os.getloadavg()[0]}


def main():
    global THREADS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "prepare"])
    parser.add_argument("--models", nargs="*", default=["*"])
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=float, default=0.4, help="seconds")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    THREADS = options.threads
    known = [*workloads(), *(wide_workloads() if any(p.startswith("wide_") for p in options.models) else [])]
    names = [n for n in known if any(fnmatch.fnmatch(n, p) for p in options.models)]
    rows = []
    for name in names:
        if options.command == "prepare":
            prepare(name, options.peers)
            continue
        rows.append(measure(name, options.peers, options.rounds, options.burst))
        print(markdown(rows[-1:], options.peers).splitlines()[-1], flush=True)
        for peer, p in rows[-1]["peers"].items():
            if "failed" in p or p.get("error", 0) > 1e-2:
                print(f"    {peer}: {p.get('failed') or 'wrong: relative error %.1e' % p['error']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))
    if rows and options.markdown:
        options.markdown.write_text(markdown(rows, options.peers))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:4])
    else:
        main()
