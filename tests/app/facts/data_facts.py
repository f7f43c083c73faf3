"""Constructed facts about data sets, their rows and columns."""

import random
import re
from functools import cache

from burnish_engine.contract.facts.data_report import (
    ColumnReading,
    DatasetReport,
    FileColumns,
    FileStatus,
    Finding,
    RowLine,
    RowPage,
    RowPlace,
    Setting,
    TemplateFacts,
)
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats
from burnish_engine.contract.serve.replies import Preview

QUESTION = "<|im_start|>user\nMy parcel has not moved for six days. What can I do?<|im_end|>\n<|im_start|>assistant\n"


ANSWER = (
    "Cause: It waits at the depot for a customs paper.\nFix: Send the invoice to the carrier and ask for a trace.\n"
    "Check: The status changes within one working day.<|im_end|>"
)


DATA_FILE = "/home/ada/data/support.jsonl"


def places(*rows, file=DATA_FILE):
    return [RowPlace(file=file, row=row) for row in rows]


def dataset(**changes):
    histogram = [(64, 40), (128, 210), (192, 420), (256, 260), (384, 120), (512, 61), (768, 30), (1024, 12), (2048, 7)]
    fields = {
        "files": [DATA_FILE],
        "format": "jsonl",
        "shape": "messages",
        "columns": ["messages"],
        "rows": 1204,
        "train_rows": 1102,
        "validation_rows": 58,
        "dropped": {"the assistant's reply is empty": 40, "not valid JSON": 4},
        "dropped_examples": {
            "the assistant's reply is empty": places(17, 93, 141, 288, 301, 412),
            "not valid JSON": places(601),
        },
        "truncated_rows": 7,
        "tokens": 231_480,
        "supervised_tokens": 143_300,
        "lengths": LengthStats(mean=199.5, median=171, p95=488, longest=1604, histogram=histogram),
        "micro_batches": 124,
        "fill": 0.91,
        "example": [
            (QUESTION, False),
            (ANSWER, True),
            ("\n", False),
        ],
        "warnings": [
            '38 rows are the same as an earlier row (rows 44, 45). data.duplicates = "drop" keeps the first.',
            "The chat template writes today's date; all rows are trained with 21 Nov 2026, so that the run can be "
            "repeated.",
        ],
        "report": dataset_report(),
    }
    return DatasetFacts(**{**fields, **changes})


def pairs():
    """Return the facts of a dataset of preference pairs."""
    says = (
        "The chosen reply is the longer one in 83.0% of the pairs, in the median by a factor of 1.6: the model will "
        "learn that length is good or bad."
    )
    longer = Setting(key="preference.objective", value="simpo", says="compares replies by their means")
    smooth = Setting(key="preference.label_smoothing", value=0.011, says="expects that share of swapped labels")
    swapped = "26 pairs contradict others: the same two replies to the same prompt, the other way around."
    findings = [
        Finding(kind="length_bias", says=says, rows=963, first=places(1, 2, 4, 5, 7), actions=[longer]),
        Finding(kind="contradictions", says=swapped, rows=26, first=places(44, 45, 102), actions=[smooth]),
    ]
    columns = ["prompt", "chosen", "rejected"]
    return dataset(
        shape="preference", columns=columns, warnings=[], dropped={}, dropped_examples={},
        report=dataset_report(findings=findings),
    )  # fmt: skip


def tokens():
    """Yield the example row split into words, which stand for tokens, each with whether it is supervised."""
    for text, supervised in ((QUESTION, False), (ANSWER, True), ("\n", False)):
        yield from ((piece, supervised) for piece in re.findall(r"<\|\w+\|>|\s?\w+|\s|[^\w\s]", text))


def dataset_report(**changes):
    def setting(key, value):
        return Setting(key=f"data.{key}", value=value, says="leaves such rows out")

    pairs = {"conversation": "messages", "system": "system_prompt"}
    example = {
        "conversation": "user: My parcel has not moved for six days. What can I do? | assistant: Cause: It ...",
        "system": "You answer for a parcel service.",
    }
    findings = [
        Finding(
            kind="duplicates", says="38 rows are the same as an earlier row.", rows=38,
            first=places(44, 45, 102, 103, 230, 231, 340, 341, 342), actions=[setting("duplicates", "drop")],
        ),
        Finding(
            kind="overlong", says="7 rows are cut to 1024 tokens.", rows=7,
            first=places(9, 71, 230, 406, 777, 802, 1100),
            actions=[setting("overlong", "drop"), setting("overlong", "split")],
        ),
        Finding(
            kind="secrets", says="2 rows hold what looks like an API key (sk-...).", rows=2, first=places(512, 803),
            actions=[setting("secrets", "drop")],
        ),
        Finding(kind="addresses", says="11 rows hold an e-mail address.", rows=11, first=places(3, 18, 20), actions=[]),
    ]  # fmt: skip
    fields = {
        "used_rows": 1160, "training_rows": 1102, "held_out_rows": 58,
        "readings": [
            ColumnReading(shape="messages", columns=pairs, confidence=0.98, says="chats in messages", example=example),
        ],
        "template": TemplateFacts(
            name="auto", takes_system=True, takes_two_users=False, has_prompt=True, prompt_fits=True,
            turn_end="<|im_end|>", ends_with_eos=True, writes_calls=True, writes_tools=True, writes_thoughts=False,
        ),
        "files": [FileStatus(file=DATA_FILE, entry=0, rows=1204)],
        "length_steps": length_steps(),
        "supervised_share": 0.62,
        "tokens_lost": 2210,
        "called_rows": 12,
        "findings": findings,
    }  # fmt: skip
    return DatasetReport(**{**fields, **changes})


@cache
def length_steps():
    """Return steps of row lengths: most rows have about 170 tokens, the longest 1,604."""
    usual = [min(int(random.Random(n).lognormvariate(5.15, 0.5)), 1000) for n in range(1153)]
    lengths = [*usual, 1150, 1200, 1224, 1300, 1400, 1500, 1604]
    steps = [*range(0, 1604, 16), 1604]
    return [(step, sum(one > step for one in lengths), sum(max(one - step, 0) for one in lengths)) for step in steps]


CHAT_CELL = (
    "user: My parcel has not moved for six days. What can I do?  |  assistant: Cause: It waits at the depot for a "
    "customs paper. Fix: Send the invoice to the carrier and ask for a trace."
)


def chat_columns(**changes):
    """Return the columns of the file of conversations, which are recognized."""
    columns = {"conversation": "messages", "system": "system_prompt"}
    reading = ColumnReading(shape="messages", columns=columns, confidence=0.98, says="chats in messages")
    shown = {"messages": CHAT_CELL, "system_prompt": "You answer for a parcel service.", "ticket": "4711"}
    fields = {"file": DATA_FILE, "columns": shown, "readings": [reading], "question": ""}
    return file_columns(**{**fields, **changes})


def row_page(start=0, count=100, total=1204, *, file=DATA_FILE, cells=None):
    """Return a page of rows as the engine reads them."""
    chat = {"messages": CHAT_CELL, "system_prompt": "You answer for a parcel service."}
    lines = [
        RowLine(file=file, row=at + 1, index=at, cells=cells or {**chat, "ticket": str(4711 + at)})
        for at in range(start, min(start + count, total))
    ]
    return RowPage(rows=lines, total=total, exact=True)


def preview(**changes):
    """Return the first row as the model reads it."""
    pieces = list(tokens())
    fields = {
        "file": DATA_FILE, "row": 1, "tokens": len(pieces), "pieces": pieces,
        "supervised_tokens": sum(learned for _, learned in pieces),
    }  # fmt: skip
    return Preview(**{**fields, **changes})


def file_columns(**changes):
    """Return the columns of a file that can be read in two ways."""

    def reading(asked):
        columns = {"prompt": asked, "completion": "answer"}
        return ColumnReading(
            shape="prompt_completion", columns=columns, confidence=0.92, says=f"{asked} asked, answer replied"
        )

    fields = {
        "file": "/home/ada/data/faq.csv",
        "columns": {
            "id": "17",
            "question": "My parcel has not moved for six days. What can I do?",
            "prompt": "Explain to the customer what to do about a parcel that does not move.",
            "answer": "Cause: It waits at the depot for a customs paper. Fix: Send the invoice to the carrier.",
        },
        "readings": [reading("question"), reading("prompt")],
        "question": "The columns of faq.csv can be read in 2 ways.",
    }  # fmt: skip
    return FileColumns(**{**fields, **changes})
