"""Numbers in text: how people and models write them, and what only looks like one."""

import pytest

from burnish_engine.scoring.numbers_in_text import numbers_in


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("The answer is 42.", [42]),
        ("-3.5 and \u22124", [-3.5, -4]),
        ("1,234.5", [1234.5]),
        ("1,234", [1234]),
        ("3,5", [3.5]),
        ("1.234,56", [1234.56]),
        ("1'234 or 1\u202f234", [1234, 1234]),
        ("12,5 kg, 12.5kg, 20\u00b0C, 5%", [12.5, 12.5, 20, 5]),
        ("$5, -$7, \u20ac 8", [5, -7, 8]),
        ("1e-3 and 2E+2", [0.001, 200]),
        (".5 99.", [0.5, 99]),
        ("10-20", [10, 20]),
        ("12 - 3 = 9", [12, 3, 9]),
        ("#### 18", [18]),
        ("1 234 567 and 1 234,5", [1234567, 1234.5]),
        ("1.000.000 EUR", [1000000]),
        ("42m\u00b2, 10\u00b3", [42]),
        ("1, 2, 3", [1, 2, 3]),
        ("", []),
        ("CO2, v1.2, 1.2.3, 0x1F, 1,2,3", []),
        ("1e999", []),
        ("9" * 400, []),
    ],
)
def test_numbers_are_read_as_they_are_written(text, numbers):
    assert [float(number) for number in numbers_in(text)] == pytest.approx(numbers)
