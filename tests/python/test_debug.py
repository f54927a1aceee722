"""`coil debug`: the stages of a compilation and what each changed, and kernels that run alone on what they were given."""

import json
import os
import re
import shutil
import subprocess

import pytest
import torch

import planted
from harness import COIL, DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debug")
    program, inputs = planted.export(folder)["attend"]
    done = coil_ok("debug", program, "-i", inputs, "-o", folder / "dump")
    return folder / "dump", done.stdout, program, inputs


def test_stages_and_their_changes(made):
    dump, text, _, _ = made
    assert "graph_functionalize" in text and "loops_find_attention" in text and "plan" in text
    stages = {s["stage"]: s for s in json.loads(coil_ok("debug", dump, "--json").stdout)["stages"]}
    assert not stages["graph"]["follows"] and stages["graph_dead_code"]["follows"]
    # What a stage changed leads from the text before it to its own.
    names = sorted(p.name for p in dump.glob("*_loops_*.txt"))
    before, after = [(dump / n).read_text().splitlines() for n in names[:2]]
    stage = names[1].split("_", 1)[1][:-4]
    assert len(after) - len(before) == stages[stage]["added"] - stages[stage]["removed"]
    shown = coil_ok("debug", dump, "--stage", stage).stdout
    assert shown.startswith((dump / names[1]).read_text()) and f"+{stages[stage]['added']} -{stages[stage]['removed']}" in shown
    changed = [line for line in shown.splitlines() if line.startswith("- ")]
    assert len(changed) == stages[stage]["removed"] and all(line[2:] in before for line in changed)
    assert coil_ok("debug", dump, "--stage", names[1].split("_")[0]).stdout == shown
    assert "graph_functionalize" in coil_ok("debug", dump, "--changes").stdout


def test_a_folder_of_coil_dump(tmp_path):
    coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "d.pt2", env=dict(os.environ, COIL_DUMP=str(tmp_path / "dump")))
    assert "plan" in coil_ok("debug", tmp_path / "dump").stdout


def test_kernels_run_alone(made):
    dump, text, program, inputs = made
    folders = sorted((dump / "kernels").iterdir())
    assert folders and all(f"kernels/{f.name}" in text for f in folders)
    folders = [f for f in folders if (f / "main.cc").exists()]
    clang = next((c for c in ("clang++-21", "clang++-20", "clang++-19", "clang++-18") if shutil.which(c)), None)
    if not clang or not shutil.which("make"):
        pytest.skip("no clang 18 or later")
    for folder in folders:
        done = subprocess.run(["make", "-s", "run"], cwd=folder, capture_output=True, text=True)
        assert done.returncode in (0, 2), done.stderr
        # Another compiler than coil's own may round a sum another way, but no more.
        assert "same as in the program" in done.stdout or "by at most" in done.stdout, done.stdout + done.stderr
        assert all(float(line.split("by at most ")[1]) < 1e-4 for line in done.stdout.splitlines() if "by at most" in line)
    # An edited kernel shows in its own run, and goes into the package.
    folder = folders[-1]
    text = (folder / "kernel.cc").read_text()
    edited = planted.wrong_constant(text) or text.replace("cd::add(", "cd::sub(")
    (folder / "kernel.cc").write_text(edited)
    done = subprocess.run(["make", "-s", "run"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2 and "elements differ" in done.stdout
    function = folder.name.split("_", 1)[1]
    assert coil("diff", program, "-i", inputs, "-q", "--replace-kernel", f"{function}={folder / 'kernel.cc'}").returncode == 1


def test_template_kernels_have_programs_too(made, tmp_path):
    """What is code of the device library runs as the part of the program that it computes; its generated end can be edited."""
    dump, text, program, inputs = made
    parts = [f for f in sorted((dump / "kernels").iterdir()) if (f / "program.pt2").exists()]
    assert len(parts) >= 3 and "has no program of its own" not in text
    environment = dict(os.environ, PATH=f"{COIL.parent}:{os.environ['PATH']}", COIL_CACHE="off")
    run = lambda folder: subprocess.run(["make", "-s", "run"], cwd=folder, capture_output=True, text=True, env=environment)  # noqa: E731
    done = run(parts[0])
    assert done.returncode == 0 and "compared, all within their bounds" in done.stdout and "median of" in done.stdout, done.stdout + done.stderr
    edited = next((f for f in parts if (f / "kernel.cc").exists() and planted.wrong_constant((f / "kernel.cc").read_text()) and "EDITED = --replace" in (f / "Makefile").read_text()), None)
    if edited:
        copy = shutil.copytree(edited, tmp_path / "edited")
        (copy / "kernel.cc").write_text(planted.wrong_constant((copy / "kernel.cc").read_text()))
        done = run(copy)
        assert done.returncode == 2 and "wrong kernel" in done.stdout


def test_makefiles_compile_as_the_program_was(tmp_path):
    """The options of `coil debug`, whatever the path is called; the command is coil's, or the Python package's where there is none."""
    folder = tmp_path / "o'dd $HOME #1\nboom: \\x\r\")"
    folder.mkdir()
    program, inputs = planted.export(folder)["gelu"]
    (function, options), *_ = planted.planted(program, folder, lambda text: "// edited\n" + text)
    dump = tmp_path / "dump"
    coil_ok("debug", program, "-i", inputs, "-o", dump, "-O", "1", "--no-winograd", "--without", "images", *options)
    parts = sorted((dump / "kernels").iterdir())
    make = lambda target, at, **more: subprocess.run(["make", "-s", *target, "-C", at], capture_output=True, text=True, env=dict(os.environ, **more))  # noqa: E731
    for at in parts:
        said = make(["-n", "package"], at, PATH="/usr/bin:/bin").stdout
        assert said.startswith("python3 -m coil compile ") and "-O 1 --no-winograd --without images" in said, said
        assert make(["-n", "package", "COIL=mine"], at).stdout.startswith("mine compile ")
    part = next(at for at in parts if (at / "program.pt2").exists())
    text = (part / "Makefile").read_text()
    assert "OPTIONS = -O 1 --no-winograd --without images\n" in text, "a part has kernels of other names"
    edited = parts[-1]
    done = make(["package", f"COIL={COIL}"], edited)
    assert done.returncode == 0, done.stderr
    replaced = coil_ok("inspect", edited / "edited.coil.pt2", "--kernels").stdout
    assert f"its code is that of {function}.cc" in replaced and "its code is that of kernel.cc" in replaced, "what was edited before and what is edited now"


def test_what_is_asked_wrongly_is_refused(tmp_path):
    assert_refused(coil("debug", DIGITS), "-o DIR", code=402)
    assert_refused(coil("debug", tmp_path), "no stages", code=402)
    assert_refused(coil("debug", tmp_path, "-o", tmp_path / "x"), "folder", code=402)
    coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "d.pt2")
    assert_refused(coil("debug", tmp_path / "d.pt2", "-o", tmp_path / "x"), "package", code=402)
    assert_refused(coil("debug", tmp_path / "none.pt2", "-o", tmp_path / "x"), code=1)
    coil_ok("debug", DIGITS, "-o", tmp_path / "dump")
    assert_refused(coil("debug", tmp_path / "dump", "--stage", "nothing"), "no stage 'nothing'", "graph", code=402)


def test_a_stage_of_loops_is_a_test_case(made, tmp_path):
    dump, _, program, _ = made
    for stage in sorted(dump.glob("*_loops*.txt")):
        done = coil_json("debug", stage)
        assert done["kernels"] and done["first"] is None, stage
    # The stages that follow are the same as in the compile of the whole program, but for the pass that has run already.
    lowered, = dump.glob("*_loops_lowered.txt")
    text = coil_ok("debug", lowered, "-o", tmp_path / "again").stdout
    assert "of the bound" in text and "right: " in text
    last, = (tmp_path / "again").glob("*_loops.txt")
    assert last.read_text() == next(dump.glob("*_loops.txt")).read_text()
    assert list((tmp_path / "again").glob("*_plan.txt"))


def test_edited_loops_and_a_wrong_kernel(tmp_path):
    (tmp_path / "loops.txt").write_text(
        "size rows = s0 in 1 to 100\n"
        "input x: f32[rows, 8]\n"
        "constant w: f32[4, 8]\n"
        "product: f32[rows, 4] = gemm batch [] m [rows] n [4] k [8]: x[i0, i2] * w[i1, i2]\n"
        "act: f32[rows, 4] = [i0, i1] exp(load(product, i0, i1)) + 1.0\n"
        "total: f32[rows] = sum over [4] [i0 | i1] load(act, i0, i1) * 0.5\n"
        "output total\n")
    for rows in (1, 7, 100):
        assert coil_json("debug", tmp_path / "loops.txt", "--shape", f"rows={rows}")["first"] is None
    coil_ok("debug", tmp_path / "loops.txt", "-o", tmp_path / "out", "--shape", "rows=7")
    assert "exp(" in next((tmp_path / "out").glob("*_plan.txt")).read_text()
    # The reference knows what a kernel should do.
    kernels = next((tmp_path / "out").glob("*_kernels_0.cc")).read_text()
    name = next(k["name"] for k in coil_json("debug", tmp_path / "loops.txt")["kernels"] if k["name"].startswith("product"))
    function = re.search(rf"COIL_NAME\(({name}\w*)\)", kernels).group(1)
    alone = kernels[:kernels.index('extern "C"', kernels.index(f"COIL_NAME({function})"))]
    (tmp_path / "bad.cc").write_text(alone.replace("1.0f", "1.5f"))
    assert "1.5f" in (tmp_path / "bad.cc").read_text()
    found = coil("debug", tmp_path / "loops.txt", "--shape", "rows=7", "--replace-kernel", f"{function}={tmp_path / 'bad.cc'}")
    assert found.returncode == 1 and name in found.stdout and "right" not in found.stdout, found.stdout + found.stderr
    right = (tmp_path / "loops.txt").read_text()
    for outside in ("load(act, i0, i1 + 1)", "load(act, i0, i1 - 1)", "load(act, i0 + 4096*i1, i1)"):
        (tmp_path / "loops.txt").write_text(right.replace("load(act, i0, i1)", outside))
        assert_refused(coil("debug", tmp_path / "loops.txt"), "the loops cannot be run on these inputs", "a load lies outside its buffer", code=104)
    (tmp_path / "loops.txt").write_text(right.replace("exp(", "expp("))
    assert_refused(coil("debug", tmp_path / "loops.txt"), "line 5, column", code=104)


def test_loops_that_are_none_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert_refused(coil("debug", tmp_path / "empty.txt"), "no", code=104)
    (tmp_path / "noise.txt").write_bytes(bytes(range(256)))
    assert_refused(coil("debug", tmp_path / "noise.txt"), "line 1", code=104)
    (tmp_path / "user.txt").write_text("input x: f32[4]\ny: f32[4] = user mine: x[i0]\noutput y\n")
    assert_refused(coil("debug", tmp_path / "user.txt"), "a user's kernel, whose code is not in the text", code=104)
    assert_refused(coil("debug", tmp_path / "user.txt", "--stage", "plan"), "one stage", code=402)
    assert_refused(coil("debug", tmp_path / "none.txt"), "does not exist", code=1)


def test_a_stage_of_a_graph_is_a_test_case(made, tmp_path):
    dump, _, _, _ = made
    stages = sorted(dump.glob("*_graph*.txt"))
    assert len(stages) == 9
    for stage in (stages[0], stages[3], stages[-1]):
        done = coil_json("debug", stage)
        assert done["kernels"] and done["first"] is None, stage
    # The stages that follow are those of the compile of the whole program.
    text = coil_ok("debug", stages[0], "-o", tmp_path / "again").stdout
    assert "of the bound" in text and "right: " in text
    for name in ("graph_functionalize", "graph_dead_code", "loops_lowered"):
        one, other = [next(folder.glob(f"*_{name}.txt")).read_text() for folder in (dump, tmp_path / "again")]
        assert one == other, name
    assert list((tmp_path / "again").glob("*_plan.txt"))


GRAPH = """program
dim rows (s0): 1..100
input parameter %w: f32[4, 8] = layer.weight
input user %x: f32[rows, 8]
%t: f32[8, 4] strides [1, 8] = aten.t.default(%w)
%product: f32[rows, 4] = aten.mm.default(%x, %t)  # model.py:3
%act: f32[rows, 4] = aten.add.Tensor(%product, other=1.25)
%total: f32[rows] = aten.sum.dim_IntList(%act, dim=[1])
return %total
"""


def test_an_edited_graph_and_a_wrong_kernel(tmp_path):
    graph = tmp_path / "graph.txt"
    graph.write_text(GRAPH)
    for rows in (1, 7, 100):
        assert coil_json("debug", graph, "--shape", f"rows={rows}")["first"] is None
    coil_ok("debug", graph, "-o", tmp_path / "out", "--shape", "rows=7")
    assert "+ 1.25" in next((tmp_path / "out").glob("*_loops.txt")).read_text()
    # The edited program is another one, all the way to the code.
    graph.write_text(GRAPH.replace("1.25", "2.5"))
    coil_ok("debug", graph, "-o", tmp_path / "edited", "--shape", "rows=7")
    assert "+ 2.5" in next((tmp_path / "edited").glob("*_loops.txt")).read_text()
    kernels = next((tmp_path / "edited").glob("*_kernels_0.cc")).read_text()
    assert "2.5f" in kernels and "1.25f" not in kernels
    # The reference knows what a kernel should do.
    head, *functions = kernels.split('extern "C"')
    text = next(f for f in functions if "2.5f" in f)
    function = re.search(r"COIL_NAME\((\w+)\)", text).group(1)
    name = max((k["name"] for k in coil_json("debug", graph)["kernels"] if function.startswith(k["name"])), key=len)
    alone = f'{head}extern "C"{text}'
    (tmp_path / "bad.cc").write_text(alone.replace("2.5f", "3.5f"))
    found = coil("debug", graph, "--shape", "rows=7", "--replace-kernel", f"{function}={tmp_path / 'bad.cc'}")
    assert found.returncode == 1 and name in found.stdout and "right" not in found.stdout, found.stdout + found.stderr


def test_graphs_that_are_none_are_refused(tmp_path):
    graph = tmp_path / "graph.txt"
    for wrong, said in (
        (GRAPH.replace("%x, %t", "%x, %u"), "line 6, column 48: there is no value '%u' before this line"),
        (GRAPH.replace("other=1.25", "othr=1.25"), "line 7, column 58: aten.add.Tensor has no argument 'othr'"),
        (GRAPH.replace("other=1.25", 'other="1.25"'), "argument 'other' is a string, which the operator does not take"),
        (GRAPH.replace("dim=[1]", "dim=[1.5]"), "argument 'dim' is a list of floats instead of a list"),
        (GRAPH.replace("aten.mm.default", "user my.mm"), "a user's kernel, whose code is not in the text"),
        (GRAPH.replace("rows", "workers"), "'workers' cannot name a dynamic dimension"),
        (GRAPH.replace("return %total\n", ""), "no line `return`"),
        (GRAPH.replace("%act: f32[rows, 4]", "%act: f32[rows, 40]"), "a dimension of 4 does not go with a result that has 40 there"),
    ):
        graph.write_text(wrong)
        assert_refused(coil("debug", graph), said, code=104)
    graph.write_bytes(b"program\n" + bytes(range(256)))
    assert_refused(coil("debug", graph), "line 2, column", code=104)


LOOPS = ("size rows = s0 in 1 to 100\n"
         "input x: f32[rows, 8]\n"
         "constant w: f32[4, 8]\n"
         "product: f32[rows, 4] = gemm batch [] m [rows] n [4] k [8]: x[i0, i2] * w[i1, i2]\n"
         "act: f32[rows, 4] = [i0, i1] exp(load(product, i0, i1)) + 1.0\n"
         "total: f32[rows] = sum over [4] [i0 | i1] load(act, i0, i1) * 0.5\n"
         "output total\n")


@pytest.fixture()
def plan(tmp_path):
    (tmp_path / "loops.txt").write_text(LOOPS)
    coil_ok("debug", tmp_path / "loops.txt", "-o", tmp_path / "out")
    path, = (tmp_path / "out").glob("*_plan.txt")
    return path


def test_a_plan_is_a_test_case(made, plan, tmp_path):
    dump = made[0]
    whole, = dump.glob("*_plan.txt")
    done = coil_json("debug", whole)
    assert all(k["compared"] for k in done["kernels"]) and done["first"] is None, done
    for rows in (1, 7, 100):
        text = coil_ok("debug", plan, "--shape", f"rows={rows}", "-o", tmp_path / "again").stdout
        assert "% of the bound" in text and "right: 2 kernels" in text
    # The code that follows is that of the loops.
    for name in ("kernels_0.cc", "host.cc"):
        one, = (tmp_path / "out").glob(f"*_{name}")
        other, = (tmp_path / "again").glob(f"*_{name}")
        assert re.sub(r"\d{6,}", "", one.read_text()) == re.sub(r"\d{6,}", "", other.read_text()), name


def test_edited_plans_and_a_wrong_kernel(plan, tmp_path):
    right = plan.read_text()
    edited = tmp_path / "edited.txt"

    def edit(old, new):
        assert old in right, right
        edited.write_text(right.replace(old, new))

    # As it stands: the code and the interpreter both do what the text says.
    edit("exp(t0) + 1.0", "exp(t0) * 3.0")
    assert coil_json("debug", edited, "--shape", "rows=7")["first"] is None
    # The interpreter knows what a kernel should do.
    kernels = next((tmp_path / "out").glob("*_kernels_0.cc")).read_text()
    function = re.search(r"COIL_NAME\((product\w*)\)", kernels).group(1)
    alone = kernels[:kernels.index('extern "C"', kernels.index(f"COIL_NAME({function})"))]
    (tmp_path / "bad.cc").write_text(alone.replace("1.0f", "1.5f"))
    assert "1.5f" in (tmp_path / "bad.cc").read_text()
    found = coil("debug", plan, "--shape", "rows=7", "--replace-kernel", f"{function}={tmp_path / 'bad.cc'}")
    assert found.returncode == 1 and "wrong kernel product_act: act[0, 0] is" in found.stdout and "right" not in found.stdout, found.stdout + found.stderr
    # What is not there is neither read nor written: no code runs.
    for old, new in (("total[i0]", "total[i0 + 4]"), ("load(act, 4*i0 + i1)", "load(act, 4*i0 + i1 + 1)")):
        edit(old, new)
        assert_refused(coil("debug", edited, "--shape", "rows=7"), "the plan cannot be run on these inputs", "kernel 1 'total'", code=104)
    edit("exp(", "expp(")
    assert_refused(coil("debug", edited), "line ", "column", "unknown operation", code=104)
    edit("at 0 of the arena", "nowhere")
    assert_refused(coil("debug", edited), "uses 'act', which has no place", code=104)
    edit("  1  total[i0] = t0\n", "")
    assert_refused(coil("debug", edited), "the output 'total' is never written", code=104)
    edit("reduce sum of", "reduce some of")
    assert_refused(coil("debug", edited), "expected the operation of a reduction", code=104)


def test_plans_that_are_none_are_refused(tmp_path):
    path = tmp_path / "plan.txt"
    for text, *words in (("kernel x\n", "no line"), ("kernel x\nkernel y\n", "what the kernel does has to follow"), ("", "no line"), ("size workers = ", "line 2"),
                         ("  for\nkernel x\n", "line 2", "belongs to no kernel"), ("kernel x\n  user mine: - -> -\n", "line 3", "expected 'of'"),
                         ("size workers = coil.workers in 1 to 65536\narena 0 bytes\nkernel x\n  end\n", "is a mark without a beginning")):
        path.write_text("plan\n" + text)
        assert_refused(coil("debug", path), *words, code=104)


def test_a_plan_is_told_from_loops_by_its_first_line(plan, tmp_path):
    """Wherever it is cut, it is read as a plan, and the error is about one."""
    lines, cut = plan.read_text().splitlines(), tmp_path / "cut.txt"
    assert lines[0] == "plan"
    for count in range(1, len(lines)):
        cut.write_text("\n".join(lines[:count]) + "\n")
        done = coil("debug", cut)
        assert done.returncode == 0 or "COIL-E104" in done.stderr and "`plan`" in done.stderr, (count, done.stderr)
    cut.write_text("\n".join(lines[1:]) + "\n")
    assert_refused(coil("debug", cut), "line ", code=104)


def packaged(program):
    coil_ok("compile", program, "-q", "-o", program.with_suffix(".coil.pt2"))
    return program.with_suffix(".coil.pt2")


def test_plans_that_run_image_by_image(tmp_path):
    """Kernels between marks are compared together, by what is there when all images are done."""
    conv = torch.nn.Conv2d

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.deep, self.narrow = conv(3, 16, 3, 2, 1), conv(16, 16, 3, padding=1, groups=16), conv(16, 16, 1)

        def forward(self, x):
            x = torch.nn.functional.hardswish(self.first(x))
            return torch.nn.functional.avg_pool2d(x + self.narrow(self.deep(x).relu()), 2)

    torch.export.save(torch.export.export(Deep().eval(), (torch.randn(5, 3, 242, 230),)), tmp_path / "deep.pt2")
    coil_ok("debug", tmp_path / "deep.pt2", "-o", tmp_path / "out")
    plan, = (tmp_path / "out").glob("*_plan.txt")
    text = plan.read_text()
    assert "image by image of 5" in text
    done = coil_json("debug", plan)
    together, = [k for k in done["kernels"] if k["name"].endswith(", image by image")]
    assert together["compared"] and together["largest_error"] <= 1 and done["first"] is None, done
    # A wrong kernel between the marks makes their result wrong.
    kernels = next((tmp_path / "out").glob("*_kernels_0.cc")).read_text()
    inside = next(k for k in together["name"].split(", ") if "relu" in k)
    function = re.search(rf"COIL_NAME\(({inside}_\w+)\)", kernels).group(1)
    own = coil_ok("inspect", "--source", function, packaged(tmp_path / "deep.pt2")).stdout
    assert "cd::maximum(" in own
    (tmp_path / "bad.cc").write_text(own.replace("cd::maximum(", "cd::minimum("))
    found = coil("debug", plan, "--replace-kernel", f"{function}={tmp_path / 'bad.cc'}")
    assert found.returncode == 1 and "image by image: " in found.stdout and "wrong kernel" in found.stdout, found.stdout + found.stderr


def test_plans_with_a_users_kernel(tmp_path):
    """What is around it runs, on made-up numbers in place of its results; it is said to be missing."""
    plan = tmp_path / "plan.txt"
    plan.write_text("plan\nsize rows = s0 in 1 to 100\nsize workers = coil.workers in 1 to 65536\ninput x: f32[rows, 8]; argument 0\n"
                    "buffer a: f32[rows, 8]; at 0 of the arena\nbuffer mine: f32[rows, 8]; at 64*((rows + 1)//2) of the arena\nbuffer out: f32[rows, 8]; result 0\nargument x\n"
                    "kernel exp\n  for i0<8*rows\n  0  a[i0] = exp(load(x, i0))\n"
                    "kernel my_op\n  user \"my::op\\\"\": a[8*i0 + i1] of [rows, 8] -> mine\n"
                    "kernel add\n  for i0<8*rows\n  0  out[i0] = load(mine, i0) + load(a, i0)\n"
                    "output out\narena 128*((rows + 1)//2) bytes\n")
    done = coil_json("debug", plan, "--shape", "rows=7")
    rows = {k["name"]: k for k in done["kernels"]}
    assert rows["exp"]["compared"] and rows["add"]["compared"] and done["first"] is None, done
    assert not rows["my_op"]["compared"] and "my::op" in rows["my_op"]["why_not"] and "made-up numbers" in rows["my_op"]["why_not"]
    plan.write_text(plan.read_text().replace("a[8*i0 + i1] of", "a[8*i0*i1] of"))
    assert_refused(coil("debug", plan), "a stride for each dimension", code=104)
