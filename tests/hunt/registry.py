"""The programs that the hunt has, by name."""

PROGRAMS = {}  # name: (function that gives a function or module and its arguments, tags)
MODULES = ("science", "sequences", "tables", "images", "forms", "sizes", "tutorials", "simulations", "training", "studies", "laboratories", "repositories", "methods")


def program(*tags):
    """A decorator. Tags: "train": not in eval mode; "random": a package draws other numbers; "large": its time is of interest."""

    def add(make):
        assert make.__name__ not in PROGRAMS, make.__name__
        PROGRAMS[make.__name__] = (make, tags)
        return make

    return add


def load():
    """All programs."""
    for module in MODULES:
        __import__(module)
    return PROGRAMS
