"""docs/errors.md lists exactly the codes of src/base/error_codes.def, in order, with their texts and something to do."""

import re

import harness

DEFINITION = re.compile(r'^X\((\d+), (\w+), (\d+), "(.*)"\)$', re.MULTILINE)
SECTION = re.compile(r"^### E(\d{3}) `(\w+)`\n\n(.*?)\s+Exit\s+code\s+(\d+)\.\n\n\*\*What to do:\*\* (.*?)(?=\n\n|\n?\Z)", re.MULTILINE | re.DOTALL)


def test_table_is_that_of_the_source():
    source = (harness.REPO / "src/base/error_codes.def").read_text()
    defined = DEFINITION.findall(source)
    assert len(defined) == len(re.findall(r"^X\(", source, re.MULTILINE)), "a line of error_codes.def that this test cannot read"
    text = (harness.REPO / "docs/errors.md").read_text()
    sections = [[" ".join(part.split()) for part in found] for found in SECTION.findall(text)]
    assert len(sections) == text.count("\n### "), "a section of docs/errors.md that this test cannot read"
    assert [(int(n), name, exit_code, what) for n, name, what, exit_code, _ in sections] == [(int(n), *rest) for n, *rest in defined]
    assert all(len(todo) > 15 for *_, todo in sections), "a code without advice"
    links = {target for *_, todo in sections for target in re.findall(r"\]\((\S+?)\)", todo)}
    assert all((harness.REPO / "docs" / target).exists() for target in links), links


def test_codes_that_the_device_code_spells_as_numbers_exist():
    """Code that is linked into packages cannot include the table: its numbers must be there all the same."""
    known = {int(n) for n, *_ in DEFINITION.findall((harness.REPO / "src/base/error_codes.def").read_text())}
    used = set()
    for path in [*(harness.REPO / "device").glob("*.cc"), *(harness.REPO / "device").glob("*.h")]:
        text = path.read_text()
        used |= {int(n) for n in re.findall(r"\bfail\((?:error, )?(\d{3}),", text) + re.findall(r"\bcode = (\d{3});", text)}
        if path.name == "input_errors.cc":
            used |= {int(n) for n in re.findall(r"^  k[A-Z]\w+ = (\d{3}),?$", text, re.MULTILINE)}
    assert used >= {105, 204, 211, 401} and used <= known, used - known
