"""Reference pages from the comments of public headers: coil.h (C) and coil.hpp (C++).

usage: python3 tools/docs/reference.py HEADER OUTPUT.md

It reads these headers, not any C++: a comment belongs to the declarations that follow it without an empty line; of a class
the public members are listed, without their bodies.
"""

import pathlib
import re
import sys


def prose(comment):
    """Markdown of a comment's lines: indented ones are code, the others are text."""
    out, code = [], False
    for line in comment:
        indented = line.startswith("  ")
        if indented != code and (line.strip() or code):
            out += ["", "```c", line[2:]] if indented else ["```", "", line]
            code = indented
        else:
            out.append(line[2:] if code else line)
    return "\n".join(out + ["```"] if code else out).strip()


def without_marks(comment):
    """The lines of a comment without what makes them one."""
    if comment.startswith("/*"):
        return [re.sub(r"^ ?\* ?", "", line).rstrip() for line in re.sub(r"\*/$", "", comment[2:]).strip("\n").splitlines()] or [""]
    return [re.sub(r"^\s*// ?", "", line).rstrip() for line in comment.splitlines()]


def end_of_declaration(text, start):
    """Where a declaration ends: behind its `;`, or behind the `}` of a function's body; with a comment on the same line."""
    depth, i, body = 0, start, False
    while i < len(text):
        if text.startswith("//", i):
            i = text.index("\n", i)
        elif text.startswith("/*", i):
            i = text.index("*/", i) + 2
            continue
        elif text[i] == '"':
            i = re.compile(r'"(?:\\.|[^"\\])*"').match(text, i).end()
            continue
        if text[i] in "{(":
            body = body or text[i] == "{" and depth == 0 and bool(re.search(r"\)\s*(const\s*)?(:[^;]*)?$", text[start:i]))
            depth += 1
        elif text[i] in "})":
            depth -= 1
            if depth == 0 and body and text[i] == "}":
                return i + 1 + len(re.compile(r"([ \t]*//[^\n]*)?").match(text, i + 1)[0])
        elif text[i] == ";" and depth == 0:
            line = text[i + 1:text.index("\n", i)] if "\n" in text[i:] else ""
            return i + 1 + (len(line) if re.match(r"\s*(//|/\*.*\*/\s*$)", line) else 0)
        i += 1
    return len(text)


def groups(text):
    """[(lines of a comment, [declarations])] of the text of a header or of a class."""
    found, comment, i, joined = [], [], 0, False
    while i < len(text):
        line_end = text.find("\n", i) + 1 or len(text)
        line = text[i:line_end]
        stripped = line.strip()
        if not stripped:
            comment, joined = [], False
            i = line_end
        elif stripped.startswith("/*"):
            end = text.index("*/", i) + 2
            comment, joined, i = without_marks(text[i:end].strip()), False, text.find("\n", end) + 1
        elif stripped.startswith("//"):
            end = re.compile(r"(?:[ \t]*//[^\n]*\n)+").match(text, i).end()
            comment, joined, i = without_marks(text[i:end].rstrip("\n")), False, end
        elif stripped.startswith("#") or re.match(r'extern "C" \{|namespace coil \{|\}(\s*//.*)?$', stripped):
            while text[i:line_end].rstrip().endswith("\\"):
                line_end = text.find("\n", line_end) + 1
            comment, joined, i = [], False, line_end
        else:
            end = end_of_declaration(text, i)
            declaration = text[i:end].strip("\n")
            if joined and not comment:
                found[-1][1].append(declaration)
            else:
                found.append((comment, [declaration]))
            comment, joined, i = [], True, text.find("\n", end) + 1 or len(text)
    return found


def name_of(declaration):
    """What a declaration declares."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", declaration, flags=re.S).strip()
    for pattern in (r"^(?:template <[^>]*>\s*)?(?:class|struct) (\w+)", r"^typedef [^;{]*\(\*(\w+)\)", r"^typedef .*?(\w+);$", r"^using (\w+)", r"(~?\w+|operator\S+)\s*\("):
        if m := re.search(pattern, text, re.S):
            return m[1]
    return text


def signature(member):
    """A member without its body and initialisers, in one line, with the comment behind it."""
    member = member.strip()
    note = re.search(r"[;}][ \t]*(//[^\n]*)$", member)
    text = member[:note.start(1)].rstrip() if note else member
    depth, end = 0, len(text)
    for i, c in enumerate(text):
        depth += (c in "({") - (c in ")}")
        if c == ")" and depth == 0 and text.find("(") < i:  # behind the parameters: qualifiers, then a body or initialisers
            end = i + 1 + re.match(r"(\s*(const|noexcept|= default|= delete)\b)*", text[i + 1:]).end()
            break
    else:
        end = re.match(r"[^{;]*", text).end()
    return re.sub(r"\s+", " ", text[:end]).strip() + ";" + (f"  {note[1]}" if note else "")


def class_page(comment, declaration):
    """Lines about a class."""
    lines = [f"## {name_of(declaration)}", "", prose(comment), ""]
    body = declaration[declaration.index("{") + 1:declaration.rindex("}")].split(" private:\n")[0].replace(" public:\n", "")
    members = groups(body)
    if members:
        lines.append("```cpp")
        for notes, declarations in members:
            lines += [f"// {note}" for note in notes]
            lines += [signature(d) for d in declarations if "operator=" not in d and "= delete" not in d]
        lines += ["```", ""]
    return lines


def page(header):
    """The page of a header."""
    text = header.read_text()
    cpp = header.suffix == ".hpp"
    start = re.match(r"(?:/\*.*?\*/\n)" if text.startswith("/*") else r"(?://[^\n]*\n)+", text, re.S).end()
    lines = [f"# {'C++' if cpp else 'C'} reference: {header.name}", "", prose(without_marks(text[:start].strip())), ""]
    for comment, declarations in groups(text[start:]):
        first = declarations[0]
        if first.lstrip().startswith(("template <>", "struct DtypeOf")) or re.match(r"(class|typedef struct) \w+( \w+)?;$", first.strip()):
            continue
        if re.match(r"(class|struct) \w+[^;]*\{", first.strip()):
            lines += class_page(comment, first)
            continue
        if cpp and re.match(r"inline \w+ \w+::", first.strip()):
            continue
        names = ", ".join(dict.fromkeys(map(name_of, declarations)))
        code = [signature(d) if cpp else re.sub(r"^COIL_API ", "", d, flags=re.M) for d in declarations]
        lines += [f"## {names}", "", prose(comment), "", "```" + ("cpp" if cpp else "c"), *code, "```", ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(page(pathlib.Path(sys.argv[1])))
