"""The quick suite leaves a test some of its cases, spread evenly, and `--all` runs every one."""

import pytest

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
