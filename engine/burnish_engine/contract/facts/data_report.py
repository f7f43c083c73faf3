"""Types for the report on a dataset before training: findings with their rows, and what can be done about them."""

from __future__ import annotations

import json

from pydantic import Field

from burnish_engine.contract.recipe.recipe_task import TaskMetric, TaskSection
from burnish_engine.contract.record import Facts


class Setting(Facts):
    """One recipe setting that would change something."""

    key: str = Field(description="Dotted, such as data.duplicates.")
    value: str | int | float | list[str] = Field(description="What to set it to.")
    says: str = Field(description="What it does, in a few words.")

    @property
    def line(self) -> str:
        """The setting as a recipe writes it, such as data.duplicates = "drop"."""
        return f"{self.key} = {json.dumps(self.value, ensure_ascii=False)}"


class RowPlace(Facts):
    """The position of a row: file and line."""

    file: str = Field(description="Its name among the dataset's files.")
    row: int = Field(description="Its line in there, or its place; from 1.")


class FileStatus(Facts):
    """The outcome of reading one training file."""

    file: str = Field(description="Its name among the dataset's files, or the recipe's name for it.")
    entry: int = Field(description="Index of the recipe's entry in data.files that it belongs to, from 0.")
    rows: int = Field(default=0, description="Its rows, estimated where a sample was read; 0: it was not read.")
    problem: str = Field(default="", description="Why it cannot be trained on; empty: it can.")
    remedy: str = Field(default="", description="What can be done about that.")


class Finding(Facts):
    """One finding about a dataset."""

    kind: str = Field(description="duplicates, near_duplicates, leaks, degenerate, secrets, addresses, encoding, ...")
    says: str = Field(description="A sentence.")
    rows: int = Field(description="How many rows it concerns.")
    first: list[RowPlace] = Field(default=[], description="The first of them.")
    actions: list[Setting] = Field(default=[], description="What can be done, as settings of the recipe.")
    dropped: str = Field(default="", description="Key in the dataset's `dropped` of the rows it tells of; else empty.")


class CutLine(Facts):
    """The effect of one `max_length` on a dataset."""

    max_length: int = Field(description="Tokens.")
    rows_cut: int
    tokens_lost: int
    learned_lost: int = Field(description="Learned tokens among those.")


class ColumnReading(Facts):
    """One way to read the columns of a file."""

    shape: str
    columns: dict[str, str] = Field(description="Meaning to column.")
    confidence: float = Field(description="0 to 1.")
    says: str
    example: dict[str, str] = Field(default={}, description="Meaning to what the first row has there, shortened.")
    settings: list[Setting] = Field(default=[], description="What would fix this reading.")


class FileColumns(Facts):
    """The columns of a data file, and what they may mean."""

    file: str
    columns: dict[str, str] = Field(description="Column to what the first row that has it holds there, shortened.")
    readings: list[ColumnReading] = Field(default=[], description="Every way to read it, the surest first.")
    question: str = Field(default="", description="Why a person has to say which; empty where one reading is sure.")


class RowLine(Facts):
    """One row as it is in its file."""

    file: str = Field(description="Its name among the dataset's files.")
    row: int = Field(description="Its line in there, or its place; from 1.")
    index: int = Field(description="How many rows of the file come before it.")
    cells: dict[str, str] = Field(default={}, description="Column to value, shortened.")
    problem: str = Field(default="", description="Why it cannot be read; empty: it can.")


class RowPage(Facts):
    """Some rows of a data file."""

    rows: list[RowLine]
    total: int = Field(description="Rows of the file; of several files, those returned.")
    exact: bool = Field(description="Whether `total` was counted; else it is estimated from the part that was read.")


class TemplateFacts(Facts):
    """The properties of a chat template, found by rendering small conversations."""

    name: str = Field(description="auto, plain, a known name or a file.")
    takes_system: bool
    takes_two_users: bool = Field(description="False where roles have to alternate.")
    has_prompt: bool = Field(description="Whether it writes what stands before a reply.")
    prompt_fits: bool = Field(description="Whether replies begin the way the prompt says.")
    turn_end: str = Field(description="The token that ends a reply; empty where there is none.")
    ends_with_eos: bool = Field(description="Whether that is the end-of-sequence token.")
    writes_calls: bool = Field(description="Whether calls of tools are written.")
    writes_tools: bool
    writes_thoughts: bool = Field(description="Whether thoughts are a part of a turn by themselves.")
    adds: str = Field(
        default="", description="Text that it puts before a conversation without a system message; empty: none."
    )


class TaskHint(Facts):
    """A metric that fits the replies of a dataset, recognized from its held-out rows."""

    metric: TaskMetric
    rows: int = Field(description="Rows that were looked at.")
    says: str = Field(description="What their replies look like, as a sentence.")
    reply_tokens: int = Field(default=0, description="Tokens of the longest reply among them; 0: not known.")
    schema_keys: dict[str, str] = Field(
        default={}, description="JSON: key that every reply has to the type of its values; empty: it varies."
    )


class TaskFit(Facts):
    """The held-out rows that a score of the task finds."""

    section: TaskSection = Field(description="The section that rows were looked for with.")
    rows: int = Field(description="Rows that it scores.")
    usable_rows: int = Field(description="Rows that some metric could score; once one is found, others may be more.")
    long_replies: int = Field(default=0, description="Of these, rows whose reply does not end within max_tokens.")
    left_out: dict[str, int] = Field(default={}, description="Reason to number of held-out rows that are not scored.")


class DatasetReport(Facts):
    """The close inspection of a dataset."""

    used_rows: int = Field(description="Rows of which something is learned or held out. Rows in = these + dropped.")
    training_rows: int = Field(default=0, description="Of those, rows that something is learned of.")
    held_out_rows: int = Field(default=0, description="Of those, the others: rows that are held out as a whole.")
    sampled_rows: int = Field(default=0, description="Rows that all counts are estimated from; 0: all were looked at.")
    parts: int = Field(default=1, description="Files that rows are read from, in archives and folders too.")
    files: list[FileStatus] = Field(
        default=[], description="Each training file; those with a problem are not in the figures. At most 1,000."
    )
    left_out: dict[str, str] = Field(default={}, description="Files that lie there and were not read: name to why.")
    readings: list[ColumnReading] = Field(default=[], description="Of the first file, the one in use first.")
    template: TemplateFacts | None = None
    cut_lines: list[CutLine] = Field(default=[])
    length_steps: list[tuple[int, int, int]] = Field(
        default=[],
        description="(length in tokens, used rows that are longer, tokens of them beyond it), from 0 at even steps; "
        "the last is the longest row.",
    )
    supervised_share: float = Field(default=0.0, description="Learned tokens of all tokens, 0 to 1.")
    tokens_lost: int = Field(default=0, description="Tokens behind the cut at max_length.")
    called_rows: int = Field(default=0, description="Rows in which a tool is called.")
    thoughtful_rows: int = Field(default=0, description="Rows with thoughts apart from the reply.")
    findings: list[Finding] = Field(default=[])
    exact_places: bool = Field(
        default=True, description="False where a sample was read of a file too large to count its lines."
    )
    task: TaskHint | None = Field(default=None, description="How its task could be scored; None: nothing fits.")
    task_fit: TaskFit | None = Field(default=None, description="Rows that the recipe's score finds; None: not known.")
