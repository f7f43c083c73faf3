"""What a rendering lacks of its conversation, found by comparing the two alone."""

import pytest

from burnish_engine.data.templates.written import (
    BESIDE_CALL,
    CALL,
    EARLIER_THOUGHTS,
    LAST_THOUGHTS,
    QUESTION,
    REPLY,
    RESULT,
    SYSTEM,
    Lost,
    lost_content,
)


def call(name="look", **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def turn(role, content="", **fields):
    return {"role": role, "content": content, **fields}


def lost(messages, *pieces):
    """Compare turns with pieces of a rendering, a piece for each turn."""
    text, replies = "", {}
    for index, (message, piece) in enumerate(zip(messages, pieces, strict=True)):
        if message["role"] == "assistant":
            replies[index] = (len(text), len(text) + len(piece))
        text += piece
    return lost_content(messages, text, replies)


CHAT = [
    turn("system", "Be brief."),
    turn("user", "How high?"),
    turn("assistant", "I look.", reasoning_content="A gauge.", tool_calls=[call(pier="Norr")]),
    turn("tool", "40 cm"),
    turn("assistant", "It is 40.", reasoning_content="So 40."),
]
WHOLE = ["<s>Be brief.", "<u>How high?", '<a>A gauge.|I look.|look {"pier": "Norr"}', "<t>40 cm", "<a>So 40.|It is 40."]


def test_a_whole_rendering_lacks_nothing():
    assert lost(CHAT, *WHOLE) == []


@pytest.mark.parametrize(
    ("index", "gone", "expected"),
    [
        (0, "Be brief.", [Lost(0, SYSTEM)]),
        (1, "How high?", [Lost(1, QUESTION)]),
        (2, "A gauge.", [Lost(2, EARLIER_THOUGHTS)]),
        (2, "I look.", [Lost(2, BESIDE_CALL)]),
        (2, "Norr", [Lost(2, CALL)]),
        (2, '|look {"pier": "Norr"}', [Lost(2, CALL)]),
        (3, "40 cm", [Lost(3, RESULT)]),
        (4, "So 40.", [Lost(4, LAST_THOUGHTS)]),
        (4, "It is 40.", [Lost(4, REPLY)]),
    ],
)
def test_each_thing_that_is_gone_is_named_with_its_turn(index, gone, expected):
    pieces = list(WHOLE)
    pieces[index] = pieces[index].replace(gone, "")
    assert lost(CHAT, *pieces) == expected


def test_what_stands_in_another_place_does_not_count():
    """The second call has the first one's name, and its value stands in the reply that follows."""
    chat = [
        turn("user", "Norr and Vask?"),
        turn("assistant", tool_calls=[call(pier="Norr"), call(pier="Vask")]),
        turn("tool", "40"),
        turn("tool", "40"),
        turn("assistant", "look: Norr 40, Vask 40"),
    ]
    whole = ['look {"pier": "Norr"} look {"pier": "Vask"}', "t40", "t40", "look: Norr 40, Vask 40"]
    assert lost(chat, "Norr and Vask?", *whole) == []
    assert lost(chat, "Norr and Vask?", 'look {"pier": "Norr"}', *whole[1:]) == [Lost(1, CALL)]
    assert lost(chat, "Norr and Vask?", whole[0], "t40", "", whole[3]) == [Lost(3, RESULT)]


@pytest.mark.parametrize(
    "written",
    [
        'a "b"\n  c é',
        'a \\"b\\"\\n  c é',
        'a \\"b\\"\\n  c \\u00e9',
        'a "b"\\n  c é',
        'a "b" c é',
    ],
)
def test_other_spellings_of_a_text_count(written):
    said = ' a "b"\n  c é\n'
    chat = [turn("user", said), turn("assistant", said, tool_calls=[call(note=said)]), turn("tool", said)]
    assert lost(chat, written, f"{written} look(note={written})", written) == []


def test_arguments_count_in_any_form():
    arguments = {"level": 417, "deep": {"on": True, "list": ["un", "deux"]}, "none": None, "empty": ""}
    chat = [turn("user", "a"), turn("assistant", tool_calls=[call("put", **arguments)])]
    assert lost(chat, "a", "put(deep={list:[un,deux],on:true},empty=,level=417,none=null)") == []
    assert lost(chat, "a", "put(deep={'on': True, 'list': ['un', 'deux']}, level=417, none=None, empty='')") == []
    assert lost(chat, "a", "put(deep={list:[un],on:true},empty=,level=417,none=null)") == [Lost(1, CALL)]


def test_thoughts_within_the_text_count_as_thoughts():
    chat = [turn("user", "a"), turn("assistant", "<think>\nHm.\n</think>\n\nb")]
    assert lost(chat, "a", "<think>Hm.</think>b") == []
    assert lost(chat, "a", "b") == [Lost(1, LAST_THOUGHTS)]


def test_short_pieces_are_not_found_in_what_was_said_before_them():
    chat = [turn("user", "ab?"), turn("assistant", "b", reasoning_content="a")]
    assert lost(chat, "ab?", "a|b") == []
    assert lost(chat, "ab?", "b") == [Lost(1, LAST_THOUGHTS)]
    assert lost(chat, "ab?", "a|") == [Lost(1, REPLY)]
    again = [turn("user", "a"), turn("assistant", "b", reasoning_content="b")]
    assert lost(again, "a", "b|b") == []
    assert lost(again, "a", "b") == [Lost(1, REPLY)]
    assert lost(chat, "ab?", "b|a") == []
