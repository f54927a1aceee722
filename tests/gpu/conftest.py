"""--share I/N: of the tests that are left, every N-th from the I-th (0 to N - 1) on, so that N processes share a file's tests."""


def pytest_addoption(parser):
    parser.addoption("--share", type=lambda s: tuple(map(int, s.split("/"))), default=(0, 1))


def pytest_collection_modifyitems(config, items):
    first, step = config.getoption("--share")
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % step != first])
    items[:] = items[first::step]
