"""Descriptions of machines: `coil machine` and --machine, on this CPU and on devices that are not there (fake_cuda.cpp)."""

import json
import os
import zipfile

import pytest
import torch

import harness
from tuned_programs import exported_programs


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return exported_programs(tmp_path_factory.mktemp("machines"))


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """Products whose best kernels depend on how many multiprocessors there are."""
    path = tmp_path_factory.mktemp("product") / "product.pt2"
    module = torch.nn.Sequential(torch.nn.Linear(2048, 1536), torch.nn.ReLU(), torch.nn.Linear(1536, 1024))
    torch.export.save(torch.export.export(module.eval(), (torch.randn(256, 2048),)), path)
    return path


def on_gpu(*command, multiprocessors=132, device=True):
    import emulated_cuda

    tools = emulated_cuda.made_tools()
    env = {**os.environ, "COIL_NVRTC": str(tools / "libnvrtc.so"), "COIL_CUDA_DRIVER": str(tools / "libcuda.so") if device else "libno-such-driver.so",
           "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_MULTIPROCESSORS": str(multiprocessors), "FAKE_CUDA_IDLE": "1"}
    return harness.coil_ok(*command, env=env)


def described(*machines):
    return json.dumps({"coil_machines": 1, "machines": list(machines)})


def gpu(**more):
    return {"architecture": "sm_90", "multiprocessors": 132, **more}


def for_gpu(program, output, *options, **how):
    on_gpu("compile", program, "--target", "cuda:sm_90", "-o", output, *options, **how)
    return output.read_bytes()


def kernels(path):
    with zipfile.ZipFile(path) as package:
        return sorted(package.read(f) for f in package.namelist() if f.endswith(".cu"))


def test_describes_the_machine_at_hand(tmp_path):
    cpu, = json.loads(harness.coil_ok("machine", "--target", "cpu").stdout)["machines"]
    assert cpu["architecture"] in ("x86-64", "aarch64") and cpu["own_cache_bytes"] >= 16384 and cpu["shared_cache_bytes"] >= cpu["own_cache_bytes"]
    assert cpu["threads"] >= 1 and cpu["name"]
    device, = json.loads(on_gpu("machine", "--target", "cuda:sm_80,cuda:sm_90", multiprocessors=78).stdout)["machines"]
    assert device["name"] == "Fake GPU" and device["architecture"] == "sm_90" and device["multiprocessors"] == sum(device["parts"]) == 78
    assert device["clock_ghz"] == 1.755 and device["memory_gb_s"] == 3900
    both = json.loads(on_gpu("machine").stdout)["machines"]
    assert [m["architecture"] for m in both] == [cpu["architecture"], "sm_90"]
    harness.assert_refused(harness.coil("machine", "--target", "cuda:sm_90", env={**os.environ, "COIL_CUDA_DRIVER": "libno-such-driver.so"}), "at hand", code=402)


def test_the_machine_decides_and_nothing_else(product, tmp_path):
    usual = for_gpu(product, tmp_path / "model.pt2")
    whole, few = tmp_path / "whole.json", tmp_path / "few.json"
    whole.write_text(on_gpu("machine", "--target", "cuda:sm_90").stdout)
    few.write_text(described(gpu(multiprocessors=78)))
    assert for_gpu(product, tmp_path / "model.pt2", device=False) == usual
    usual_kernels = kernels(tmp_path / "model.pt2")
    for_gpu(product, tmp_path / "model.pt2", "--machine", whole)
    assert usual_kernels and kernels(tmp_path / "model.pt2") == usual_kernels  # an H200 is what the table has
    first = for_gpu(product, tmp_path / "model.pt2", "--machine", few)
    assert kernels(tmp_path / "model.pt2") != usual_kernels
    other = tmp_path / "a copy.json"
    other.write_text(few.read_text())
    assert for_gpu(product, tmp_path / "model.pt2", "--machine", other, device=False) == first
    assert for_gpu(product, tmp_path / "model.pt2", "--machine", "this", multiprocessors=78) == first


def test_a_cpu_that_is_described(programs, tmp_path):
    torch.manual_seed(0)
    path, out = tmp_path / "sums.pt2", tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Softmax(0), (torch.randn(3000, 300),)), path)
    machine = tmp_path / "machine.json"
    row = {"architecture": "x86-64", "own_cache_bytes": 512 << 10, "shared_cache_bytes": 32 << 20, "threads": 8}
    made = {}
    for name, change in (("usual", {}), ("narrow", {"own_cache_bytes": 16 << 10, "shared_cache_bytes": 16 << 10}), ("again", {})):
        machine.write_text(described({**row, **change}))
        harness.coil_ok("compile", path, "--target", "cpu:x86-64-v3", "--machine", machine, "-o", out)
        made[name] = out.read_bytes()
        x = torch.randn(3000, 300)
        import coil

        torch.testing.assert_close(coil.load(out)(x), torch.softmax(x, 0))
    harness.coil_ok("compile", path, "--target", "cpu:x86-64-v3", "-o", out)
    assert out.read_bytes() == made["usual"] == made["again"] != made["narrow"]


def test_a_record_has_its_machine(product, tmp_path):
    record, out = tmp_path / "record.json", tmp_path / "model.pt2"
    tuned = for_gpu(product, out, "--tune", "fast", "--tune-budget", "30s", "--record", record, multiprocessors=78)
    machine = json.loads(record.read_text())["machine"]
    assert machine["multiprocessors"] == 78 and machine["architecture"] == "sm_90"
    tuned_kernels = kernels(out)
    for_gpu(product, out, "--replay", record, device=False)
    assert kernels(out) == tuned_kernels and tuned
    damaged = json.loads(record.read_text())
    damaged["machine"]["multiprocessors"] = 0
    record.write_text(json.dumps(damaged))
    done = harness.coil("compile", product, "--target", "cuda:sm_90", "--replay", record, "-o", out)
    harness.assert_refused(done, "multiprocessors", code=407)


@pytest.mark.parametrize(("text", "said"), [
    ("", "no description"), ("[]", "object"), (described(), "no machine"), (described(gpu(multiprocessors=0)), "multiprocessors"),
    (described(gpu(clock_ghz=-1)), "clock_ghz"), (described(gpu(parts=[1])), "132"), (described(gpu(sms=3)), "sms"),
    (described(gpu(architecture="sm_10")), "sm_10"), (described(gpu(), gpu()), "second time"), (described(gpu(architecture="sm_80")), "no machine of the targets"),
])
def test_refused(text, said, product, tmp_path):
    machine = tmp_path / "machine.json"
    machine.write_text(text)
    done = harness.coil("compile", product, "--target", "cuda:sm_90", "--machine", machine, "-o", tmp_path / "model.pt2")
    harness.assert_refused(done, said, code=402)


def test_a_file_that_is_not_there(product, tmp_path):
    done = harness.coil("compile", product, "--machine", tmp_path / "none.json", "-o", tmp_path / "model.pt2")
    harness.assert_refused(done, "none.json")
