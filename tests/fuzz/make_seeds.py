#!/usr/bin/env python3
"""Writes the seeds of fuzz_reader from a folder of small exported programs: tests/fuzz/make_seeds.py FOLDER.

Each program becomes up to two seeds: the archive itself, and its JSON entries as text with a line "----" between them (the fuzz
target puts those into an archive of its own, so that a mutation does not fail at a checksum). Programs of PyTorch 2.7 give the
archive and the pickle of their weights.
"""
import io
import json
import pathlib
import sys
import zipfile

TARGET = pathlib.Path(__file__).resolve().parent / "seeds/reader"
ENTRIES = ("models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
MAX_ARCHIVE = 15_000


def shorten(value):
    """Without the metadata that only costs bytes."""
    if isinstance(value, dict):
        return {k: shorten(v) for k, v in value.items() if k not in ("torch_fn", "from_node", "source_fn_stack")}
    return [shorten(v) for v in value] if isinstance(value, list) else value


def main(folder):
    TARGET.mkdir(parents=True, exist_ok=True)
    for path in sorted(pathlib.Path(folder).glob("*.pt2")):
        if path.stat().st_size <= MAX_ARCHIVE:
            (TARGET / path.name).write_bytes(path.read_bytes())
        archive = zipfile.ZipFile(path)
        if "serialized_state_dict.pt" in archive.namelist():
            weights = zipfile.ZipFile(io.BytesIO(archive.read("serialized_state_dict.pt")))
            (TARGET / f"{path.stem}.pkl").write_bytes(weights.read("archive/data.pkl"))
            continue
        root = archive.namelist()[0].split("/")[0]
        parts = [json.dumps(shorten(json.loads(archive.read(f"{root}/{e}"))), separators=(",", ":")) for e in ENTRIES]
        (TARGET / f"{path.stem}.txt").write_text("\n----\n".join(parts))


if __name__ == "__main__":
    main(sys.argv[1])
