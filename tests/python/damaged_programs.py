"""The digits program with some of its entries replaced, and what must hold where such a file is refused."""

import json
import zipfile

from harness import DIGITS, assert_refused, coil

MODEL = "digits/models/model.json"
CONFIG = "digits/data/weights/model_weights_config.json"
WEIGHT = "digits/data/weights/weight_3"


def entries():
    with zipfile.ZipFile(DIGITS) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_zip(path, contents, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def changed(path, **changes):
    """The digits program with some entries replaced; keys are the constants above."""
    return write_zip(path, entries() | {globals()[key]: value for key, value in changes.items()})


def program():
    return json.loads(entries()[MODEL])


def compile_refused(path, tmp_path, *texts, **options):
    """Compiling fails well, leaves nothing behind, and `check` does not crash either."""
    folder = tmp_path / "out"
    folder.mkdir(exist_ok=True)
    assert_refused(coil("compile", path, "-o", folder / "x.coil.pt2"), *texts, **options)
    assert list(folder.iterdir()) == [], "something was left behind"


def survives(done, output=None):
    """Either success or a proper refusal: what damage at a random place must lead to."""
    if done.returncode != 0:
        assert_refused(done)
        assert output is None or not output.exists()
