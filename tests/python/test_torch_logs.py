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
    assert any("7 operators, 1 program, 1 operator in PyTorch" in line for line in said(text, "graphs"))
    assert any("native_dropout" in line and "random numbers" in line and "program.py:6" in line for line in said(text, "graphs"))
    assert any("sin_add_sum" in line for line in said(text, "fusion"))
    assert any("1 kernel (" in line for line in said(text, "schedule")) and any("bytes of generated code" in line for line in said(text, "output_code"))
    assert any("compilation 2 of frame 0, for inputs float32[6, 5]" in line for line in said(text, "recompiles"))
    assert not list(tmp_path.glob("coil-stages-*"))  # folders of texts are gone


def test_traces_and_folders_of_stages(tmp_path):
    text = run(tmp_path, TORCH_LOGS="+coil.logs.output_code", TORCH_TRACE=str(tmp_path / "trace"), TORCH_COMPILE_DEBUG="1")
    code = said(text, "output_code")
    assert any("cd::sin(" in line for line in code) and not said(text, "schedule")
    assert any("program.py:6 in function" in line for line in code)  # the kernel says where it comes from
    trace = "".join(path.read_text() for path in (tmp_path / "trace").iterdir())
    for name in ("coil_inference_graph", "coil_000_inference_00_graph\"", "_plan\"", "_host.cc\""):
        assert name in trace, name
    folders = sorted(tmp_path.glob("torch_compile_debug/run_*/coil/*_inference"))
    assert folders and all(any(p.name.endswith("_host.cc") for p in f.iterdir()) for f in folders)
    (graph, *_) = sorted(tmp_path.glob("torch_compile_debug/run_*/coil/graph_*_inference.txt"))
    assert "1 operator in PyTorch" in graph.read_text() and "aten.native_dropout" in graph.read_text()


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


WORDS = {"graphs": "program 0  test_torch_logs.py:", "fusion": "softmax", "schedule": "arena", "output_code": "COIL_KERNEL", "perf_hints": "is the input",
         "recompiles": "compilation 2 of frame"}


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_one_alone(artifact, listening):
    logging.getLogger(f"coil.logs.{artifact}").setLevel(logging.DEBUG)
    torch._dynamo.reset()
    fast = torch.compile(lambda x, w: F.softmax(x * 1.25, -1) @ w, backend="coil", dynamic=False)
    columns = 200 + ARTIFACTS.index(artifact)  # an equal program would come from the cache, and say nothing
    for rows in (300, 301):
        fast(torch.randn(rows, columns), torch.randn(columns, 128))
    assert {name for name, _ in listening} == {f"coil.logs.{artifact}"}
    assert WORDS[artifact] in "\n".join(text for _, text in listening)


@pytest.fixture
def pytorchs():
    """PyTorch's own artifacts, by the names that a test asks for: what they say of coil, as [(artifact, text)]."""
    heard, attached = [], []

    class Handler(logging.Handler):
        def emit(self, record):
            heard.append((record.artifact_name if hasattr(record, "artifact_name") else record.name.rpartition("__")[2], record.getMessage()))

    handler = Handler()

    def ask(*names):
        torch._logging.set_logs(**dict.fromkeys(names, True))
        for name in names:
            attached.append(torch._logging.getArtifactLogger("torch._dynamo.backends.coil", name))
            attached[-1].addHandler(handler)
        return heard

    yield ask
    torch._logging.set_logs()
    for logger in attached:
        logger.removeHandler(handler)


@pytest.mark.parametrize("artifact", ["fusion", "schedule", "output_code", "perf_hints"])
def test_pytorchs_artifacts_ask_coil_too(artifact, pytorchs, listening):
    """TORCH_LOGS=output_code, as for every backend; each record once, wherever it was asked for."""
    heard = pytorchs(artifact)
    torch._dynamo.reset()
    torch.compile(lambda x, w: F.softmax(x * 1.75, -1) @ w, backend="coil")(torch.randn(300, 220 + len(artifact)), torch.randn(220 + len(artifact), 128))
    assert {name for name, _ in heard} == {artifact} and not listening
    assert WORDS[artifact] in "\n".join(text for _, text in heard)
    said_once = len(heard)
    logging.getLogger(f"coil.logs.{artifact}").setLevel(logging.DEBUG)
    torch._dynamo.reset()
    torch.compile(lambda x, w: F.softmax(x * 1.875, -1) @ w, backend="coil")(torch.randn(300, 220 + len(artifact)), torch.randn(220 + len(artifact), 128))
    assert len(heard) == said_once and {name for name, _ in listening} == {f"coil.logs.{artifact}"}


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, listening):
    """Looking on changes nothing: a warning. A folder that the user named is an error."""
    (tmp_path / "file").write_text("")
    x = torch.randn(13)
    monkeypatch.setattr(torch._dynamo.config, "debug_dir_root", str(tmp_path))  # PyTorch's own files go there
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    monkeypatch.setattr("coil.dynamo._stages.get_debug_dir", lambda: str(tmp_path / "file" / "run"))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: x * 5.125, backend="coil")(x), x * 5.125)
    assert any("TORCH_COMPILE_DEBUG: the folder" in text and "cannot be made" in text for _, text in listening), listening
    monkeypatch.delenv("TORCH_COMPILE_DEBUG")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    logging.getLogger("coil.logs.fusion").setLevel(logging.INFO)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: x * 5.25, backend="coil")(x), x * 5.25)
    assert any("TMPDIR" in text for _, text in listening), listening
    torch._dynamo.reset()
    with pytest.raises(Exception, match="COIL-E003.*for the stages cannot be made") as caught:
        torch.compile(lambda x: x * 5.375, backend="coil", options={"dump": str(tmp_path / "file" / "dump")})(x)
    assert "hint" in str(caught.value)


def test_nothing_is_written_where_nobody_looks(monkeypatch):
    from coil.dynamo import _program
    folders = []
    monkeypatch.setattr(_program, "program_compiled", lambda folder, settings, report: folders.append(folder))
    torch._dynamo.reset()
    torch.compile(lambda x: x * 3.875, backend="coil")(torch.randn(11))
    assert folders == [""]


def test_explain_counts_gradients():
    """Their graph is compiled when a gradient is first asked for; nobody's `grad` changes."""
    layer = torch.nn.Linear(5, 7)
    told = coil.explain(layer)(torch.randn(3, 5))
    assert told.dynamo_graphs == 1 and told.compiled.graphs == 2 and told.compiled.kernels >= 3, str(told)
    assert layer.weight.grad is None


def test_recompiles_name_what_a_call_brings(listening):
    """Not the parameters, of which a model has hundreds."""
    logging.getLogger("coil.logs.recompiles").setLevel(logging.INFO)
    model = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(6)]).eval()
    torch._dynamo.reset()
    fast = torch.compile(model, backend="coil", dynamic=False)
    with torch.no_grad():
        fast(torch.randn(2, 6)), fast(torch.randn(3, 6))
    (text,) = [text for _, text in listening]
    assert text.endswith("for inputs float32[3, 6], and 12 parameters"), text


def test_explain():
    def function(x):
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return F.dropout(y, 0.5).sum()

    told = coil.explain(function)(torch.randn(3, 21))
    assert told.dynamo_graphs == 2 and len(told.breaks) == 1 and "test_torch_logs.py" in told.breaks[0]
    assert told.compiled.graphs == 2 and told.compiled.fallback_operators == 1 and told.compiled.kernels == 2
    text = str(told)
    assert "2 graphs, 1 break\n" in text and "in 2 kernels" in text and "native_dropout" in text
    assert pathlib.Path(__file__).name in text
