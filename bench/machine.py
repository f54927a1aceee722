"""What a measurement's file says about the machine that it was taken on."""

import datetime
import os
import pathlib
import platform
import subprocess

REPO = pathlib.Path(__file__).resolve().parents[1]


def lines(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=REPO).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def describe():
    """Names and versions: processor, GPU, driver, PyTorch, coil's commit. Starts no CUDA context."""
    import importlib.metadata

    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    machine = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "cpu": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    for package in ("torch", "torchvision", "transformers", "triton"):
        try:
            machine[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    gpu = lines("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader")
    if gpu and gpu[0].count(",") == 3:
        name, driver, memory, clock = (field.strip() for field in gpu[0].split(","))
        machine |= {"gpu": name, "gpus": len(gpu), "driver": driver, "gpu_memory": memory, "gpu_max_clock": clock}
    # COIL_COMMIT: of a copy of the tree whose repository stands elsewhere.
    machine["commit"] = os.environ.get("COIL_COMMIT") or (lines("git", "rev-parse", "--short=12", "HEAD") or ["unknown"])[0]
    return machine
