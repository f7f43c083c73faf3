"""The schema of the recipe's section `data`."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, when

Shape = Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion", "preference", "kto", "segments", "text"]

COLUMN_MEANINGS = (
    *("conversation", "instruction", "input", "context", "output", "history", "prompt", "completion", "text"),
    *("segments", "chosen", "rejected", "label", "system", "tools", "reasoning"),
)
"""Meanings that `data.columns` may give a column."""

SHORTEST_ROW = 16
"""Least value of `data.max_length`, tokens. A model with a shorter context cannot be trained."""

REPLAY_TOKENS = 256
"""Most tokens of a row that the base writes (`data.replay_share`), its opening included."""

_STAY = {"keep": "stay", "drop": "are left out"}


class DataSection(Section):
    """The data to learn from."""

    files: list[str] = setting(
        list,
        "What to train on: files (JSONL, JSON, CSV, TSV, Parquet, Arrow, TXT, Markdown; also compressed), folders and "
        ".zip archives of those, dataset folders, and datasets of the hub as hf://datasets/OWNER/NAME@REVISION. "
        "Relative paths are taken from the recipe's folder.",
        page="data",
    )
    weights: list[float] = setting(
        list,
        "How often the rows of each of `files` are learned in an epoch, in their order: 2.0 twice, 0.25 a quarter of "
        "them, chosen by the seed. Each above 0, at most 100. Empty: once each.",
        page="data",
    )
    validation_files: list[str] = setting(
        list, "Held-out files. When empty, `validation_share` of the training rows is held out.", page="data"
    )
    validation_share: float = setting(
        0.05, "Share of the training rows held out when there are no validation files.",
        label="Validation share (held out)", unit="share",
        used_if=when("validation_files", [], why="Does not apply: a file of its own is held out."), ge=0.0, le=0.5,
    )  # fmt: skip
    shape: Shape = setting(
        "auto",
        "How the columns are to be read. auto recognizes the shape from the column names and values, and asks where "
        "there are several. preference: learn the chosen replies. kto: learn the replies labeled good. segments: learn "
        "the pieces of texts that say so.",
        page="data",
    )
    columns: list[str] = setting(
        list,
        'What columns mean, as "meaning=column", such as ["prompt=Frage", "completion=Antwort"]; the guide\'s page on '
        "data lists the meanings. Columns that are not named do not count; where the named ones make no shape alone, "
        "the others are recognized. Empty: all are recognized.",
        page="data",
    )
    encoding: Literal[
        "utf-8", "utf-16", "utf-32", "cp1252", "latin-1", "cp1251", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr"
    ] = setting(
        "utf-8", "How the letters of text files are stored.", label="Letters are stored as", page="rows", order=2
    )
    template: str = setting(
        "auto",
        "Chat template. auto: the model's own, or a plain one where it has none. Otherwise a known one (chatml, "
        "llama3, gemma, mistral, zephyr, phi3, vicuna, alpaca) or a file with Jinja source, ending in .jinja.",
        page="data", min_length=1,
    )  # fmt: skip
    learn: Literal["responses", "last", "everything"] = setting(
        "responses",
        "What the loss counts: the assistant's replies with their end-of-turn token (except turns whose row gives them "
        "weight 0), the last reply alone, or every token.",
        label="Supervised text (learn from)",
        choices={"responses": "all replies", "last": "the last reply"},
    )
    system_prompt: str = setting(
        "", "System message put before conversations that have none. Empty: none is added.",
        label="System prompt to add", long=True,
    )  # fmt: skip
    max_length: int = setting(
        1024, "Longest row.", label="Maximum length (longest row)", unit="tokens", page="first", order=6,
        step=Step(doubles=True), ge=SHORTEST_ROW, le=1_048_576,
    )  # fmt: skip
    overlong: Literal["auto", "truncate", "drop", "split"] = setting(
        "auto",
        "What happens to rows longer than `max_length`. auto: a text fills further rows, and a chat is truncated. "
        "truncate: the end is cut off. drop: the row is left out. split: as auto, and a chat becomes several. They are "
        "counted and reported, with the share of tokens that is lost.",
        label="Longer rows",
        choices={
            "auto": "continue if text, are cut if chat",
            "truncate": "are cut",
            "drop": "are left out",
            "split": "are split",
        },
    )
    broken_rows: Literal["stop", "drop"] = setting(
        "stop", "What happens at a row that cannot be read: stop and name it, or continue without it and count it.",
        label="Rows that cannot be read",
        choices={"stop": "stop the reading", "drop": "are left out"},
        page="rows", order=1,
    )  # fmt: skip
    duplicates: Literal["keep", "drop", "drop_near"] = setting(
        "keep",
        "Rows that say the same as an earlier one. drop: left out. drop_near: those too that have four fifths in "
        "common with an earlier one.",
        label="Copies of earlier rows",
        choices={**_STAY, "drop_near": "are left out, near ones too"},
        page="rows",
    )
    leaks: Literal["keep", "drop"] = setting(
        "keep", "drop: training rows that are held out as well are left out.",
        label="Leaks (rows that are held out too)",
        choices={"keep": "stay in training", "drop": "are not trained on"},
        page="rows",
    )  # fmt: skip
    degenerate: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out whose reply repeats one phrase, equals its question or is a single sign.",
        label="Replies that say nothing",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    secrets: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out that hold what looks like a key, a token or a password.",
        label="Rows with keys or passwords",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    addresses: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out that hold an e-mail address.", label="Rows with e-mail addresses",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    damaged: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out whose letters were lost or garbled in decoding.",
        label="Rows with damaged letters",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    control_tokens: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out that spell out one of the model's control tokens, which becomes that token.",
        label="Rows with control tokens",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    tools: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out that list tools where the chat template does not write them.",
        label="Rows with tools that are not written",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    unwritten: Literal["keep", "drop", "respell"] = setting(
        "keep",
        "What happens to rows of which the chat template does not write everything: text, thoughts, calls of tools or "
        "their results. keep: what it writes is learned. drop: they are left out. respell: they are written in an "
        "equal form that it does write, where there is one.",
        label="Rows that are not written whole",
        choices={**_STAY, "respell": "are written in an equal form"},
        page="rows",
    )
    placeholders: Literal["keep", "drop"] = setting(
        "keep", "drop: rows are left out that learn a placeholder, such as {{name}} or [INSERT DATE].",
        label="Rows with unfilled placeholders",
        choices=_STAY,
        page="rows",
    )  # fmt: skip
    replay_share: float = setting(
        0.0,
        "Share of the training rows that the base model writes itself before training: continuations of text that "
        "comes with Burnish. Learned among the others, they keep what the model could do. A few percent (0.01 to 0.05) "
        "are usual. 0: none.",
        label="Rows that the base writes (replay)", unit="share", zero="none",
        used_if=when("preference.objective", "sft"), ge=0.0, le=0.5,
    )  # fmt: skip
    workers: int = setting(
        0,
        "Processes that tokenize. 0: one for each core, up to 8. What is learned, and in which order, does not depend "
        "on it.",
        label="Processes that tokenize", unit="processes", zero="auto", ge=0, le=256,
    )  # fmt: skip

    def replay_rows(self, rows: int) -> int:
        """Count the rows that the base writes, so that they are `replay_share` of all training rows; at least one.

        Args:
            rows: training rows of the dataset.
        """
        share = self.replay_share
        return max(round(rows * share / (1 - share)), 1) if share and rows else 0

    @field_validator("files", "validation_files")
    @classmethod
    def _files_have_names(cls, files: list[str]) -> list[str]:
        if not all(name.strip() for name in files):
            raise ValueError("holds an empty name, which would be the whole current folder: name it as '.'")
        return files

    @field_validator("columns")
    @classmethod
    def _columns_are_pairs(cls, columns: list[str]) -> list[str]:
        seen, named = set[str](), set[str]()
        for pair in columns:
            meaning, _, name = (part.strip() for part in pair.partition("="))
            if meaning not in COLUMN_MEANINGS or not name:
                raise ValueError(
                    f"holds {pair!r}, which is no pair meaning=column; meanings are: {', '.join(COLUMN_MEANINGS)}"
                )
            if meaning in seen:
                raise ValueError(f"says twice which column is {meaning}: keep one of them")
            if name in named:
                raise ValueError(f"gives the column {name} two meanings: keep one of them")
            seen.add(meaning)
            named.add(name)
        return columns

    @model_validator(mode="after")
    def _weights_fit_files(self) -> DataSection:
        if self.weights and len(self.weights) != len(self.files):
            raise ValueError(f"weights has {len(self.weights)} numbers for {len(self.files)} files: give one for each")
        wrong = [weight for weight in self.weights if not 0.0 < weight <= 100.0]
        if wrong:
            raise ValueError(f"weights must be above 0 and at most 100, not {wrong[0]}")
        return self
