"""Rows of which a template leaves something out: said, and written in an equal form where that is wanted."""

import pytest

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, messages_of
from burnish_engine.data.templates.template import ChatTemplate
from burnish_engine.data.templates.whole_rows import PARALLEL_REFUSED, WholeRowRenderer
from burnish_engine.data.templates.written import BESIDE_CALL, CALL, EARLIER_THOUGHTS, LAST_THOUGHTS, RESULT

_PROMPT = "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_WRITTEN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}"
_CALLS = (
    "{{ '<|im_start|>assistant\\n' + (m.content or '') }}{% for call in m.tool_calls[:MOST] %}"
    "{{ '<call>' + call.function.name + (call.function.arguments | tojson) }}{% endfor %}{{ '<|im_end|>' }}"
)
ALL_CALLS = "{% for m in messages %}{% if m.tool_calls %}" + _CALLS + "{% else %}" + _WRITTEN + "{% endif %}" + _PROMPT
FIRST_CALL = ALL_CALLS.replace("MOST", "1")
ALL_CALLS = ALL_CALLS.replace("MOST", "99")
ONE_CALL = FIRST_CALL.replace(
    "{% if m.tool_calls %}",
    "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at once') }}{% elif m.tool_calls %}",
)
CALL_OR_TEXT = ALL_CALLS.replace("{% if m.tool_calls %}", "{% if m.tool_calls and not m.content %}")
CALL_WITHOUT_TEXT = ALL_CALLS.replace(" + (m.content or '')", "")
CUTS_THOUGHTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
)
KEEPS_LAST_THOUGHTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.reasoning_content and loop.last %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content + '<|im_end|>' }}" + _PROMPT
)


def renderer(source, **options):
    return WholeRowRenderer(ChatTemplate(source, {}), None, ["<|im_start|>", "<|im_end|>"], **options)


def row(*messages):
    return Conversation(tuple(messages_of(list(messages))), None, 1, "file")


def call(number, pier):
    return {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": {"pier": pier}}}


def user(text):
    return {"role": "user", "content": text}


def reply(text="", thoughts=None, **fields):
    return {"role": "assistant", "content": text, **({"reasoning_content": thoughts} if thoughts else {}), **fields}


def result(number, text):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


ASKED = user("How high?")
PARALLEL = row(
    ASKED,
    reply(tool_calls=[call(1, "Norr"), call(2, "Vask")]),
    result(2, "50"),  # in another order than the calls
    result(1, "40"),
    reply("40 and 50."),
)
ONE_BY_ONE = row(
    ASKED,
    reply(tool_calls=[call(1, "Norr")]),
    result(1, "40"),
    reply(tool_calls=[call(2, "Vask")]),
    result(2, "50"),
    reply("40 and 50."),
)
BESIDE = row(ASKED, reply("I look.", tool_calls=[call(1, "Norr")]), result(1, "40"), reply("40."))
SILENT = row(ASKED, reply(tool_calls=[call(1, "Norr")]), result(1, "40"), reply("40."))
THOUGHTFUL = row(ASKED, reply("A.", "One."), user("And?"), reply("B.", "Two."))


def kinds(rendered):
    return {one.kind for one in rendered.lost}


def learned(rendered):
    return [rendered.text[start:end] for start, end in rendered.spans]


def test_a_row_that_is_written_whole_lacks_nothing():
    for conversation in (PARALLEL, BESIDE, SILENT):
        assert not renderer(ALL_CALLS).render(conversation).lost


def test_calls_in_one_turn_become_turns_of_their_own_each_followed_by_its_result():
    said = renderer(FIRST_CALL).render(PARALLEL)
    assert kinds(said) == {CALL}
    assert said.offers == (CALL,)
    other = renderer(FIRST_CALL, respell=True).render(PARALLEL)
    assert not other.lost
    wanted = renderer(FIRST_CALL).render(ONE_BY_ONE)
    assert (other.text, other.spans) == (wanted.text, wanted.spans)


def test_calls_in_one_turn_that_the_template_refuses_are_refused_for_that():
    with pytest.raises(RowError) as caught:
        renderer(ONE_CALL).render(PARALLEL)
    assert caught.value.reason == PARALLEL_REFUSED
    assert renderer(ONE_CALL, respell=True).render(PARALLEL).text == renderer(ONE_CALL).render(ONE_BY_ONE).text


def test_calls_without_results_are_not_taken_apart():
    """A second call would be learned before the result of the first."""
    unanswered = row(ASKED, reply(tool_calls=[call(1, "Norr"), call(2, "Vask")]))
    said = renderer(FIRST_CALL).render(unanswered)
    assert kinds(said) == {CALL}
    assert not said.offers


def test_a_call_that_is_written_without_text_alone_can_be_written_so():
    said = renderer(CALL_OR_TEXT).render(BESIDE)
    assert (kinds(said), said.offers) == ({CALL}, (CALL,))
    other = renderer(CALL_OR_TEXT, respell=True).render(BESIDE)
    assert other.text == renderer(CALL_OR_TEXT).render(SILENT).text
    assert kinds(other) == {BESIDE_CALL}, "the text is left out, and said to be"


def test_text_beside_a_call_that_no_form_keeps_is_said_without_an_offer():
    for respell in (False, True):
        said = renderer(CALL_WITHOUT_TEXT, respell=respell).render(BESIDE)
        assert kinds(said) == {BESIDE_CALL}
        assert not said.offers


@pytest.mark.parametrize("inline", [False, True])
def test_thoughts_that_the_template_cuts_can_be_written_in_the_text(inline):
    given = reply("<think>\nOne.\n</think>\n\nA.") if inline else reply("A.", "One.")
    said = renderer(CUTS_THOUGHTS).render(row(ASKED, given))
    assert (kinds(said), said.offers) == ({LAST_THOUGHTS}, (LAST_THOUGHTS,))
    other = renderer(CUTS_THOUGHTS, respell=True).render(row(ASKED, given))
    assert not other.lost
    assert learned(other) == ["One.\n</think>\n\nA.<|im_end|>"]
    assert not other.prompt_differs


def test_spans_stay_right_where_thoughts_of_several_replies_are_put_back():
    other = renderer(CUTS_THOUGHTS, respell=True).render(THOUGHTFUL)
    assert learned(other) == ["One.\n</think>\n\nA.<|im_end|>", "Two.\n</think>\n\nB.<|im_end|>"]


def test_thoughts_of_earlier_replies_count_only_where_these_are_learned():
    said = renderer(KEEPS_LAST_THOUGHTS).render(THOUGHTFUL)
    assert kinds(said) == {EARLIER_THOUGHTS}
    assert not said.offers, "the template has a form of its own for thoughts"
    assert not renderer(KEEPS_LAST_THOUGHTS, learn="last").render(THOUGHTFUL).lost
    unlearned = row(ASKED, reply("A.", "One.", weight=0), user("And?"), reply("B.", "Two."))
    assert not renderer(KEEPS_LAST_THOUGHTS).render(unlearned).lost


def test_a_result_that_is_not_written_is_said():
    source = ALL_CALLS.replace("{% if m.tool_calls %}", "{% if m.role == 'tool' %}{% elif m.tool_calls %}")
    assert kinds(renderer(source).render(SILENT)) == {RESULT}
