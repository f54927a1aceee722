"""What `make test` asks of pytest: which part of the tests, and until when. Without these options everything that is named runs.

--part sample: of each test function the first two cases and one in twelve of the others; --part rest: what that leaves out. The order of the cases is
that of a hash of their names, so that the sample is the same everywhere and changes little when a case is added. --until: a test that would begin later
is skipped, and counted as not tried.
"""

import collections
import time
import zlib

import pytest

FIRST = 2
SHARE = 12
TIME_IS_UP = "not tried: the time was up"


def pytest_addoption(parser):
    parser.addoption("--part", choices=["sample", "rest"], help="run a sample of each test's cases, or what that leaves out")
    parser.addoption("--until", type=float, metavar="SECONDS", help="skip tests that would begin after this time (since 1970)")


def sample(names):
    """Those of the names ("file::test[case]") that are run first."""
    cases = collections.defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    chosen = set()
    for members in cases.values():
        ordered = sorted(members, key=lambda name: (zlib.crc32(name.encode()), name))
        chosen.update(name for place, name in enumerate(ordered) if place < FIRST or place % SHARE == 0)
    return chosen


def pytest_collection_modifyitems(config, items):
    part = config.getoption("part")
    if not part:
        return
    chosen = sample([item.nodeid for item in items])
    wanted = [item for item in items if (item.nodeid in chosen) == (part == "sample")]
    config.hook.pytest_deselected(items=[item for item in items if (item.nodeid in chosen) != (part == "sample")])
    items[:] = wanted


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    until = item.config.getoption("until")
    if until and time.time() > until:
        pytest.skip(TIME_IS_UP)
