"""Programs that once exploded while they were compiled: what grows is bounded by budgets, the work is linear in the program, and the results are eager's."""

import json
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import harness

sys.path.insert(0, str(harness.REPO / "bench"))
import scaling_crowds  # noqa: E402, F401
import scaling_networks  # noqa: E402, F401
import scaling_names  # noqa: E402, F401
import scaling_oddities  # noqa: E402, F401
import scaling_sizes  # noqa: E402, F401
from scaling_programs import SHAPES, Program, Size, unary  # noqa: E402

pytest.importorskip("torch")
GIGABYTE = 2**30


def compiled(shape, n, folder, *options):
    """The summary of compiling a shape of n nodes, with `cpu`, the seconds that it computed."""
    program = SHAPES[shape](n).save(folder / f"{shape}-{n}.pt2")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (12 * GIGABYTE, 12 * GIGABYTE))  # noqa: E731
    report = harness.coil_json("compile", program, "-o", folder / f"{shape}-{n}.coil.pt2", "--target", "cpu:x86-64-v3", "-O0", "--threads", 1, *options, preexec_fn=bound)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return report


def refused(program, folder, text, *options):
    """A program that exceeds a budget: the error names it, and nothing takes long on the way there."""
    path = program.save(folder / "p.pt2")
    code, message, memory = harness.coil_measured("compile", path, "-o", folder / "p.coil.pt2", "-O0", *(options or ("--target", "cpu:x86-64-v3")))
    assert code in range(1, 9) and "COIL-E" in message and text in message, message[:500]
    assert memory < (400 << 10) + 64 * path.stat().st_size // 1024, f"{memory} KB"


# With most operations of one kernel that each may have: what a program of n nodes becomes is linear, from few nodes on.
LINEAR = ["relu_chain", "same_choices", "diamonds", "where_nest", "where_diamonds", "coprime_reshapes", "coprime_reshapes_3d", "select_scatters", "slices_and_pads", "cats", "gathers",
          "constants", "reader_outputs", "writes_in_place", "doubled", "views_of_views", "kept_sizes", "writes_through_views", "places", "while_loops", "lists", "short_lists", "small_scans", "own_norms", "own_tables"]


@pytest.mark.parametrize("shape", LINEAR)
def test_work_is_linear(shape, tmp_path):
    small, large = compiled(shape, 250, tmp_path), compiled(shape, 1000, tmp_path)
    for what in ("loops", "kernels", "functions", "code_bytes"):
        assert large[what] <= 4 * 1.3 * small[what] + (8192 if what == "code_bytes" else 4), f"{what}: {small[what]} for 250 nodes, {large[what]} for 1000"
    assert large["cpu"] < 4 * 2 * small["cpu"] + 1, f"{small['cpu']:.2f} s for 250 nodes, {large['cpu']:.2f} s for 1000"


@pytest.mark.parametrize("shape,n", [("where_nest", 260), ("where_diamonds", 200), ("coprime_reshapes", 80), ("coprime_reshapes_3d", 60), ("select_scatters", 150), ("slices_and_pads", 60),
                                     ("gathers", 60), ("constants", 200), ("diamonds", 90), ("norms", 200), ("cats", 60), ("slice_scatters", 90), ("running_total", 300), ("layers", 80),
                                     # values with several readers in one kernel, pieces that are written, sizes whose places have no exact sums, parts of loops' results
                                     ("doubled", 130), ("complexes", 60), ("writes_to_pieces", 60), ("kept_sizes", 360), ("projections", 60), ("checked_rows", 90), ("backward_norms", 140),
                                     ("backward_layers", 64), ("recurrent", 60), ("index_chain", 60), ("scatters", 40), ("lists", 120), ("short_lists", 160),
                                     # more calls than one function of the host program has
                                     ("products", 1200), ("scans_and_sorts", 600), ("states", 1300), ("branches", 1000), ("nested_branches", 500), ("assertions", 1000),
                                     # more than one file of the host program has; symbols that kernels have numbers of their own for
                                     ("dynamic_scans", 2500), ("late_outputs", 1100), ("masked_sums", 320), ("own_convolutions", 100), ("topks", 100), ("transforms", 90),
                                     # launches that are rows of a table: places of every kind, positions that are checked
                                     ("dense_blocks", 200), ("max_pools", 150), ("inputs_and_outputs", 100), ("inputs_as_outputs", 100), ("diagonals", 300), ("unfolds", 700)])
def test_results_are_eagers(shape, n, tmp_path):
    program = SHAPES[shape](n)
    inputs = program.examples()
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", program.save(tmp_path / "p.pt2"), "-o", package, "--target", "cpu:x86-64-v3", "-O1")
    np.savez(tmp_path / "in.npz", **{f"x{i}": x for i, x in enumerate(inputs)})
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), program.replay(inputs), 1e-4, shape)


@pytest.mark.parametrize("shape,calls", [("late_outputs", 6), ("masked_sums", 6), ("symbols_with_checks", 1)])
def test_kernels_of_many_sizes_are_few(shape, calls, tmp_path):
    """They differed by the number of a symbol: clang compiled each by itself, and held what it wrote."""
    functions = compiled(shape, 400, tmp_path)["functions"]
    assert functions <= calls + 2, functions


def test_many_sizes_of_several_levels(tmp_path):
    """Several files of the host program share the table of two instruction sets' kernels."""
    program = SHAPES["late_outputs"](1100)
    inputs = program.examples()
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", program.save(tmp_path / "p.pt2"), "-o", package, "-O0")
    with zipfile.ZipFile(package) as archive:
        hosts = [name.rsplit("/", 1)[1] for name in archive.namelist() if "/src/host" in name]
    assert sorted(hosts) == ["host.cc", "host_1.cc", "host_2.cc"], hosts
    np.savez(tmp_path / "in.npz", **{f"x{i}": x for i, x in enumerate(inputs)})
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), program.replay(inputs), 0, "several files")


def test_names_are_short(tmp_path):
    """The name of what is inlined was put before the reader's for each reader: it doubled with each of these."""
    program = SHAPES["same_choices"](260).save(tmp_path / "p.pt2")
    env = {"COIL_DUMP": str(tmp_path / "dump"), "COIL_CACHE": "off", "PATH": "/usr/bin"}
    subprocess.run([harness.COIL, "compile", "-q", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "-O0"], check=True, timeout=60, env=env)
    longest = max((len(line), file.name) for file in (tmp_path / "dump").rglob("*") if file.is_file() for line in file.read_text().splitlines())
    assert longest[0] < 20_000, longest


# What was quadratic without making more code: the larger one took 9 to 16 times as long as the smaller one.
@pytest.mark.parametrize("shape,n", [("constant_formulas", 4000), ("checked_rows", 2500), ("projections", 2500), ("images", 2000), ("same_outputs", 4000)])
def test_time_is_linear(shape, n, tmp_path):
    small, large = compiled(shape, n, tmp_path), compiled(shape, 4 * n, tmp_path)
    assert large["cpu"] < 4 * 1.6 * small["cpu"] + 0.5, f"{small['cpu']:.2f} s for {n} nodes, {large['cpu']:.2f} s for {4 * n}"


def test_many_outputs_of_one_shape(tmp_path):
    """Each had a case of its own in the host program's text: clang took 800 MB for 40,000 of them."""
    program = SHAPES["same_outputs"](40_000).save(tmp_path / "p.pt2")
    code, message, memory = harness.coil_measured("compile", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "-O0", "--threads", 1)
    assert code == 0, message
    assert memory < (256 << 10) + 64 * program.stat().st_size // 1024, f"{memory} KB"


def test_launches_of_constants(tmp_path):
    """As statements of the host program each took clang some milliseconds, and 820 MB all together."""
    program = SHAPES["dense_blocks"](8_000).save(tmp_path / "p.pt2")
    code, message, memory = harness.coil_measured("compile", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "--threads", 1)
    assert code == 0, message
    assert memory < 450 << 10, f"{memory} KB"


def test_the_call_names_what_is_out_of_range(tmp_path):
    """A flag of a launch in a table: the first kernel that finds a position out of range is named, and states are as they were."""
    p = Program()
    table, at = p.input(4, 8), p.input(4, dtype="i64")
    values = [table]
    for i in range(150):
        rows = p.op("aten.index_select.default", [4, 8], self=values[-1], dim=0, index=at)
        values.append(p.op("aten.cumsum.default", [4, 8], self=rows, dim=1))
    p.output(values[-1])
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", p.save(tmp_path / "p.pt2"), "-o", package, "--target", "cpu:x86-64-v3", "-O0")
    for wrong in (4, -1):
        np.savez(tmp_path / "in.npz", x0=np.ones((4, 8), np.float32), x1=np.array([0, 1, wrong, 2]))
        harness.assert_refused(harness.coil("run", package, "--input", tmp_path / "in.npz"), "an index is out of range in", code=210)


def test_pieces_that_are_written(tmp_path):
    """Each write makes a piece again, alone; the room of all pieces' values stayed with each of them: 2.7 GB for 50,000 nodes."""
    program = SHAPES["writes_to_pieces"](30_000).save(tmp_path / "p.pt2")
    code, message, memory = harness.coil_measured("check", program)
    assert code == 0, message
    assert memory < 450 << 10, f"{memory} KB"


def test_many_sines_on_cuda(tmp_path):
    """Within one kernel too: inlined, each of them took NVRTC 80 ms, and 530 MB all together."""
    program = SHAPES["diamonds"](250).save(tmp_path / "p.pt2")
    code, message, memory = harness.coil_measured("compile", program, "-o", tmp_path / "p.coil.pt2", "--target", "cuda:sm_90", "--threads", 1)
    assert code == 0, message
    assert memory < (256 << 10) + 64 * program.stat().st_size // 1024, f"{memory} KB"


def test_passes_that_compute_again_on_cuda(tmp_path):
    """Columns of unknown length are not kept between a kernel's passes: each of the 50 sums and maxima computed all before it again, eight points at once.
    NVRTC took 140 s and 2.9 GB for the one kernel."""
    program = SHAPES["dynamic_backward"](100).save(tmp_path / "p.pt2")
    code, message, memory = harness.coil_measured("compile", program, "-o", tmp_path / "p.coil.pt2", "--target", "cuda:sm_90", "--threads", 1)
    assert code == 0, message
    assert memory < (256 << 10) + 64 * program.stat().st_size // 1024, f"{memory} KB"
    text = harness.coil_ok("inspect", tmp_path / "p.coil.pt2", "--source").stdout
    assert text.count("cd::exp(") < 500, "25 softmaxes"


def test_deep_views(tmp_path):
    """Chains of views are followed without recursion, and written to as well."""
    assert compiled("views_of_views", 30_000, tmp_path)["kernels"] == 1
    p = Program()
    x = y = unary(p, "neg", p.input(4, 8))
    for _ in range(20_000):
        y = p.op("aten.transpose.int", y.sizes[::-1], self=y, dim0=0, dim1=1)
    p.op("aten.add_.Scalar", y.sizes, self=y, other=1.0)
    p.output(x)
    path = p.save(tmp_path / "w.pt2")
    package = tmp_path / "w.coil.pt2"
    harness.coil_ok("compile", path, "-o", package, "--target", "cpu:x86-64-v3", "-O0")
    (given,) = p.examples()
    np.savez(tmp_path / "in.npz", x0=given)
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), [-given + 1], 1e-6, "written view")


def test_the_budget_of_views_is_told(tmp_path):
    """Each of many views of views is made again after each write."""
    refused(SHAPES["deep_view_written"](1500), tmp_path, "the budget of this pass")


def test_names_of_written_tensors_are_short(tmp_path):
    """Each write named the tensor's new value after the last one."""
    program = SHAPES["writes_in_place"](1000).save(tmp_path / "p.pt2")
    env = {"COIL_DUMP": str(tmp_path / "dump"), "COIL_CACHE": "off", "PATH": "/usr/bin"}
    subprocess.run([harness.COIL, "compile", "-q", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "-O0"], check=True, timeout=60, env=env)
    graph = next((tmp_path / "dump").glob("*graph_functionalize*")).read_text()
    assert max(len(line) for line in graph.splitlines()) < 300


def test_many_pieces_that_are_written(tmp_path):
    """A write to one piece made all the others again."""
    program = SHAPES["writes_to_pieces"](3000).save(tmp_path / "p.pt2")
    env = {"COIL_DUMP": str(tmp_path / "dump"), "COIL_CACHE": "off", "PATH": "/usr/bin"}
    subprocess.run([harness.COIL, "compile", "-q", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "-O0"], check=True, timeout=120, env=env)
    graph = next((tmp_path / "dump").glob("*graph_functionalize*"))
    assert graph.stat().st_size < 3_000_000


@pytest.mark.parametrize("text", ["Add(Integer(1), " * 150 + "Symbol('s0')" + ")" * 150, "Add(Symbol('s0'), " + ", ".join(["Integer(1)"] * 1200) + ")"])
def test_the_budget_of_size_expressions_is_told(text, tmp_path):
    p = Program()
    p.symbol("s0", 6)
    p.output(unary(p, "sin", p.input(Size(text, 6), 8)))
    refused(p, tmp_path, "nested more than 100 deep or has more than 2000 parts")


@pytest.mark.parametrize("guard,told", [("(" * 50 + "L['x0'].size()[0]" + ")" * 50 + " < 5000", "nested"), (" and ".join(["L['x0'].size()[0] < 5000"] * 200), "4000 characters")])
def test_the_budgets_of_guards_are_told(guard, told, tmp_path):
    p = Program()
    p.output(unary(p, "sin", p.input(p.symbol("s0", 6), 8)))
    p.guards = [guard]
    refused(p, tmp_path, told)


def test_the_budget_of_dimensions_is_told(tmp_path):
    refused(SHAPES["many_symbols"](24_000), tmp_path, "10000 dynamic dimensions")
    refused(SHAPES["many_symbols"](1000), tmp_path, "at most 255", "--target", "cuda:sm_90")


def cpu_of(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    harness.coil_ok(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_checking_is_linear(tmp_path):
    """Each node was lowered beside a table of all values."""
    small, large = (cpu_of("check", SHAPES["relu_chain"](n).save(tmp_path / f"{n}.pt2")) for n in (12_000, 48_000))
    assert large < 4 * 1.6 * small + 0.5, f"{small:.2f} s for 12,000 nodes, {large:.2f} s for 48,000"


def test_inspecting_many_sizes_is_linear(tmp_path):
    """The bytes of inputs of 9000 different sizes: their sum was a node of its own after each of them."""
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", SHAPES["many_symbols"](8).save(tmp_path / "p.pt2"), "-o", package, "--target", "cpu:x86-64-v3", "-O0")
    with zipfile.ZipFile(package) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in contents if n.endswith("manifest.json"))
    manifest = json.loads(contents[name])
    row, symbol = manifest["inputs"][0], manifest["symbols"][0]
    manifest["symbols"] = [symbol | {"name": f"s{i}", "export_name": f"s{i}"} for i in range(9000)]
    manifest["inputs"] = [row | {"name": f"x{i}", "shape": [f"s{i}", 8]} for i in range(9000)]
    with zipfile.ZipFile(package, "w") as archive:
        for entry, data in (contents | {name: json.dumps(manifest)}).items():
            archive.writestr(entry, data)
    code, text, memory = harness.coil_measured("inspect", package)
    assert "s8999" in text and memory < 200 << 10, f"exit code {code}, {memory} KB: {text[:300]}"
