"""`coil report`: a page that is right, small, inert and complete; in a browser where there is one."""

import json
import os
import re
import shutil
import subprocess
import time
import zipfile

import numpy as np
import pytest
import torch

import harness
import planted
import coil
from harness import DIGITS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DYNAMIC = torch.export.Dim.DYNAMIC


class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(width, width) for _ in range(3))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = torch.nn.functional.scaled_dot_product_attention(self.q(x)[None], self.k(x)[None], self.v(x)[None])[0]
        return self.norm(y + x), x.t().contiguous()


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("block")
    x = torch.randn(40, 64)
    program = torch.export.export(Block().eval(), (x,), dynamic_shapes=({0: DYNAMIC},))
    torch.export.save(program, folder / "block.pt2")
    coil.compile(program).save(folder / "block.coil.pt2")
    np.savez(folder / "x.npz", in_0=x.numpy())
    return folder


def data_of(page):
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def dom(path, *more):
    done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", *more, "--dump-dom", path.as_uri() if hasattr(path, "as_uri") else path],
                          capture_output=True, text=True, timeout=100)
    return done.stdout


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


class Inside(torch.nn.Module):
    """A block in other modules than before."""

    def __init__(self, block):
        super().__init__()
        self.outer = torch.nn.ModuleDict({"moved": block})

    def forward(self, x):
        return self.outer["moved"](x)


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 3)

    def forward(self, x):
        return torch.nn.functional.max_pool2d(self.b(self.a(x).relu()), 2)


def compared(first, second, tmp_path, *options):
    """What the terminal says of the second beside the first, and the rows of the page."""
    text = harness.coil_ok("report", first, second, "--calls", 5, "-o", tmp_path / "two.html", *options).stdout
    a, b = data_of((tmp_path / "two.html").read_text())
    assert "beside" not in a
    rows = b["beside"]["rows"]
    for side, report in ((0, a), (1, b)):  # each kernel that ran is in one row
        assert sorted(n for row in rows for n in row[side]) == [k["n"] for k in report["kernels"] if "us" in k]
    return text[text.index(" beside "):], b["beside"], a, b


def test_versions_of_a_program_are_matched_by_their_lines(block, tmp_path):
    torch.manual_seed(0)
    program = torch.export.export(Inside(Block()).eval(), (torch.randn(40, 64),), dynamic_shapes=({0: DYNAMIC},))
    coil.compile(program).save(tmp_path / "moved.coil.pt2")
    text, beside, a, b = compared(block / "block.coil.pt2", tmp_path / "moved.coil.pt2", tmp_path)
    assert beside["one_program"] and "different programs" not in text
    for x, y in beside["rows"]:
        assert [a["kernels"][n]["ops"] for n in x] == [b["kernels"][n]["ops"] for n in y]
    # One kernel there and several here: what is not fused any more.
    harness.coil_ok("compile", block / "block.pt2", "-q", "--without", "fusion", "-o", tmp_path / "apart.coil.pt2")
    text, beside, a, b = compared(block / "block.coil.pt2", tmp_path / "apart.coil.pt2", tmp_path)
    assert beside["one_program"] and any(len(x) == 1 and len(y) > 1 for x, y in beside["rows"]), beside
    alone = [[report["kernels"][n]["name"] for n in side] for row in beside["rows"] for side, report in zip(row, (a, b)) if not all(row)]
    assert not alone, f"{alone} have no counterpart, though all lines are the same"


def test_different_programs_are_said_to_be_such(block, tmp_path):
    coil.compile(torch.export.export(Convolutions().eval(), (torch.randn(2, 3, 40, 40),))).save(tmp_path / "conv.coil.pt2")
    text, beside, *_ = compared(block / "block.coil.pt2", tmp_path / "conv.coil.pt2", tmp_path)
    assert not beside["one_program"] and "different programs" in text and "faster" not in text and "slower" not in text
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["conv2d"]]
    assert row[1] == "none" and float(row[2]) > 0, text
    if CHROMIUM:
        shown = dom(tmp_path / "two.html")
        assert "These are different programs" in shown and "kernels of kind conv2d" in shown


def test_programs_without_lines_are_matched_by_their_operators(block, tmp_path):
    """Of a package whose kernels have no origins only the operators are known."""
    def without_lines(path, to):
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
            for info in old.infolist():
                content = old.read(info)
                if info.filename.endswith("data/coil/manifest.json"):
                    manifest = json.loads(content)
                    for kernel in manifest["kernels"]:
                        kernel["origins"] = []
                    content = json.dumps(manifest).encode()
                new.writestr(info, content)
        return to

    bare = without_lines(block / "block.coil.pt2", tmp_path / "bare.coil.pt2")
    _, beside, a, b = compared(block / "block.coil.pt2", bare, tmp_path)
    assert beside["one_program"] and all(len(x) == len(y) == 1 for x, y in beside["rows"])


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
    (_, options), *_ = planted.planted(program, tmp_path, lambda text: planted.slow(text, 3_000_000_000))
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
                   {**whole, "title": None}, {**whole, "memory": {}}, {**whole, "call": []}, {**whole, "advice": [{}]}):
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


HOSTILE = ["</script><script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">", "*/ /*DATA*/ /*SCRIPT*/", "\u2028\u2029\x01 \"'\\", "${document.title='owned'}"]


def hostile_package(block, tmp_path):
    """Names, modules and lines of a package, as somebody with bad intent would write them."""
    from zipfile import ZIP_STORED, ZipFile

    path = tmp_path / "hostile.pt2"
    with ZipFile(block / "block.coil.pt2") as old, ZipFile(path, "w", ZIP_STORED) as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith("data/coil/manifest.json"):
                manifest = json.loads(content)
                for n, k in enumerate(manifest["kernels"]):
                    text = HOSTILE[n % len(HOSTILE)]
                    k["name"], k["ops"] = text + k["name"], [text]
                    k["origins"] = [{"module": text, "source": text, "line": text}]
                for f in manifest["not_fused"]:
                    f["producer"] = f["reason"] = HOSTILE[0]
                content = json.dumps(manifest).encode()
            new.writestr(info.filename, content)
    return path


def test_hostile_names_stay_text(block, tmp_path):
    page = tmp_path / "h.html"
    harness.coil_ok("report", hostile_package(block, tmp_path), "--input", block / "x.npz", "-o", page, "--calls", 1)
    text = page.read_text()
    assert text.count("<script") == 2 and text.count("</script") == 2 and "<img" not in text
    [r] = data_of(text)
    assert any(HOSTILE[0] in k["name"] for k in r["kernels"])
    if CHROMIUM:
        for view in ("overview", "kernels/0", "graph/1", "memory", "source", "fusion/2"):
            shown = dom(f"{page.as_uri()}#{view}")
            assert "<title>coil report: " in shown and "<img" not in shown, view


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
@pytest.mark.parametrize("view, words", [
    ("overview", ["Advice", "Where a call's time goes", "The busiest kernels"]),
    ("kernels/1", ["of the roof", "Lines of the model", "How the host calls it", "Generated code"]),
    ("graph", ["Zoom in", "attention", "% of the roof"]),
    ("roofline", ["operations for a byte", "GB/s"]),
    ("memory", ["Who owns the peak", "peak: ", "Layouts and copies"]),
    ("source", ["self.norm(y + x)"]),
    ("fusion", ["would spare"]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_views_in_a_browser(block, tmp_path, view, words):
    page = tmp_path / "p.html"
    harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2)
    shown = dom(f"{page.as_uri()}#{view}")
    missing = [w for w in words if w not in shown]
    assert not missing and 'aria-selected="true"' in shown, f"{missing}: {shown[:3000]}"


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_a_narrow_window_has_something_to_see(block, tmp_path):
    """Kernels in full stand above the view there: something is drawn in the lower half of the window."""
    image = pytest.importorskip("PIL.Image")
    page = tmp_path / "p.html"
    harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2)
    for view in ("overview", "memory"):
        subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000", "--window-size=420,1400",
                        f"--screenshot={tmp_path / 'shot.png'}", f"{page.as_uri()}#{view}"], capture_output=True, timeout=100)
        shot = np.asarray(image.open(tmp_path / "shot.png").convert("L"))
        assert len(np.unique(shot[len(shot) // 2:])) > 4, f"{view} is empty"


MEASURE = """<script>
const box = t => { const b = t.getBBox(); return [b.x, b.y, b.width, b.height, t.textContent]; };
const points = p => p.getAttribute("d").match(/-?[\\d.]+,-?[\\d.]+/g).map(xy => xy.split(",").map(Number));
const found = {labels: [...document.querySelectorAll("#roofline .label")].map(box), roofs: [...document.querySelectorAll("#roofline .roof")].map(points),
  leaders: [...document.querySelectorAll("#roofline .leader")].map(l => [[l.x1, l.y1], [l.x2, l.y2]].map(xy => xy.map(v => v.baseVal.value))),
  dots: [...document.querySelectorAll("#roofline .dot")].map(d => [d.cx, d.cy, d.r].map(v => v.baseVal.value))};
document.body.setAttribute("data-found", JSON.stringify(found));
</script></body>"""


def measured_roofline(page, kernels=None):
    """The boxes of labels, the lines and the dots, as the browser drew them; kernels: changes the data's."""
    text = page.read_text()
    if kernels:
        [r] = data_of(text)
        r["kernels"] = kernels(r["kernels"])
        text = re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + json.dumps([r]).replace("<", "\\u003c") + m[2], text, flags=re.S)
    page = page.with_name("measured.html")
    page.write_text(text.replace("</body>", MEASURE))
    [found] = re.findall(r'data-found="(.*?)"', dom(f"{page.as_uri()}#roofline"))
    return json.loads(found.replace("&quot;", '"').replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def crosses(box, p, q):
    """Whether a line goes through a box: some of a thousand points of it does."""
    t = np.linspace(0, 1, 1001)[:, None]
    points = np.array(p) * (1 - t) + np.array(q) * t
    x, y, w, h, _ = box
    return bool(((points > (x, y)) & (points < (x + w, y + h))).all(1).any())


def assert_labels_are_apart(found):
    labels = found["labels"]
    for i, (x, y, w, h, text) in enumerate(labels):
        assert 0 <= x and x + w <= 960 and 0 <= y and y + h <= 540, f"{text} leaves the plot"
        for x2, y2, w2, h2, other in labels[:i]:
            assert x >= x2 + w2 or x2 >= x + w or y >= y2 + h2 or y2 >= y + h, f"{text} covers {other}"
        for roof in found["roofs"] + found["leaders"]:
            assert not any(crosses(labels[i], p, q) for p, q in zip(roof, roof[1:])), f"a line crosses {text}"
        for cx, cy, r in found["dots"]:
            near = np.hypot(cx - min(max(cx, x), x + w), cy - min(max(cy, y + 2), y + h - 2))
            assert near >= r - 1, f"{text} covers a kernel"


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_labels_of_the_roofline_cover_nothing(block, tmp_path):
    """Few kernels, hundreds in a heap, kernels on the lines, names that are long or odd: labels keep apart, of each other, of lines and of dots."""
    page = tmp_path / "p.html"
    harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2, "--threads", 1)
    found = measured_roofline(page)
    assert_labels_are_apart(found)
    texts = [text for *_, text in found["labels"]]
    assert any("GFLOP/s" in t for t in texts) and any(t.startswith("memory") for t in texts), texts
    assert any("attention" in t for t in texts) and len(texts) >= 5, texts
    random = np.random.default_rng(0)

    def many(near, count=300):
        def kernels(given):
            computes = [k for k in given if k.get("flops")]
            made = [{**computes[n % len(computes)], "n": n} for n in range(count)]
            for n, k in enumerate(made):
                k["name"] = ["W" * 200, "</script>\r\n\"'", "k", "\u202e\u4e2d\u6587"][n % 4] + "abcdefghij"[n // 4 % 10]
                k["us"], k["flops"] = float(random.random() ** 4 * 1000 + 0.1), float(10 ** (6 + near * random.random()))
                k["bytes"], k["gflop_s"] = float(10 ** (5 + near * random.random())), float(10 ** (1 + near * random.random()))
            return made
        return kernels

    for near in (0.05, 1, 3):
        found = measured_roofline(page, many(near))
        assert len(found["dots"]) == 300
        assert_labels_are_apart(found)
        assert near < 1 or len(found["labels"]) > 5
    # The busiest kernel is labelled where there is room: alone, anywhere.
    for flops, rate in ((1e4, 1e-3), (1e12, 1e5), (1e7, 10.0)):
        found = measured_roofline(page, lambda given: [{**given[0], "n": 0, "name": "lonely", "us": 5.0, "flops": flops, "bytes": 1e6, "gflop_s": rate}])
        assert_labels_are_apart(found)
        assert any(t == "lonely" for *_, t in found["labels"]), (flops, rate, found)


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_plots_are_walked_by_keys(block, tmp_path):
    """One part of a plot is in the order of Tab; arrows go on, Enter opens the kernel; plus and minus zoom the graph."""
    page = tmp_path / "p.html"
    harness.coil_ok("report", block / "block.coil.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2)
    keys = """<script>
const said = [], press = (on, key) => on.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
for (const [view, part] of [["overview", "rect.dot"], ["roofline", "circle.dot"], ["memory", "rect.part"]]) {
  show(view);
  const parts = [...document.querySelectorAll(part)];
  said.push(parts.filter(p => p.tabIndex === 0).length);
  parts[0].focus();
  press(parts[0], "ArrowRight");
  press(document.activeElement, "Enter");
  said.push(document.activeElement === parts[1] && +parts[1].dataset.n === picked && !byId("detail").hidden);
  press(document.body, "Escape");
  said.push(picked === null);
}
show("graph");
const scene = () => document.querySelector("#canvas > g").getAttribute("transform"), first = scene();
press(byId("canvas"), "+");
const zoomed = scene();
press(byId("canvas"), "ArrowRight");
said.push(zoomed !== first, scene() !== zoomed);
document.body.setAttribute("data-found", JSON.stringify(said));
</script></body>"""
    page.write_text(page.read_text().replace("</body>", keys))
    [found] = re.findall(r'data-found="(.*?)"', dom(page))
    assert json.loads(found) == [1, True, True] * 3 + [True, True], found


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_two_side_by_side_in_a_browser(block, tmp_path):
    page = tmp_path / "two.html"
    harness.coil_ok("report", block / "block.coil.pt2", block / "block.pt2", "--input", block / "x.npz", "-o", page, "--calls", 2)
    shown = dom(page)
    assert "B beside A" in shown and "largest differences first" in shown
    assert len(data_of(page.read_text())) == 2


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
