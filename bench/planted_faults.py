"""Thirty faults, each planted into one kernel of a program: a wrong constant, a race and a slow variant in ten programs each. Does one command name the kernel?

usage: planted_faults.py [--programs NAME ...] [--faults wrong race slow] [--build FOLDER] [--json FILE]

A fault is an edited kernel that `--replace-kernel` puts into the package; the other kernels are edited too, harmlessly, so that being edited says nothing. wrong: a
constant of the kernel's arithmetic is off by 6 %. race: each part of a parallel loop also clears a number of the next part's results. slow: the function
wastes some milliseconds. Asked are

  wrong, race   coil diff (the first kernel that it names), coil bisect (the one edited kernel that the program is right without)
  slow          coil report of the package and of the sound one beside it (what it calls slower), coil bisect --slow

A case counts where every command names the function that was changed, and no other one. Exit code 0: at least 29 of 30 (of all but one in thirty).
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MOST = 10  # programs for each fault, of those that can have it
LEVEL = ("--target", "cpu:x86-64-v3", "-O", "1")  # one of the machine's levels: half the time


def family(function):
    """The function's name without the hash of its text, which an edited one has another of."""
    return function[:-9]


class Planter:
    def __init__(self, coil, folder):
        self.coil, self.folder = str(coil), folder
        sys.path.insert(0, str(HERE.parent / "tests/python"))
        import planted

        self.planted, self.made = planted, planted.export(folder)

    def run(self, *arguments):
        done = subprocess.run([self.coil, *map(str, arguments)], capture_output=True, text=True, env=dict(os.environ, NO_COLOR="1"))
        if done.returncode not in (0, 1):
            raise RuntimeError(f"coil {' '.join(map(str, arguments))} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    def kernels(self, program):
        """[(function, text)], each once, in order."""
        package = self.folder / "sound.coil.pt2"
        self.run("compile", program, "-q", "-o", package, *LEVEL)
        found = {}
        for kernel in json.loads(self.run("inspect", package, "--json"))["kernels"]:
            text = self.run("inspect", package, "--source", kernel["function"]) if kernel["function"] else ""
            if "COIL_KERNEL" in text:
                found[kernel["function"]] = text
        return package, found

    def case(self, name, fault):
        """(program, inputs, function, options, sound package) or None: no kernel of the program can have the fault."""
        program, inputs = self.made[name]
        change = {"wrong": self.planted.wrong_constant, "race": self.planted.race, "slow": self.planted.slow}[fault]
        package, kernels = self.kernels(program)
        able = [(function, change(text)) for function, text in kernels.items()]
        able = [(function, text) for function, text in able if text is not None and text != kernels[function]]
        if not able:
            return None
        function, text = able[-1]
        options = []
        for other, sound in kernels.items():
            file = self.folder / f"{name}_{fault}_{other}.cc"
            file.write_text(text if other == function else "// edited\n" + sound)
            options += ["--replace-kernel", f"{other}={file}"]
        return program, inputs, function, options, package

    def ask(self, name, fault):
        """{command: the functions that it names}, and the function that was changed."""
        planted = self.case(name, fault)
        if planted is None:
            return None, {}
        program, inputs, function, options, sound = planted
        if fault == "slow":
            slow = self.folder / "slow.coil.pt2"
            self.run("compile", program, "-q", "-o", slow, *options, *LEVEL)
            text = self.run("report", sound, slow, "-i", inputs, "-o", self.folder / "both.html", "--threads", 1)
            bisected = json.loads(self.run("bisect", program, "-i", inputs, *options, *LEVEL, "--slow", "--threads", 1, "--json"))
            return function, {"report": re.findall(r"^  slower (\S+):", text, re.M), "bisect": [c["name"] for c in bisected["culprits"] if c["kind"] == "edited kernel"]}
        found = json.loads(self.run("diff", program, "-i", inputs, *options, *LEVEL, "--json"))
        bisected = json.loads(self.run("bisect", program, "-i", inputs, *options, *LEVEL, "--json"))
        return function, {"diff": [found["first"]["function"]] if found["first"] else [], "bisect": [c["name"] for c in bisected["culprits"] if c["kind"] == "edited kernel"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*")
    parser.add_argument("--faults", nargs="*", choices=("wrong", "race", "slow"), default=("wrong", "race", "slow"))
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("COIL_BUILD", "build")))
    parser.add_argument("--json", type=pathlib.Path, help="write the answers there")
    a = parser.parse_args()
    rows, right, cases = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        planter = Planter(a.build.resolve() / "coil", pathlib.Path(folder))
        for fault in a.faults:
            found = 0
            for name in a.programs or planter.made:
                if found == MOST:
                    break
                function, answers = planter.ask(name, fault)
                if function is None:
                    print(f"{name:10} {fault:6} no kernel can have it", flush=True)
                    continue
                good = {command: [family(f) for f in named] == [family(function)] for command, named in answers.items()}
                found += 1
                cases, right = cases + 1, right + all(good.values())
                rows.append({"program": name, "fault": fault, "function": function, "answers": answers, "right": all(good.values())})
                print(f"{name:10} {fault:6} {function:60} " + "  ".join(f"{command}: {'right' if ok else answers[command] or 'nothing'}" for command, ok in good.items()), flush=True)
    print(f"{right} of {cases} cases: every command names the kernel that was changed, and no other one")
    if a.json:
        a.json.write_text(json.dumps({"right": right, "cases": cases, "rows": rows}, indent=1) + "\n")
    return 0 if cases - right <= cases / 30 else 1


if __name__ == "__main__":
    sys.exit(main())
