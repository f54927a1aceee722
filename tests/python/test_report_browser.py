"""The page of `coil report` in a browser: views, keys, labels that cover nothing, names that somebody with bad intent wrote."""

import json
import re
import subprocess

import numpy as np
import pytest

import harness
from report_pages import CHROMIUM, block, data_of, dom  # noqa: F401 (block is a fixture)


HOSTILE = ["</script><script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">", "*/ /*DATA*/ /*SCRIPT*/", "\u2028\u2029\x01 \"'\\", "${document.title='owned'}"]


def hostile_package(block, tmp_path):
    """Names, modules and lines of a package, as somebody with bad intent would write them."""
    from zipfile import ZIP_STORED, ZipFile

    path = tmp_path / "hostile.pt2"
    with ZipFile(block / "block.coil.pt2") as old, ZipFile(path, "w", ZIP_STORED) as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith("data/coil/kernels.json"):
                decisions = json.loads(content)
                for n, k in enumerate(decisions["kernels"]):
                    text = HOSTILE[n % len(HOSTILE)]
                    k["name"], k["ops"] = text + k["name"], [text]
                    k["origins"] = [{"module": text, "source": text, "line": text}]
                for f in decisions["not_fused"]:
                    f["producer"] = f["reason"] = HOSTILE[0]
                content = json.dumps(decisions).encode()
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
    assert f'id="{view.split("/")[0]}"' not in shown, "the browser would scroll to it, as to the part of a page that an address names"


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
const found = {labels: [...document.querySelectorAll("#plot .label")].map(box), roofs: [...document.querySelectorAll("#plot .roof")].map(points),
  leaders: [...document.querySelectorAll("#plot .leader")].map(l => [[l.x1, l.y1], [l.x2, l.y2]].map(xy => xy.map(v => v.baseVal.value))),
  dots: [...document.querySelectorAll("#plot .dot")].map(d => [d.cx, d.cy, d.r].map(v => v.baseVal.value))};
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
