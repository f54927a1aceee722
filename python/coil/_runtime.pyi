from typing import Any, Sequence

__version__: str

def host_isa() -> str:
    """The x86-64 level of this machine, "x86-64-v4"."""

def cuda_devices() -> list[tuple[str, int, int]]:
    """(name, 10 * major + minor of the compute capability, bytes of memory) of each."""

def write_file(path: str, content: Any) -> None:
    """Bytes (the buffer protocol) into a file, which appears whole or not at all; through links, and with the mode of an existing file."""

class Profile:
    """The calls since it was started."""

    def stop(self) -> None: ...
    def write(self, path: str) -> None:
        """A trace in the Chrome format."""
    def table(self) -> str:
        """The sums of models and kernels as JSON."""
    def reports(self) -> list[str]:
        """The data of a report for each model that was called and is still open."""
    @property
    def num_calls(self) -> int: ...

def start_profile(model: Model | None, calls: int = 0, counters: bool = False) -> Profile:
    """Records the calls of a model, None: of all in this process."""

def report_json(model: Model, profile: Profile, title: str, record: str = "") -> str:
    """What the package says, what the profile's calls of it took, and what the machine can do. `record`: a tuning record's JSON."""

def report_page(reports: Sequence[str]) -> str:
    """The page of one report, or of two side by side."""

class Model:
    """An open package. Shared by any number of threads."""

    @staticmethod
    def open(path: str, device: str = "", threads: int = 0, verify: bool = False) -> Model: ...
    @staticmethod
    def open_memory(package: Any, device: str = "", threads: int = 0) -> Model:
        """`package`: an object with the buffer protocol, kept as long as the model."""

    def run(self, flat: Sequence[Any]) -> list[Any]:
        """One call: a list or tuple of the inputs in order; tensors of the first one's kind out."""

    def save(self, path: str) -> None:
        """The package's bytes into a file, as write_file."""
    def synchronize(self) -> None: ...
    def check(self) -> None: ...
    def reset_state(self) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def has_constants(self) -> bool:
        """Whether the package holds weights for the last inputs (see _constants.py)."""
    @property
    def in_spec(self) -> str: ...
    @property
    def out_spec(self) -> str: ...
    @property
    def argument_names(self) -> list[str]: ...
    @property
    def inputs(self) -> list[tuple[str, str, list[tuple[str | None, int, int | None, int | None]], str | None, bool]]: ...
    @property
    def outputs(self) -> list[tuple[str, str, list[tuple[str | None, int, int | None, int | None]], str | None, bool]]: ...
    @property
    def output_places(self) -> list[int]: ...
    @property
    def fixed_inputs(self) -> dict[int, tuple[str, Any]]: ...
