"""docs/compatibility.md: every feature said to work is named by a test that exists.

The document has tables with the columns Feature | State | Test(s) | Note. A test is named in backticks: a pytest id
(`tests/integration/10/test_x.py::test_y`), a file of tests, or a unit test as `unit.<module>.<program>`.
"""
import ast
import functools
import re

import pytest

from lib.repo import TOP

DOCUMENT = TOP / "docs" / "compatibility.md"
NAMED = re.compile(r"`((?:tests/|unit\.)[^`\s]+)`")


def cells(line):
    return [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows():
    """(line number, {column: cell}) of every table with a State column."""
    header, found = None, []
    for number, line in enumerate(DOCUMENT.read_text().splitlines(), 1):
        if not line.lstrip().startswith("|"):
            header = None
        elif header is None:
            header = [c.lower() for c in cells(line)]
        elif "state" in header and not set(line) <= set("|-: "):
            found.append((number, dict(zip(header, cells(line)))))
    return found


@functools.cache
def functions(path):
    tree = ast.parse(path.read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


def exists(name):
    if name.startswith("unit."):
        _, module, program = (name.split(".") + ["", ""])[:3]
        folder = TOP / "tests" / "unit" / module
        return folder.is_dir() and (not program or any(folder.glob(f"{program}*")))
    path, _, function = name.partition("::")
    path = TOP / path
    if not path.exists():
        return False
    return not function or function.split("::")[-1].split("[")[0] in functions(path)


def test_rows_that_work_name_their_tests():
    if not DOCUMENT.exists():
        pytest.skip("docs/compatibility.md is not there")
    table = rows()
    assert table, "no table with a State column"
    problems = []
    for number, row in table:
        tests = NAMED.findall(row.get("test(s)", row.get("tests", "")))
        if row["state"].lower().startswith("works") and not tests:
            problems.append(f"line {number}: '{row.get('feature')}' works, but names no test")
        problems += [f"line {number}: {t} does not exist" for t in tests if not exists(t)]
    assert not problems, "\n".join(problems)
