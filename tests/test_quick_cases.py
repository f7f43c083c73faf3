"""The quick suite leaves a test some of its cases, spread evenly, and `--all` runs every one."""

import pytest

from bench.suite.choose import Unit, choose, marked
from bench.suite.mutate import mutations
from support.quick import evenly

TESTS = """
import pytest

@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("number", [*range(9), pytest.param(9, marks=pytest.mark.gpu)])
def test_many(number):
    pass

@pytest.mark.full
def test_left_out():
    pass

def test_usual():
    pass
"""


@pytest.mark.parametrize(("count", "wanted", "expected"), [
    (9, 3, [0, 3, 6]), (10, 4, [0, 2, 5, 7]), (5, 1, [0]), (2, 5, [0, 1]), (0, 3, []),
])  # fmt: skip
def test_cases_are_spread_from_the_first_on(count, wanted, expected):
    assert evenly(count, wanted) == expected


@pytest.mark.parametrize(("marks", "expected"), [
    ("not gpu and not full", ["test_many[0]", "test_many[3]", "test_many[6]", "test_usual"]),
    ("not gpu", [*(f"test_many[{number}]" for number in range(9)), "test_left_out", "test_usual"]),
])  # fmt: skip
def test_marks_decide_which_cases_run(marks, expected, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import pytest\nfrom support.quick import mark_cases\n\n"
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_collection_modifyitems(items):\n    mark_cases(items)\n"
    )
    (tmp_path / "test_these.py").write_text(TESTS)
    ran = []

    class Names:
        def pytest_runtest_logreport(self, report):
            if report.when == "call":
                ran.append(report.nodeid.rpartition("::")[2])

    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", str(tmp_path / "none.ini")]
    (tmp_path / "none.ini").write_text("[pytest]\nmarkers =\n  gpu\n  full\n  quick_cases\n")
    assert pytest.main([*options, "-m", marks, str(tmp_path)], plugins=[Names()]) == 0
    assert ran == expected


SOURCE = '''"""Tests."""

import os


class TestIt:
    @pytest.mark.full
    @pytest.mark.parametrize("x", [
        1,
    ])
    def test_a(self, x):
        pass


@pytest.mark.quick_cases(2)
def test_a():
    pass


@pytest.mark.full
def test_not_recorded():
    pass
'''


def test_marks_are_replaced_by_function_and_others_keep_theirs():
    found = marked(SOURCE, {"TestIt::test_a": "quick_cases(3)", "test_a": ""})
    assert found == SOURCE.replace("    @pytest.mark.full", "    @pytest.mark.quick_cases(3)").replace(
        "@pytest.mark.quick_cases(2)\n", ""
    ).replace("import os", "import pytest\nimport os")
    assert marked(found, {}) == found


def test_dear_tests_are_taken_for_the_lines_that_no_other_executes():
    units = [
        Unit("tests/a.py::cheap", ["cheap"], [0b1], [0.01]),
        Unit("tests/a.py::much", ["much"], [(1 << 80) - 1], [4.0]),
        Unit("tests/a.py::same", ["same[0]", "same[1]"], [(1 << 80) - 1] * 2, [4.0, 4.0]),
        Unit("tests/a.py::named", ["named"], [0b1], [4.0]),
    ]
    choose(units, 10.0, {"named"})
    assert [unit.taken for unit in units] == [1, 1, 0, 1]


@pytest.mark.parametrize(("line", "expected"), [
    ("if a < b:\n        return 1", {"if a <= b:", "if (not (a < b)):"}),
    ("return min(a, b)", {"return max(a, b)", "return None"}),
    ("g(a, b)", {"g(b, a)", "pass"}),
    ("return not a and b", {"return a and b", "return not a or b", "return None"}),
])  # fmt: skip
def test_faults_are_such_as_people_make(line, expected):
    found = {new.strip() for _, new, _ in mutations(f"def f(a, b):\n    {line}\n")}
    assert expected <= found
    assert line not in found
