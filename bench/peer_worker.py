"""What `peers.py` runs in a process of its own: one peer with one model, ready to be called.

usage: peer_worker.py PEER MODEL FOLDER, by peers.Peer. FOLDER has the model's artefacts. Prints a JSON line when ready, then one for each line on stdin: "0.4" asks for a burst of so
many seconds, "x200" for so many calls, each one's time. "stream" is no peer but what memory allows: a loop of vector loads and of stores past
the caches that reads as many bytes as the model's inputs have and writes as many as its outputs.
"""

import ctypes
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import REPO, artefact, build

BUILD = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build"))
THREADS = int(os.environ.get("COIL_BENCH_THREADS", "2"))


def resident(field="VmRSS"):
    """MB of this process: files that it has mapped and read count."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024


def flat(outputs):
    return [o for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def torch_callable(peer, name, place):
    import torch
    import zoo
    from torch.utils._pytree import tree_leaves

    torch.set_num_threads(THREADS)
    module, args = build(name)
    trim()
    own = [t for t in (*module.parameters(), *module.buffers(), *tree_leaves(args)) if isinstance(t, torch.Tensor)]
    bare = resident() - sum(t.nbytes for t in own) / 2**20  # the module's code is loaded by now
    start = time.perf_counter()
    if peer == "eager":
        call = lambda: module(*args)
    elif peer.startswith("compile"):
        compiled = torch.compile(module, options={"freezing": True} if peer.endswith("freeze") else {})
        call = lambda: compiled(*args)
    else:
        loaded = torch._inductor.aoti_load_package(str(place / artefact(peer)))
        call = lambda: loaded(*args)
    guard = torch.inference_mode() if not peer.startswith("compile") else torch.no_grad()
    guard.__enter__()  # for the life of the worker
    outputs = [zoo.widen(o) for o in flat(call())]
    return call, outputs, time.perf_counter() - start, bare


def ort_callable(place):
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    start, bare = time.perf_counter(), resident()
    session = ort.InferenceSession(place / artefact("ort"), options, providers=["CPUExecutionProvider"])
    with np.load(place / "io.npz") as data:
        feeds = {i.name: data[f"in_{k}"] for k, i in enumerate(session.get_inputs())}
    call = lambda: session.run(None, feeds)
    return call, call(), time.perf_counter() - start, bare


def openvino_callable(place):
    """The ONNX file in OpenVINO, at the model's own precision: by itself it computes float32 models in bfloat16 where the processor has it."""
    import numpy as np
    import openvino as ov

    start, bare = time.perf_counter(), resident()
    core = ov.Core()
    model = core.read_model(place / artefact("ort"))
    precision = ov.Type.bf16 if any(i.element_type == ov.Type.bf16 for i in model.inputs) else ov.Type.f32
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    with np.load(place / "io.npz") as data:
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
    return call, [(v.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if v.element_type == ov.Type.bf16 else v.data.copy() for v in values], ready, bare


def coil_callable(place):
    import capi
    import numpy as np

    package = pathlib.Path(tempfile.mkdtemp(prefix="coil-bench-")) / "model.coil.pt2"
    start, bare = time.perf_counter(), resident()
    subprocess.run([os.environ.get("COIL_BIN", BUILD / "coil"), "compile", place / "model.pt2", "-o", package], check=True, stdout=subprocess.DEVNULL)
    compiled = time.perf_counter() - start
    model = capi.Model(BUILD / "libcoil_runtime.so", package, threads=THREADS)
    with np.load(place / "io.npz") as data:
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
    return call, values, compiled, bare


STREAM = """
#include <immintrin.h>
extern "C" void stream(const float* in, long in_vectors, float* out, long out_vectors) {
  const long each = out_vectors ? in_vectors / out_vectors : 0;
#pragma omp parallel for schedule(static)
  for (long i = 0; i < out_vectors; ++i) {
    VECTOR x = SET(1);
    for (long k = 0; k < each; ++k) x = ADD(x, LOAD(in + (k * out_vectors + i) * LANES));
    STORE(out + i * LANES, x);
  }
}
"""


def stream_callable(place):
    import numpy as np

    start, bare = time.perf_counter(), resident()
    with np.load(place / "io.npz") as data:
        sizes = {kind: sum(data[k].nbytes for k in data.files if k.startswith(kind)) for kind in ("in_", "out_")}
    wide = "avx512f" in open("/proc/cpuinfo").read()
    prefix, vector = ("_mm512_", "__m512") if wide else ("_mm256_", "__m256")
    words = {"VECTOR": vector, "LANES": 16 if wide else 8, "SET": prefix + "set1_ps", "ADD": prefix + "add_ps", "LOAD": prefix + "load_ps", "STORE": prefix + "stream_ps"}
    with tempfile.TemporaryDirectory() as made:
        library = pathlib.Path(made) / "stream.so"
        command = ["g++", "-O2", "-march=native", "-fopenmp", "-shared", "-fPIC", "-x", "c++", "-", "-o", library, *(f"-D{k}={v}" for k, v in words.items())]
        subprocess.run(command, input=STREAM, text=True, check=True)
        run = ctypes.CDLL(str(library)).stream
    vectors = [size // (4 * words["LANES"]) for size in sizes.values()]
    arrays = [np.ones(n * words["LANES"] + 16, np.float32) for n in vectors]
    aligned = [ctypes.c_void_p(-(-a.ctypes.data // 64) * 64) for a in arrays]
    call = lambda: (run(aligned[0], ctypes.c_long(vectors[0]), aligned[1], ctypes.c_long(vectors[1])), arrays)
    return call, None, time.perf_counter() - start, bare


def relative_error(outputs, place):
    import numpy as np

    with np.load(place / "io.npz") as data:
        expected = data["out_0"].astype(np.float64)
    got = np.asarray(outputs[0]).astype(np.float64)
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)) if got.shape == expected.shape else float("inf")


def trim():
    """Gives back what was freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def called_memory(call):
    """MB of this process at most while it is called."""
    trim()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the greatest size so far
    for _ in range(3):
        call()
    return resident("VmHWM")


def times_of(call, clock, wish):
    call()
    times, count = [], int(wish[1:]) if wish.startswith("x") else 0
    end = clock() + (0 if count else float(wish))
    while len(times) < max(count, 3) or not count and clock() < end and len(times) < 100_000:
        start = clock()
        call()
        times.append(clock() - start)
    return {"median": statistics.median(times), "min": min(times), "max": max(times), "calls": len(times)} | ({"times": times} if count else {})


def main(peer, name, folder):
    place = pathlib.Path(folder)
    own = {"coil": coil_callable, "ort": ort_callable, "openvino": openvino_callable, "stream": stream_callable}
    call, outputs, ready, bare = own[peer](place) if peer in own else torch_callable(peer, name, place)
    for _ in range(3):
        call()
    error = relative_error(outputs, place) if outputs is not None else 0
    del outputs
    memory = called_memory(call)
    print(json.dumps({"ready_seconds": round(ready, 3), "error": error, "resident_mb": round(memory, 1), "model_mb": round(memory - bare, 1)}), flush=True)
    own_thread = time.process_time if peer == "openvino" else time.thread_time  # OpenVINO computes on a thread of its own
    clock = own_thread if THREADS == 1 else time.perf_counter
    for line in sys.stdin:
        print(json.dumps(times_of(call, clock, line.strip())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
