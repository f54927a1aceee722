"""Loading a language model's package, forking conversations, and many conversations of simulated use.

usage: python bench/conversations.py PACKAGE [--conversations 256] [--seconds 60] [--context 512] [--threads 1] [--loads 9]

Printed are milliseconds (median, with the quartiles; the processor's own beside them, for busy machines) of loading the package from the page cache, and of
forking a conversation whose cache is full to a quarter, a half and the whole: the first fork, and those that follow. Then conversations are begun, continued, forked, truncated, saved,
restored and dropped by chance. After each round the same short conversations are begun anew, and the process's memory, threads and descriptors are printed:
they have to stay where they are (the exit status is 1 if memory has grown by more than 5 % since the second round, or the others at all).
"""

import argparse
import os
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "build", "python"))

import coil.llm  # noqa: E402


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def timed(work, times):
    """Milliseconds of each call, by the wall and of the processor, and the last result."""
    walls, own, made = [], [], None
    for _ in range(times):
        made = None
        wall, cpu = time.perf_counter(), time.process_time()
        made = work()
        own.append((time.process_time() - cpu) * 1e3)
        walls.append((time.perf_counter() - wall) * 1e3)
    return walls, own, made


def memory():
    with open("/proc/self/status") as status:
        found = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(("RssAnon", "RssShmem", "Threads"))}
    return (int(found["RssAnon"]) + int(found["RssShmem"])) / 1e3, int(found["Threads"]), len(os.listdir("/proc/self/fd"))


def tokens(rng, count, vocabulary):
    return [rng.randrange(vocabulary) for _ in range(count)]


def loads(package, options):
    with open(package, "rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    for name, work in (("model", lambda: coil.load(package)), ("generator", lambda: coil.llm.Generator(package, num_threads=options.threads))):
        walls, own, _ = timed(work, options.loads)
        print(f"load, {name}: {spread(walls)} ms, of the processor {spread(own)}; the first one {walls[0]:.2f}", flush=True)


def forks(generator, options):
    rng = random.Random(0)
    for part in (4, 2, 1):
        talk = generator.conversation(tokens(rng, options.context // part - 2, options.vocabulary))
        talk.generate(1)
        walls, own, made = timed(talk.fork, 1)
        more, more_own, made = timed(talk.fork, 20)
        told, _, _ = timed(lambda: made.generate(1), 1)
        print(f"fork, {options.context // part} rows: the first {walls[0]:.2f} ms ({own[0]:.2f}), then {spread(more)} ms ({spread(more_own)}); its first token {told[0]:.1f} ms", flush=True)


def use(generator, talks, rng, options):
    """Something that people do with one of the conversations."""
    at = rng.randrange(len(talks))
    talk = talks[at]
    room = options.context - len(talk.tokens) - 1
    what = rng.choice(["more", "more", "more", "fork", "truncate", "save", "new"])
    if what == "more" and room > 12:
        talk.append(tokens(rng, rng.randrange(1, 9), options.vocabulary))
        talk.generate(rng.randrange(1, 4))
    elif what == "fork":
        talks[rng.randrange(len(talks))] = talk.fork()
    elif what == "truncate" and len(talk.tokens) > 2:
        talk.truncate(rng.randrange(1, len(talk.tokens)))
    elif what == "save":
        talks[rng.randrange(len(talks))].restore(talk.save())
    elif what == "new" or room <= 12:
        talks[at] = generator.conversation(tokens(rng, rng.randrange(1, min(40, options.context // 2)), options.vocabulary))


def rounds(generator, options):
    """Use, then the same short conversations anew: what is more by then than before was lost."""
    rng, seen, steps = random.Random(1), [], 0
    begun = [tokens(rng, 1 + i % 7, options.vocabulary) for i in range(options.conversations)]
    talks = [generator.conversation(ids) for ids in begun]
    end = time.time() + options.seconds
    while time.time() < end or len(seen) < 3:
        round_end = time.time() + max(options.seconds / 6, 1)
        while time.time() < round_end:
            use(generator, talks, rng, options)
            steps += 1
        held, used = sum(len(t.tokens) for t in talks), memory()[0]
        talks = None
        talks = [generator.conversation(ids) for ids in begun]
        seen.append(memory())
        megabytes, threads, files = seen[-1]
        print(f"round {len(seen)}: {steps} steps, {used:.1f} MB with {held} tokens held by {len(talks)}; begun anew {megabytes:.1f} MB, {threads} threads, {files} descriptors", flush=True)
    grown = seen[-1][0] / seen[1][0] - 1
    print(f"memory of conversations begun anew, since the second round: {grown:+.1%}")
    return grown <= 0.05 and seen[-1][1:] == seen[1][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--context", type=int, default=512, help="rows of the package's caches")
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loads", type=int, default=9)
    options = parser.parse_args()
    loads(options.package, options)
    generator = coil.llm.Generator(options.package, num_threads=options.threads)
    forks(generator, options)
    sys.exit(0 if rounds(generator, options) else 1)


if __name__ == "__main__":
    main()
