"""PyTorch's own ways to look into a compiler: TORCH_LOGS, TORCH_TRACE, TORCH_COMPILE_DEBUG, and coil.explain."""

import logging
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import coil
import harness
from coil import logs  # noqa: F401

ARTIFACTS = ("graphs", "fusion", "schedule", "output_code", "perf_hints", "recompiles")
PROGRAM = """
import torch
import torch.nn.functional as F

def function(x):
    y = F.dropout((x.sin() + 1).sum(1), 0.5)  # random numbers are PyTorch's
    return y * 2

f = torch.compile(function, backend="coil", dynamic=False)
f(torch.randn(4, 5))
f(torch.randn(6, 5))
"""


def run(tmp_path, **environment):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    env = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")} | {"PYTHONPATH": str(harness.BUILD / "python")} | environment
    done = subprocess.run([sys.executable, "-W", "ignore", path], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def said(text, artifact):
    return [line for line in text.splitlines() if f"logs/{artifact}.py" in line]


def test_torch_logs(tmp_path):
    text = run(tmp_path, TORCH_LOGS="coil", TMPDIR=str(tmp_path))
    assert any("2 programs" in line or "1 operators in PyTorch" in line for line in said(text, "graphs"))
    assert any("native_dropout" in line and "random numbers" in line for line in said(text, "graphs"))
    assert any("sin_add_sum" in line for line in said(text, "fusion"))
    assert any("1 kernels" in line for line in said(text, "schedule")) and any("bytes of generated code" in line for line in said(text, "output_code"))
    assert any("compilation 2 of frame 0, for inputs float32[6, 5]" in line for line in said(text, "recompiles"))
    assert not list(tmp_path.glob("coil-stages-*"))  # folders of texts are gone


def test_traces_and_folders_of_stages(tmp_path):
    text = run(tmp_path, TORCH_LOGS="+coil.logs.output_code", TORCH_TRACE=str(tmp_path / "trace"), TORCH_COMPILE_DEBUG="1")
    code = said(text, "output_code")
    assert any("cd::sin(" in line for line in code) and not said(text, "schedule")
    assert any("program.py:6 in function" in line for line in code)  # the kernel says where it comes from
    trace = "".join(path.read_text() for path in (tmp_path / "trace").iterdir())
    for name in ("coil_inference_graph", "coil_000_inference_00_graph.txt", "_plan.txt", "_host.cc"):
        assert name in trace, name
    folders = sorted(tmp_path.glob("torch_compile_debug/run_*/coil/*"))
    assert [f.name[4:] for f in folders] and all(any(p.name.endswith("_host.cc") for p in f.iterdir()) for f in folders)


@pytest.mark.parametrize("way", ["COIL_DUMP", "dump"])
def test_programs_do_not_write_over_each_other(way, tmp_path, monkeypatch):
    options = {}
    if way == "dump":
        options["dump"] = str(tmp_path / "stages")
    else:
        monkeypatch.setenv("COIL_DUMP", str(tmp_path / "stages"))
    torch._dynamo.reset()
    x = torch.randn(7, 13, requires_grad=True)
    torch.compile(lambda x: (x * (1.625 if way == "dump" else 1.375)).exp(), backend="coil", options=options)(x).sum().backward()
    folders = sorted((tmp_path / "stages").iterdir())
    assert [f.name.split("_", 1)[1] for f in folders] == ["forward", "backward"], folders
    assert all(any(p.name.endswith("_host.cc") for p in f.iterdir()) for f in folders)


@pytest.fixture
def listening():
    """All that coil's logs say, in a list, at a level that the test chooses."""
    heard = []

    class Handler(logging.Handler):
        def emit(self, record):
            heard.append((record.name, record.getMessage()))

    logger, handler = logging.getLogger("coil"), Handler()
    logger.addHandler(handler)
    levels = {name: logging.getLogger(f"coil.logs.{name}").level for name in ARTIFACTS}
    yield heard
    logger.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(f"coil.logs.{name}").setLevel(level)


@pytest.mark.parametrize("artifact", ["fusion", "schedule", "output_code"])
def test_one_alone(artifact, listening):
    logging.getLogger(f"coil.logs.{artifact}").setLevel(logging.DEBUG)
    torch._dynamo.reset()
    torch.compile(lambda x: F.softmax(x * 1.25, -1) @ x.t(), backend="coil")(torch.randn(7, 9 + len(artifact)))
    assert {name for name, _ in listening} == {f"coil.logs.{artifact}"}
    words = {"fusion": "softmax", "schedule": "arena", "output_code": "COIL_KERNEL"}
    assert words[artifact] in "\n".join(text for _, text in listening)


def test_nothing_is_written_where_nobody_looks(monkeypatch):
    from coil.dynamo import _program
    folders = []
    monkeypatch.setattr(_program, "program_compiled", lambda folder, settings, report: folders.append(folder))
    torch._dynamo.reset()
    torch.compile(lambda x: x * 3.875, backend="coil")(torch.randn(11))
    assert folders == [""]


def test_explain():
    def function(x):
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return F.dropout(y, 0.5).sum()

    told = coil.explain(function)(torch.randn(3, 21))
    assert told.dynamo_graphs == 2 and len(told.breaks) == 1 and "test_torch_logs.py" in told.breaks[0]
    assert told.compiled.graphs == 2 and told.compiled.fallback_operators == 1
    text = str(told)
    assert "2 graphs, 1 breaks" in text and "native_dropout" in text
    assert pathlib.Path(__file__).name in text
