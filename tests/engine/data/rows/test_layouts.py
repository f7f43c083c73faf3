"""Every data layout of the peers' documentation is read as it means, or refused with its reason."""

from collections import Counter
from datetime import date
from json import dumps

import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.pipeline.row_pipeline import PipelineSpec, RowBatch, RowPipeline, TemplateSource
from burnish_engine.data.rows.media import NEEDS_MEDIA
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.row_readers import row_reader
from burnish_engine.data.rows.shapes import BAD_REPLY
from burnish_engine.data.tokens.tokenize import TokenizerParts

from support.layouts import PAGE, PEERS, layouts, page

CASES = layouts()
LEARNED = ("reply", "text")
WITH_CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def kinds(conversation):
    """A conversation as the lines that the layouts' files give."""
    text, lines, last = conversation.text, [], 0
    if text is not None:
        for start, end in conversation.spans or [(0, len(text))]:
            lines += [f"shown> {text[last:start]}"] if start > last else []
            lines, last = [*lines, f"text> {text[start:end]}"], end
        return lines + ([f"shown> {text[last:]}"] if last < len(text) else [])
    for message in conversation.messages:
        calls = [call["function"]["name"] for call in message.extras.get("tool_calls", [])]
        if thoughts := message.extras.get("reasoning_content"):
            lines.append(f"thought> {thoughts}")
        said = ("reply" if message.supervised else "shown") if message.role == "assistant" else message.role
        lines.append(f"call> {' '.join(calls)}" if calls else f"{said}> {message.content}")
    return lines


PAIRS = [case for case in CASES if case.shape == "preference" and not case.refused]


@pytest.mark.parametrize("case", PAIRS, ids=[f"{case.peer}-{case.name}" for case in PAIRS])
def test_the_rejected_half_of_a_pair_has_the_same_turns_before_another_reply(case):
    layout = recognize(case.rows, "file")
    reader = row_reader(layout)
    for row in case.rows:
        try:
            chosen = reader.read(row, 1, "file")
        except RowError:
            continue
        if isinstance(row.get(layout.columns["rejected"]), list) and isinstance(
            row[layout.columns["rejected"]][0], str
        ):
            with pytest.raises(RowError, match="rejected"):
                reader.rejected(row, chosen)
            continue
        rejected = reader.rejected(row, chosen)
        assert kinds(rejected)[:-1] == kinds(chosen)[:-1]
        assert rejected.messages[-1].role == "assistant"
        assert rejected.messages[-1].content != chosen.messages[-1].content


@pytest.mark.parametrize("case", CASES, ids=[f"{case.peer}-{case.name}" for case in CASES])
def test_each_layout_is_read_as_it_means(case):
    if case.refused:
        with pytest.raises(DataError) as caught:
            recognize(case.rows, "file")
        assert case.refused in caught.value.what
        assert caught.value.remedy
        return
    layout = recognize(case.rows, "file")
    assert layout.shape == case.shape
    dropped, used = Counter(), []
    for row in case.rows:
        try:
            used.append(kinds(row_reader(layout).read(row, 1, "file")))
        except RowError as error:
            dropped[error.reason] += 1
    assert dict(dropped) == case.dropped
    assert used[:1] == ([case.turns] if case.turns else [])


def squeezed(text):
    """A text without white space: thoughts are written with the template's own around them."""
    return "".join(text.split())


def test_only_what_the_layouts_say_is_learned(make_tokenizer):
    tokenizer = make_tokenizer(source=WITH_CALLS)
    template = TemplateSource(WITH_CALLS, {"eos_token": tokenizer.eos_token}, date(2026, 1, 1))
    worker = RowPipeline(PipelineSpec(TokenizerParts.of(tokenizer), template, DataSection()))
    for number, case in enumerate(case for case in CASES if not case.refused):
        rows = [(line, dumps(row), "") for line, row in enumerate(case.rows, start=1)]
        shard = worker.process(RowBatch(number, "file", recognize(case.rows, "file"), 0, rows))
        assert shard.log.rows == len(case.rows) == shard.log.used + shard.log.dropped.total, case
        if not case.turns:
            continue
        first = shard.document(0, "file", 10_000)
        supervised = tokenizer.decode(first.input_ids[first.supervised], clean_up_tokenization_spaces=False)
        for turn in case.turns:
            kind, _, said = turn.partition("> ")
            if kind in LEARNED:
                begins = 8 if kind == "text" else 0  # nothing predicts the first token of a text
                assert squeezed(said[begins:]) in squeezed(supervised), case
            elif kind not in ("call", "thought"):
                assert said.strip() not in supervised, case


def test_every_peer_has_its_layouts():
    assert Counter(case.peer for case in CASES).keys() == {*PEERS.values()}
    assert len(CASES) > 200
    assert len({(case.peer, case.name) for case in CASES}) == len(CASES)


def test_the_guide_says_what_is_read():
    """After changing a layout: python -m tests.support.layouts."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("reason", [BAD_REPLY, NEEDS_MEDIA])
def test_rows_for_another_training_are_in_some_layout(reason):
    assert any(reason in case.dropped for case in CASES)
