from datetime import date

import pytest

from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.sandbox.limits import LONGEST_SOURCE
from burnish_engine.data.templates.library import CONTROL_TOKENS, TEMPLATES
from burnish_engine.data.templates.row_renderer import RowRenderer
from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.templates.template import ChatTemplate, chat_template

CHAT = [
    {"role": "user", "content": "Was kostet <b>das</b> & jenes?\n"},
    {"role": "assistant", "content": "  5 € {{ 7 * 7 }} {% raw %}"},
    {"role": "user", "content": "Danke 😀"},
    {"role": "assistant", "content": "Bitte."},
]


def render(source, **options):
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, **options).render(CHAT)


@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers_does(make_tokenizer, template_name, prompt):
    tokenizer = make_tokenizer(template_name)
    chat = CHAT[:3] if prompt else CHAT
    expected = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
    assert chat_template(tokenizer).render(chat, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'a': '<ü>'} | tojson }}", '{"a": "<ü>"}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ messages[3].content }}{% endgeneration %}", "Bitte."),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "4"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{{ bos_token }}{{ tools }}{{ nothing }}", "<s>None"),
        ("{{ dict(a=1).a }}{{ 'a' ~ 1 ~ none }}{{ '%s-%s' % ('x', 2) }}{{ '=' * 5 }}", "1a1Nonex-2====="),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
    ],
)
def test_what_templates_use(source, text):
    assert render(source) == text


def test_date_is_an_argument():
    assert render("{{ strftime_now('%Y-%m-%d') }}", today=date(2031, 5, 6)) == "2031-05-06"


HOSTILE = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__self__ }}",
    "{{ namespace.__init__ }}",
    "{{ namespace(__class__=1) }}",
    "{{ dict.__class__ }}",
    "{{ cycler.__init__.__globals__.os.popen('true') }}",
    "{{ lipsum.__globals__ }}",
    "{{ self.__init__ }}",
    "{% set x = messages.append(1) %}",
    "{{ messages[0].update({'content': 'x'}) }}",
    "{{ '{0.__class__}'.format(1) }}",
]


@pytest.mark.full
@pytest.mark.parametrize("source", HOSTILE)
def test_reaching_for_python_is_a_data_error(source):
    with pytest.raises(DataError) as caught:
        render(source)
    assert caught.value.exit_code is ExitCode.DATA
    assert "sandbox" in str(caught.value)


def test_long_conversations_are_no_attack():
    long = [{"role": "user", "content": "x" * 3_000_000}]
    template = ChatTemplate("{{ messages[0].content ~ '!' }}", {})
    assert len(template.render(long)) == 3_000_001


@pytest.mark.parametrize("source", ["{% for m in messages %}", "{{ 1 | nofilter }}", "x" * (LONGEST_SOURCE + 1)])
def test_templates_that_are_none(source):
    with pytest.raises(DataError):
        ChatTemplate(source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{% if true %}\n{% for %}",
        "\n{% include 'other' %}",
        "\n{% include 'other' ignore missing %}",
        "\n{% import 'other' as o %}",
        "\n{% from 'other' import o %}",
        "\n{% extends 'other' %}",
    ],
)
def test_a_template_with_a_mistake_or_a_part_elsewhere_is_refused_with_the_line(source):
    with pytest.raises(DataError, match="line 2"):
        ChatTemplate(source, {})


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "limit"),
    [("{{ 2.0 ** 10000 }}", "with a fraction"), ("{{ 2 ** 2000 * 0.5 }}", "with a fraction"),
     ("{{ 2 ** 9999 }}", "bits"), ("{{ range(200000) | length }}", "ranges")],
)  # fmt: skip
def test_a_number_that_is_too_large_is_refused_with_the_limit_that_it_exceeds(source, limit):
    with pytest.raises(DataError, match=rf"number limit \(.*{limit}"):
        render(source)


def test_the_file_that_a_recipe_names_is_named_in_its_errors():
    with pytest.raises(DataError, match=r"own\.jinja"):
        ChatTemplate("{{ 1 | nofilter }}", {}, file="own.jinja")


def test_macros_and_blocks_work():
    assert render("{% macro turn(m) %}<{{ m.role }}>{% endmacro %}{{ turn(messages[0]) }}") == "<user>"
    assert render("{% macro b() %}[{{ caller() }}]{% endmacro %}{% call b() %}x{% endcall %}") == "[x]"
    assert render("{% block one %}x{% endblock %}") == "x"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('Only two turns, please') }}", "refused by the chat template: Only two turns, please"),
        ("{{ missing.field }}", "the chat template failed in line 1: 'missing' is undefined"),
        ("{{ 1 + 'a' }}", "the chat template failed"),
        ("{{ messages[9].content }}", "the chat template failed"),
        ("{{ 1e999 | int }}", "the chat template failed in line 1: name 'inf'"),  # a NameError
        ("{{ cycler() }}", "the chat template failed in line 1"),  # a RuntimeError
        ("{% if true %}\n{{ 'a' }}\n{{ 1 + 'a' }}{% endif %}", "the chat template failed in line 3"),
    ],
)
def test_templates_may_refuse_a_row(source, reason):
    with pytest.raises(RowError) as caught:
        render(source)
    assert caught.value.reason.startswith(reason)


def test_base_models_get_a_plain_template(make_tokenizer):
    template = chat_template(make_tokenizer(None))
    assert template.is_default
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]
    assert template.render(chat) == "S\n\n### User:\nU\n\n### Assistant:\nA</s>\n\n"
    assert template.render(chat[:2], add_generation_prompt=True) == "S\n\n### User:\nU\n\n### Assistant:\n"
    assert chat_template(make_tokenizer(None, adds_bos=True)).render(chat[1:2]).startswith("<s>### User:")


@pytest.mark.parametrize("name", TEMPLATES)
def test_named_templates_learn_an_end_or_say_that_the_tokenizer_has_none(make_tokenizer, name):
    tokenizer = make_tokenizer(None, eos_token=None)
    if name in {"mistral", "zephyr", "vicuna", "alpaca"}:
        with pytest.raises(DataError, match=f"{name} .*end-of-sequence"):
            chat_template(tokenizer, chosen=name)
        return
    turns = (Message("user", "Hello"), Message("assistant", "Hi"))
    renderer = RowRenderer(chat_template(tokenizer, chosen=name), None, CONTROL_TOKENS[name])
    (row,) = renderer.render([Conversation(turns, None, 0, "")])
    assert isinstance(row, RenderedRow)
    assert row.turn_end in CONTROL_TOKENS[name]


def test_the_default_of_several_templates_is_used(make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = {"tool_use": "no", "default": "yes"}
    assert chat_template(tokenizer).render(CHAT) == "yes"
    tokenizer.chat_template = {"tool_use": "no"}
    with pytest.raises(DataError, match="none of them the default"):
        chat_template(tokenizer)
