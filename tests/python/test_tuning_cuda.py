"""The tuner for CUDA on a device that is not there (fake_cuda.cpp): records, replays, candidates that are timed later, refusals."""

import copy
import json
import os
import zipfile

import numpy as np
import pytest

import harness
from tuned_programs import exported_programs


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return exported_programs(tmp_path_factory.mktemp("tuning"))


def on_fake_gpu(*command, sm=90, device=True, ok=True):
    import emulated_cuda

    tools = emulated_cuda.made_tools()
    env = {**os.environ, "COIL_NVRTC": str(tools / "libnvrtc.so"), "COIL_CUDA_DRIVER": str(tools / "libcuda.so") if device else "libno-such-driver.so",
           "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_SM": str(sm), "FAKE_CUDA_IDLE": "1"}
    done = harness.coil(*command, env=env)
    assert not ok or done.returncode == 0, done.stderr
    return done


def load(record):
    return json.loads(record.read_text())


@pytest.fixture(scope="module")
def cuda_records(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda-records")
    made = {}
    for name, (path, _) in programs.items():
        record = folder / f"{name}.json"
        done = on_fake_gpu("compile", path, "--target", "cuda:sm_90", "-o", folder / f"{name}.coil.pt2", "--tune", "fast", "--tune-budget", "40s", "--record", record)
        assert "Tuned for Fake GPU, sm_90, 132 multiprocessors" in done.stdout
        made[name] = record
    return made


def test_cuda_record(programs, cuda_records):
    for record in map(load, cuda_records.values()):
        assert record["hardware"] == {"gpu": "Fake GPU", "architecture": "sm_90", "multiprocessors": 132} and not record["untimed"]
        assert all(p["problem"].startswith(("gemm f32", "conv2d f32", "loop ")) for p in record["problems"]) and record["problems"]
        for problem in record["problems"]:
            limits = [row["up_to"] for row in problem["rows"]]
            assert limits[-1] is None and limits[:-1] == sorted(limits[:-1])
            for point in problem["measured"]:
                if "not surely faster" in point["reason"]:
                    continue
                best = min(t["median_us"] for t in point["timings"])
                assert next(t for t in point["timings"] if t["choice"] == point["chosen"])["median_us"] <= best * 1.03
    mlp = load(cuda_records["mlp"])
    assert any(row["choice"] for p in mlp["problems"] for row in p["rows"]) and any(w["kept"] and w["tuned_us"] < w["untuned_us"] for w in mlp["whole_program"])


def test_cuda_replay_is_the_same_package(programs, cuda_records, tmp_path):
    for name, record in cuda_records.items():
        for again in ("a", "b"):
            on_fake_gpu("compile", programs[name][0], "--target", "cuda:sm_90", "--replay", record, "-o", tmp_path / f"{again}.pt2", device=False)
        tuned = record.parent / f"{name}.coil.pt2"
        with zipfile.ZipFile(tuned) as one, zipfile.ZipFile(tmp_path / "a.pt2") as two:
            assert [f.filename.split("/", 1)[1] for f in one.infolist()] == [f.filename.split("/", 1)[1] for f in two.infolist()]
            assert [f.CRC for f in one.infolist() if f.filename.endswith((".so", ".cu", ".cc"))] == [f.CRC for f in two.infolist() if f.filename.endswith((".so", ".cu", ".cc"))]
        assert "Tuned" in harness.coil_ok("inspect", tmp_path / "a.pt2").stdout or name == "net"


def test_cuda_tuned_program_computes_the_same(programs, cuda_records, tmp_path):
    """Every choice of the record, forced one after the other, on the emulator."""
    import emulated_cuda

    path, module = programs["mlp"]
    x = np.random.default_rng(0).standard_normal((37, 300)).astype("float32")
    np.savez(tmp_path / "x.npz", input=x)
    record = load(cuda_records["mlp"])
    names = {t["choice"] for p in record["problems"] for m in p["measured"] for t in m["timings"]} - {"library"}
    assert len(names) >= 4
    ways = [{}, {"kind": 1, "rows": 128, "columns": 128, "split": 1}, {"kind": 1, "rows": 32, "columns": 64, "split": 4}, {"kind": 7}]
    for n, way in enumerate(ways):
        forced = copy.deepcopy(record)
        for p in forced["problems"]:
            p["rows"] = [{"up_to": 16, "choice": {}, "text": ""}, {"up_to": None, "choice": way if p["problem"].startswith("gemm") else {}, "text": ""}]
        (tmp_path / "forced.json").write_text(json.dumps(forced))
        (tmp_path / str(n)).mkdir()
        program = emulated_cuda.Emulated(path, tmp_path / str(n), options=("--replay", tmp_path / "forced.json"))
        assert program.compiled.returncode == 0, program.compiled.stderr
        assert not way or any(f"{way['rows']}x{way['columns']}" in k if "rows" in way else "gemv" in k for k in program.names), program.names
        done, outputs = program.run(tmp_path / "x.npz")
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(outputs[0], harness.eager(module, x), rtol=1e-4, atol=1e-5)


def test_cuda_candidates_are_built_without_a_device_and_timed_later(programs, tmp_path):
    path, record = programs["mlp"][0], tmp_path / "r.json"
    compile_ = ("compile", path, "--target", "cuda:sm_90", "-o", tmp_path / "p.pt2", "--tune", "fast", "--record", record)
    done = on_fake_gpu(*compile_, device=False)
    assert "no device" in done.stdout and (tmp_path / "p.pt2").exists()
    untimed = load(record)
    assert untimed["untimed"] and not any(p["rows"] for p in untimed["problems"]) and all(p["to_time"] for p in untimed["problems"] if p["problem"].startswith("gemm"))
    at = [p["problem"].startswith("gemm") for p in untimed["problems"]].index(True)
    kept = untimed["problems"][at]["to_time"] = untimed["problems"][at]["to_time"][-1:]
    record.write_text(json.dumps(untimed))
    refused = on_fake_gpu("compile", path, "--target", "cuda:sm_90", "-o", tmp_path / "q.pt2", "--replay", record, ok=False)
    assert refused.returncode and "COIL-E407" in refused.stderr and not (tmp_path / "q.pt2").exists()
    on_fake_gpu(*compile_)
    timed = load(record)
    assert not timed["untimed"] and timed["hardware"]["gpu"] == "Fake GPU"
    assert {str(r["choice"]) for r in timed["problems"][at]["rows"]} <= {"{}", str(kept[0])}


def test_cuda_tuner_refuses(programs, tmp_path):
    path = programs["mlp"][0]
    other = on_fake_gpu("compile", path, "--target", "cuda:sm_90", "-o", tmp_path / "p.pt2", "--tune", "fast", sm=80, ok=False)
    assert other.returncode and "COIL-E303" in other.stderr and "sm_80" in other.stderr
    both = on_fake_gpu("compile", path, "--target", "cpu,cuda:sm_90", "-o", tmp_path / "p.pt2", "--tune", "fast", ok=False)
    assert both.returncode and "COIL-E402" in both.stderr and "apart" in both.stderr
    assert not (tmp_path / "p.pt2").exists()
