"""`coil report --compare`: two versions of a program side by side."""

import json
import zipfile

import torch

import harness
import coil
from report_pages import CHROMIUM, DYNAMIC, Block, block, data_of, dom  # noqa: F401 (block is a fixture)


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
                if info.filename.endswith("data/coil/kernels.json"):
                    decisions = json.loads(content)
                    for kernel in decisions["kernels"]:
                        kernel["origins"] = []
                    content = json.dumps(decisions).encode()
                new.writestr(info, content)
        return to

    bare = without_lines(block / "block.coil.pt2", tmp_path / "bare.coil.pt2")
    _, beside, a, b = compared(block / "block.coil.pt2", bare, tmp_path)
    assert beside["one_program"] and all(len(x) == len(y) == 1 for x, y in beside["rows"])
