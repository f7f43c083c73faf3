"""All chat templates that installed trainers ship, over many kinds of conversation: written whole, or the loss is told.

The templates are read from the packages `trl` and `axolotl` where they are installed, and nothing is copied.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, messages_of
from burnish_engine.data.templates.row_renderer import RowRenderer
from burnish_engine.data.templates.template import ChatTemplate

pytestmark = pytest.mark.long

FOLDERS = {"trl": "chat_templates", "axolotl": "utils/chat_templates/templates"}
LIKELY_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|return|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>"),
    *("<｜end▁of▁sentence｜>", "<|end|>", "<|eot|>", "<|endoftext|>", "<|user|>", "<end_of_utterance>"),
)
TOKENS = re.compile(r"<\|?[^<>\s'\"{}|]{1,40}\|?>|<｜[^<>]{1,40}｜>|\[/?[A-Z_]{2,20}\]")
TOOL = {
    "type": "function",
    "function": {
        "name": "tide_at",
        "description": "Water level.",
        "parameters": {"type": "object", "properties": {"pier": {"type": "string", "description": "Where."}}},
    },
}


def user(text):
    return {"role": "user", "content": text}


def reply(text="", thoughts=None, calls=()):
    fields = {"reasoning_content": thoughts} if thoughts else {}
    return {"role": "assistant", "content": text, **fields, **({"tool_calls": list(calls)} if calls else {})}


def call(number, name="tide_at", **arguments):
    return {"id": f"c0000000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(number, text):
    return {"role": "tool", "tool_call_id": f"c0000000{number}", "name": "tide_at", "content": text}


SYSTEM = {"role": "system", "content": "Answer tersely."}
NORR, VASK = call(1, pier="Norrpier"), call(2, pier="Vaskpier")
CONVERSATIONS = {
    "plain": [user("How high?"), reply("Forty cm.")],
    "system": [SYSTEM, user("How high?"), reply("Forty cm.")],
    "turns": [user("At Norr, how high?"), reply("Forty cm."), user("And at Vask?"), reply("Fifty cm.")],
    "system, turns": [SYSTEM, user("At Norr, how high?"), reply("Forty cm."), user("At Vask?"), reply("Fifty cm.")],
    "lines and quotes": [user('Say "a"\n\n  b \\ é 😀'), reply('I say:\n\n```\n"a" <b> &amp; \\n\n```\n  done')],
    "thoughts": [user("2 crates?"), reply("That makes 24.", "Twelve each, twice.")],
    "thoughts inline": [user("2 crates?"), reply("<think>\nTwelve each, twice.\n</think>\n\nThat makes 24.")],
    "thoughts, turns": [user("2 crates?"), reply("It is 24.", "Twice twelve."), user("3?"), reply("36.", "Thrice.")],
    "call": [user("Norr?"), reply(calls=[NORR]), result(1, "stands at 40"), reply("It is forty.")],
    "call, text": [user("Norr?"), reply("I look.", calls=[NORR]), result(1, "stands at 40"), reply("It is forty.")],
    "call, thoughts": [
        *(user("Norr?"), reply(thoughts="A gauge.", calls=[NORR]), result(1, "stands at 40")),
        reply("It is forty.", "Forty then."),
    ],
    "call last": [user("Norr?"), reply(calls=[NORR])],
    "calls at once": [
        *(user("Both?"), reply(calls=[NORR, VASK]), result(1, "stands at 40"), result(2, "stands at 50")),
        reply("Forty and fifty."),
    ],
    "calls in turn": [
        *(user("Both?"), reply(calls=[NORR]), result(1, "stands at 40"), reply(calls=[VASK])),
        *(result(2, "stands at 50"), reply("Forty and fifty."), user("Thanks?"), reply("Welcome.")),
    ],
    "arguments": [
        user("Set it?"),
        reply(calls=[call(1, "set_gauge", level=417, deep={"list": ["un", "deux"], "on": True}, note='"é"\nnow')]),
        *(result(1, 'done: "é"'), reply("It is set.")),
    ],
}


def shipped():
    for package, folder in FOLDERS.items():
        found = find_spec(package)
        for place in found.submodule_search_locations or () if found else ():
            for file in sorted((Path(place) / folder).glob("*.jinja")):
                yield pytest.param(file, id=f"{package}-{file.stem}")


def pieces(messages):
    """List the texts that a conversation says, each long enough to be nothing else."""
    for message in messages:
        thoughts, ended, said = message["content"].partition("</think>")
        yield from (thoughts.removeprefix("<think>"), said) if ended else (message["content"],)
        yield message.get("reasoning_content") or ""
        for one in message.get("tool_calls", ()):
            yield from (one["function"]["name"], *(str(value) for value in one["function"]["arguments"].values()))


def conversation(messages):
    tools = (TOOL,) if any("tool_calls" in message for message in messages) else ()
    return Conversation(tuple(messages_of(messages)), None, 1, "file", tools)


def in_any_spelling(piece, text):
    """Whether a text has the letters of a piece, whatever stands between its words."""
    return all(word in text.lower() for word in re.findall(r"\w+", piece.lower()))


@pytest.mark.parametrize("file", list(shipped()) or [pytest.param(None, marks=pytest.mark.skip("none installed"))])
def test_a_shipped_template_writes_each_kind_of_conversation_whole_or_says_what_it_lacks(file):
    source = file.read_text(encoding="utf-8")
    end = next((token for token in LIKELY_ENDS if token in source), "</s>")
    special = {"bos_token": "<s>", "eos_token": end, "pad_token": "<pad>", "unk_token": "<unk>"}
    renderer = RowRenderer(ChatTemplate(source, special), end, sorted({*TOKENS.findall(source), end, "<s>"}))
    rows = renderer.render([conversation(messages) for messages in CONVERSATIONS.values()])
    silent, written = [], 0
    for (kind, messages), row in zip(CONVERSATIONS.items(), rows, strict=True):
        if isinstance(row, RowError):
            assert row.reason
            continue
        written += 1
        lost = [piece for piece in pieces(messages) if not in_any_spelling(piece, row.text)]
        silent += [(kind, piece) for piece in lost] if not row.lost else []
        assert all(start < stop for start, stop in row.spans), kind
        assert in_any_spelling(messages[-1]["content"].partition("</think>")[2], row.text[slice(*row.spans[-1])]), kind
    assert not silent
    assert written >= 4
