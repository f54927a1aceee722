"""`coil report`: data that are right, and a page that is small, inert and complete (test_report_browser.py opens it)."""

import json
import os
import re
import time

import pytest
import torch

import harness
import planted
import coil
from harness import DIGITS
from report_pages import CHROMIUM, Block, block, data_of, dom  # noqa: F401 (block is a fixture)
from test_report_compared import compared


def test_the_data_are_the_packages_and_the_calls(block):
    r = harness.coil_json("report", block / "block.coil.pt2", "--input", block / "x.npz", "--calls", 7)
    call, kernels = r["call"], r["kernels"]
    assert call["calls"] == 7 and list(call["sizes"].values()) == [40] and r["limits"]["gflop_s"] > 0
    assert [k["n"] for k in kernels] == list(range(len(kernels)))
    shown = harness.coil_json("inspect", block / "block.coil.pt2")
    assert [k["name"] for k in kernels] == [k["name"] for k in shown["kernels"]] and len(r["not_fused"]) == len(shown["not_fused"])
    assert sum(k.get("us", 0) for k in kernels) + call["host_us"] == pytest.approx(call["call_us"], rel=0.05)
    products = [k for k in kernels if k["kind"] == "gemm"]
    assert {"q", "k", "v"} <= {o["module"] for k in products for o in k["origins"]}
    for k in products:
        assert 0 < k["roof_us"] and k["bound"] in ("compute", "memory", "cache") and f"COIL_BEGIN({k['n']}, " in k["call"]
    loop = next(k for k in kernels if k["kind"] == "loop")
    assert loop["function"] in r["sources"] and loop["function"] in r["sources"][loop["function"]]["text"]


def test_kernels_are_joined_by_what_they_read_and_write(block):
    r = harness.coil_json("report", block / "block.coil.pt2", "--input", block / "x.npz", "--calls", 1)
    written = {b: k["n"] for k in r["kernels"] for b in k.get("writes", [])}
    attention = next(k for k in r["kernels"] if k["kind"] == "attention")
    before = {r["kernels"][written[b]]["kind"] for b in attention["reads"] if b in written}
    assert before == {"gemm"}, "attention reads the three products"
    x = r["inputs"][0]["buffer"]
    assert sum(x in k.get("reads", []) for k in r["kernels"]) >= 4
    assert {written[o["buffer"]] for o in r["outputs"]} <= {k["n"] for k in r["kernels"]}
    for k in r["kernels"]:
        assert all(b not in written or written[b] < k["n"] or b in k.get("writes", []) for b in k.get("reads", [])), "a kernel reads what is written later"


def test_memory_is_the_blocks(block):
    r = harness.coil_json("report", block / "block.coil.pt2", "--input", block / "x.npz", "--calls", 1)
    memory = r["memory"]
    measured = harness.coil_json("bench", block / "block.coil.pt2", "--input", block / "x.npz", "--repeat", 1)["memory"]
    assert memory["arena_bytes"] == measured["arena_bytes"] and memory["buffers"]
    for b in memory["buffers"]:
        assert 0 <= b["offset"] and b["offset"] + b["bytes"] <= memory["arena_bytes"] and b["from"] <= b["to"]
    for n in range(len(r["kernels"])):
        live = sorted((b["offset"], b["bytes"]) for b in memory["buffers"] if b["from"] <= n <= b["to"] and b["bytes"])
        assert all(p[0] + p[1] <= q[0] for p, q in zip(live, live[1:])), "tensors that live at once overlap"


def test_a_program_is_compiled_first_and_a_page_is_small(block, tmp_path):
    page = tmp_path / "p.html"
    done = harness.coil_ok("report", block / "block.pt2", "--input", block / "x.npz", "-o", page)
    text = page.read_text()
    assert len(text) < 600_000 and "opens in any browser" in done.stdout
    # Addresses are namespaces and the comment of D3, whose licence is in the page; nothing is loaded.
    assert not re.search(r"https?://(?!www\.w3\.org/|d3js\.org )", re.sub(r'id="data">.*?</script>', "", text, flags=re.S)) and "default-src 'none'" in text
    assert "Permission to use, copy, modify" in text and not re.search(r"<(link|img|iframe)|src=|@import|url\(", re.sub(r"<script.*?</script>", "", text, flags=re.S))
    assert data_of(text)[0]["title"].endswith("block.pt2")


def test_python_writes_the_same(block, tmp_path):
    model = coil.load(block / "block.coil.pt2")
    x = torch.randn(33, 64)
    want = model(x)
    model.report(tmp_path / "a.html", x, calls=3)
    [r] = data_of((tmp_path / "a.html").read_text())
    assert r["call"]["calls"] == 3 and list(r["call"]["sizes"].values()) == [33]
    assert all(torch.equal(a, b) for a, b in zip(model(x), want))
    coil.report(tmp_path / "b.html", [model, model], x, calls=2)
    assert len(data_of((tmp_path / "b.html").read_text())) == 2
    with pytest.raises(coil.OptionError):
        coil.report(tmp_path / "c.html", [model] * 3, x)
    with pytest.raises(coil.OptionError):
        model.report(tmp_path / "c.html", x, calls=0)
    with pytest.raises(coil.InputError):
        model.report(tmp_path / "c.html", torch.zeros(3))


def test_what_torch_compile_made(fresh_compiles, block, tmp_path):
    fast = torch.compile(Block(), backend="coil")
    other = coil.load(block / "block.coil.pt2")
    x = torch.randn(20, 64)
    with torch.no_grad(), coil.profile() as p:
        for _ in range(3):
            fast(x)
        other(torch.randn(7, 64))
    p.report(tmp_path / "c.html")
    reports = data_of((tmp_path / "c.html").read_text())
    assert [r["call"]["calls"] for r in reports] == [3, 1] and all(k["us"] > 0 for k in reports[0]["kernels"])
    with coil.profile() as p:
        pass
    with pytest.raises(coil.OptionError, match="no call"):
        p.report(tmp_path / "d.html")


class Forgetful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.last = Block(), torch.nn.Linear(64, 3)

    def forward(self, x):
        return self.last(torch.nn.functional.dropout(self.block(x)[0], 0.25))


def test_what_stayed_in_pytorch_is_said_with_its_reason(fresh_compiles, tmp_path):
    """Of each program of torch.compile: the graph that it is a part of, the operators between coil's programs; kernels know their modules."""
    fast = torch.compile(Forgetful(), backend="coil")
    with coil.profile() as p:
        fast(torch.randn(20, 64)).sum().backward()
    p.report(tmp_path / "p.html")
    reports = data_of((tmp_path / "p.html").read_text())
    titles = [r["title"] for r in reports]
    assert len(titles) == 2 and all(re.fullmatch(rf"{kind} graph \d+/0", title) for kind, title in zip(("forward", "backward"), titles)), titles
    stayed = reports[0]["graph"]["in_torch"]
    assert [o["operator"] for o in stayed] == ["aten.native_dropout.default"] and "random" in stayed[0]["reason"] and stayed[0]["source"].startswith("test_report.py:")
    modules = {o["module"] for r in reports for k in r["kernels"] for o in k["origins"]}
    assert {"block.q", "block.norm", "last"} <= modules, modules


class Named(torch.nn.Module):
    """Keys of a ModuleDict may be any text without a dot."""

    KEYS = ("my-key", "a/b", "</script><b>", "quote'\"", "some[0]", "x" * 500, "ok")

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleDict({key: torch.nn.Linear(8, 8) for key in self.KEYS})

    def forward(self, x):
        for layer in self.layers.values():
            x = (layer(x)
                 .relu())
        return x


def test_modules_of_odd_names_are_known(fresh_compiles, tmp_path):
    fast = torch.compile(Named(), backend="coil")
    with torch.no_grad(), coil.profile() as p:
        fast(torch.randn(3, 8))
    p.report(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    (r,) = data_of(text)
    assert text.count("<script") == 2 and "<b>" not in text
    assert {o["module"] for k in r["kernels"] for o in k["origins"]} >= {f"layers.{key}" for key in Named.KEYS}, [k["origins"] for k in r["kernels"]]


def test_what_fusing_would_spare(block):
    """Of each pair that was not fused: time by the bytes of the value between the kernels, or nothing where none goes through memory."""
    r = harness.coil_json("report", block / "block.coil.pt2", "--input", block / "x.npz", "--calls", 1)
    stored = {b["name"]: b["bytes"] for b in r["memory"]["buffers"]}
    assert r["not_fused"]
    for f in r["not_fused"]:
        assert f.get("within") or f["saves_us"] > 0, f"{f} has no estimate"
        if f["producer"] in stored:
            assert f["bytes"] == 2 * stored[f["producer"]], "written and read"
    # A value that is a result is written in any case: fusing spares the reading.
    class Both(torch.nn.Module):
        def forward(self, x):
            y = x @ x
            return y, y.softmax(-1)

    torch.export.save(torch.export.export(Both(), (torch.randn(64, 64),)), block / "both.pt2")
    pairs = harness.coil_json("report", block / "both.pt2", "--calls", 1)["not_fused"]
    assert pairs and all(f["bytes"] == 64 * 64 * 4 for f in pairs if f["producer"] == "matmul"), pairs


def test_shapes_that_cost_time_are_advice(tmp_path):
    """What the compilation noted of a kernel's shapes, with its time."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 33), torch.nn.ReLU(), torch.nn.Linear(33, 64)).eval()
    torch.export.save(torch.export.export(model, (torch.randn(4096, 512),)), tmp_path / "odd.pt2")
    harness.coil_ok("compile", tmp_path / "odd.pt2", "-q", "-o", tmp_path / "odd.coil.pt2")
    r = harness.coil_json("report", tmp_path / "odd.coil.pt2", "--calls", 3)
    (noted,) = [k for k in r["kernels"] if "hint" in k]
    assert noted["hint"]["text"] == "33 columns are no multiple of 16: 31 % of the product is padding; 48 would take as long" and noted["hint"]["spares"] == 0.31
    (advice,) = [a for a in r["advice"] if "33 columns" in a["text"]]
    assert advice["kernels"] == [noted["n"]] and advice["us"] == pytest.approx(0.31 * noted["us"]) and "the padding takes about" in advice["text"]
    said = harness.coil_ok("explain", tmp_path / "odd.coil.pt2", "--why-slow").stdout
    assert "Its shapes cost time: 33 columns are no multiple of 16" in said


def test_the_slower_kernel_is_named(tmp_path):
    program, inputs = planted.export(tmp_path)["gelu"]
    (function, options), *_ = planted.planted(program, tmp_path, planted.slow)
    sound, slow = tmp_path / "sound.coil.pt2", tmp_path / "slow.coil.pt2"
    harness.coil_ok("compile", program, "-q", "-o", sound)
    harness.coil_ok("compile", program, "-q", "-o", slow, *options)
    text = harness.coil_ok("report", sound, slow, "-i", inputs, "-o", tmp_path / "both.html", "--threads", "1").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("  slower ")]
    assert function[:-9] in line and function not in line and "planted.py" in line  # the edited text has another hash
    back = harness.coil_ok("report", slow, sound, "-i", inputs, "-o", tmp_path / "both.html", "--threads", "1").stdout
    assert f"  faster {function}:" in back
    busiest = text.splitlines()[text.splitlines().index(next(x for x in text.splitlines() if x.startswith(str(slow)))) + 1]
    assert function[:-9] in busiest and "%" in busiest
    kernels = harness.coil_json("report", slow, "-i", inputs, "--calls", 5)["kernels"]
    assert all(0 < k["least_us"] <= k["median_us"] for k in kernels if "us" in k)


def test_a_page_that_cannot_be_written_is_refused_at_once(block, tmp_path):
    for name, path in (("report", tmp_path / "none" / "r.html"), ("profile", tmp_path / "none" / "t.json"), ("report", tmp_path)):
        begin = time.monotonic()
        harness.assert_refused(harness.coil(name, block / "block.coil.pt2", "--calls", 1000000, "-o", path), "cannot write", code=3)
        assert time.monotonic() - begin < 5, "it was measured first"


def test_layouts_and_copies_have_their_reasons(tmp_path):
    class Images(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(8, 16, 3)
            self.register_buffer("sums", torch.zeros(16))

        def forward(self, x, y):
            z = self.conv(x)
            self.sums.add_(z.mean((0, 2, 3)))
            self.sums.copy_(self.sums.flip(0))
            return z.relu(), torch.linalg.inv(y.t()), self.sums * 2

    program = torch.export.export(Images().eval(), (torch.randn(2, 8, 12, 12), torch.randn(4, 4)))
    package = tmp_path / "i.coil.pt2"
    coil.compile(program).save(package)
    r = harness.coil_json("report", package, "--calls", 1)
    reasons = {l["name"]: l["why"] for l in r["layouts"]}
    assert any("convolution" in why and "side by side" in why for why in reasons.values()), reasons
    copies = {name: why for name, why in reasons.items() if why.startswith("it is a copy")}
    assert copies, reasons
    for l in r["layouts"]:
        if "kernel" in l:
            assert l["buffer"] in r["kernels"][l["kernel"]]["writes"]
    told = harness.coil_ok("explain", package, "--memory").stdout
    for why in reasons.values():
        assert why in told
    for k in r["kernels"]:
        assert k["kind"] != "copy" or k["why"], k
    if CHROMIUM:
        harness.coil_ok("report", package, "--calls", 1, "-o", tmp_path / "i.html")
        shown = dom(f"{(tmp_path / 'i.html').as_uri()}#memory")
        assert "it is a copy" in shown and "a convolution" in shown
    # A program that has nothing of the kind says so.
    coil.compile(torch.export.export(torch.nn.Linear(8, 8).eval(), (torch.randn(4, 8),))).save(package)
    assert "none is copied" in harness.coil_ok("explain", package, "--memory").stdout


def test_long_calls_are_fewer(tmp_path):
    """Twenty calls, where they take no longer than some seconds."""
    program, inputs = planted.export(tmp_path)["softmax"]
    (_, options), *_ = planted.planted(program, tmp_path, lambda text: planted.slow(text, 1_000_000_000))
    assert 3 <= harness.coil_json("report", program, "-i", inputs, *options, "--threads", "1")["call"]["calls"] < 20
    assert harness.coil_json("report", program, "-i", inputs)["call"]["calls"] == 20


def test_reports_of_another_machine(block, tmp_path):
    """Pages and data that were made before are shown side by side like packages; what is no report is refused."""
    page, data = tmp_path / "here.html", tmp_path / "there.json"
    harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2)
    data.write_text(harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "--calls", 2, "--json").stdout)
    text, beside, a, b = compared(page, data, tmp_path)
    assert beside["one_program"] and [k["name"] for k in a["kernels"]] == [k["name"] for k in b["kernels"]] and a == data_of(page.read_text())[0]
    harness.coil_ok("report", data, block / "block.coil.pt2", "--input", block / "x.npz", "-o", tmp_path / "again.html")
    harness.coil_ok("report", tmp_path / "two.html", "-o", tmp_path / "same.html")  # a page of two
    assert data_of((tmp_path / "same.html").read_text()) == data_of((tmp_path / "two.html").read_text())
    harness.assert_refused(harness.coil("report", tmp_path / "two.html", page, "-o", tmp_path / "x.html"), "3 reports side by side", code=402)
    whole = json.loads(data.read_text())
    bad = tmp_path / "bad.json"
    for change in ([], {}, [1], {"report": 2}, "[" * 5000, "{", '{"report": "1"}', "<!DOCTYPE html><p>", {**whole, "kernels": 3}, {**whole, "kernels": [1]}, {**whole, "kernels": [{"n": 1, "name": "x"}]},
                   {**whole, "title": None}, {**whole, "memory": {}}, {**whole, "call": []}, {**whole, "advice": [{}]}, {**whole, "call": {**whole["call"], "kernels_us": [None]}}):
        bad.write_text(change if isinstance(change, str) else json.dumps(change))
        done = harness.coil("report", bad, page, "-o", tmp_path / "x.html")
        assert done.returncode == 4 and re.match("COIL-E01[123]", done.stderr) and "bad.json" in done.stderr, (change, done.returncode, done.stderr)


def test_a_tuning_record_is_shown(tmp_path):
    package, record = tmp_path / "d.coil.pt2", tmp_path / "d.json"
    harness.coil_ok("compile", DIGITS, "-o", package, "--tune", "fast", "--tune-budget", "3s", "--record", record)
    r = harness.coil_json("report", package, "--times", record, "--calls", 1)
    tuned = [k for k in r["kernels"] if k.get("tuned")]
    of_program = harness.coil_json("report", DIGITS, "--tune", "fast", "--tune-budget", "3s", "--calls", 1)
    assert [k for k in of_program["kernels"] if k.get("tuned")], "of a program that is tuned here it needs no record"
    assert tuned and all(t["median_us"] > 0 for k in tuned for p in k["tuned"] for t in p["timings"] if "fault" not in t)
    (tmp_path / "bad.json").write_text('{"problems": 3}')
    harness.assert_refused(harness.coil("report", package, "--times", tmp_path / "bad.json"), "record", code=407)
    harness.assert_refused(harness.coil("report", package, "--times", tmp_path / "absent.json"))


def test_wrong_use(block, tmp_path):
    package = block / "block.coil.pt2"
    harness.assert_refused(harness.coil("report", package, package, package), code=402)
    harness.assert_refused(harness.coil("report", package, "--calls", 0), code=402)
    harness.assert_refused(harness.coil("report", package, "-o", tmp_path / "none" / "x.html", "--calls", 1))
    harness.assert_refused(harness.coil("report", tmp_path / "absent.pt2"))


def test_a_program_of_many_kernels_keeps_to_the_limit(tmp_path):
    class Deep(torch.nn.Module):
        def forward(self, x):
            for i in range(400):
                x = (x @ x).sin() * (1 + i / 1000)
            return x

    program = torch.export.export(Deep(), (torch.rand(8, 8),))
    coil.compile(program).save(tmp_path / "deep.pt2")
    harness.coil_ok("report", tmp_path / "deep.pt2", "-o", tmp_path / "deep.html", "--calls", 1)
    assert os.path.getsize(tmp_path / "deep.html") <= 2_000_000


@pytest.mark.parametrize("name", ["Loop", "Rows", "Branch", "Counter"])
def test_control_flow_late_sizes_and_state(tmp_path, name):
    import test_profile

    inputs = {"Loop": (torch.rand(5, 5), torch.tensor(3)), "Rows": (torch.randn(40, 8),), "Branch": (torch.rand(6, 6),), "Counter": (torch.randn(7),)}[name]
    model = test_profile.compiled(getattr(test_profile, name)(), *inputs)
    model.report(tmp_path / "r.html", *inputs, calls=2)
    [r] = data_of((tmp_path / "r.html").read_text())
    assert r["call"]["calls"] == 2 and any(k.get("us", 0) > 0 for k in r["kernels"])
    assert sum(k.get("us", 0) for k in r["kernels"]) + r["call"]["host_us"] == pytest.approx(r["call"]["call_us"], rel=0.05)
    if CHROMIUM:
        assert 'aria-selected="true"' in dom(f"{(tmp_path / 'r.html').as_uri()}#graph")
