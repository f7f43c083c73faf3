"""The report on a dataset as `burnish inspect` prints it."""

import io

from burnish_engine.cli.prepare.dataset_report import report_blocks
from burnish_engine.cli.prepare.inspect import show_facts
from burnish_engine.cli.terminal import Terminal
from burnish_engine.contract.facts.data_report import ColumnReading, CutLine, DatasetReport, TemplateFacts
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection

TEMPLATE = TemplateFacts(
    name="chatml", takes_system=True, takes_two_users=False, has_prompt=True, prompt_fits=True, turn_end="<|im_end|>",
    ends_with_eos=True, writes_calls=False, writes_tools=True, writes_thoughts=False,
)  # fmt: skip


def printed(*blocks):
    """What is printed, a list of words for each line."""
    console = Terminal(soft_wrap=False, file=io.StringIO(), width=200)
    console.print(*blocks)
    return [line.split() for line in console.file.getvalue().splitlines() if line.strip()]


def test_the_reading_in_use_comes_first_with_how_sure_it_is():
    readings = [
        ColumnReading(shape="alpaca", columns={"prompt": "Frage"}, confidence=0.75, says=""),
        ColumnReading(shape="text", columns={"text": "Frage"}, confidence=0.5, says=""),
    ]
    _, first, second = printed(*report_blocks(DatasetReport(used_rows=9, readings=readings)))
    assert first == ["in", "use", "75%", "sure", "alpaca", "prompt", "=", "Frage"]
    assert second == ["or", "50%", "sure", "text", "text", "=", "Frage"]


def test_what_each_length_would_cut_is_counted():
    cut = CutLine(max_length=1024, rows_cut=1, tokens_lost=5000, learned_lost=300)
    _, line = printed(*report_blocks(DatasetReport(used_rows=9, cut_lines=[cut])))
    assert " ".join(line) == "max_length 1,024 1 row cut 5,000 tokens lost, 300 of them learned"


def test_what_a_template_takes_and_lacks_is_told():
    _, line = printed(*report_blocks(DatasetReport(used_rows=9, template=TEMPLATE)))
    takes, _, lacks = " ".join(line).partition("; not ")
    assert ("system message" in takes, "a row" in takes, "tools" in takes) == (True, False, True)
    assert ("a row" in lacks, "calls" in lacks, "thoughts" in lacks) == (True, True, True)
    assert "end with <|im_end|>" in lacks


def test_the_cut_stands_between_the_rows_that_stay_whole_and_the_others():
    lengths = LengthStats(mean=70, median=60, p95=120, longest=128, histogram=[(32, 40), (64, 20), (96, 0), (128, 1)])
    facts = DatasetFacts(
        files=["a.jsonl"], format="jsonl", shape="text", columns=[], rows=61, train_rows=61, validation_rows=0,
        tokens=100, supervised_tokens=25, lengths=lengths,
    )  # fmt: skip
    console = Terminal(soft_wrap=False, file=io.StringIO(), width=120)
    show_facts(facts, Recipe(data=DataSection(max_length=64)), console)
    lines = console.file.getvalue().splitlines()
    bars = [line for line in lines if "up to" in line.partition("95 %")[0] or line.startswith("cut")]
    assert [line.split()[-1] for line in bars] == ["40", "20", "64", "0", "1"]
    sizes = [max(line.count("█"), line.count("#")) for line in bars]
    assert (sizes[0] // 2, sizes[3], sizes[4]) == (sizes[1], 0, 1), "one row is seen, and none is not"
    assert any("25 learned (25.0%)" in line for line in lines)
