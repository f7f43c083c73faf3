"""What a chat template writes although nobody wrote it is noticed, and which rows get it."""

import pytest

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.prepare import prepare
from burnish_engine.data.templates.template_checks import added_text

from support.models.tiny import conversations, write_jsonl

SLIPS_IN = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are Lamp, made by Ada.<|im_end|>\\n' }}"
    "{% endif %}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("rendered", "added"),
    [
        ("<|im_start|>system\nYou are Lamp, made by Ada.<|im_end|>\n<|im_start|>user\n", "You are Lamp, made by Ada."),
        ("<s><|start_header_id|>user<|end_header_id|>\n\n", ""),
        ("<bos><start_of_turn>user\n", ""),
        ("<s> [INST] ", ""),
        ("### User:\n", ""),
        (
            "A chat with an assistant. USER: ",
            "A chat with an assistant. USER:",
        ),
    ],
)
def test_control_tokens_and_roles_are_no_message(rendered, added):
    assert added_text(rendered + "xaskedx and more words that stand behind it", ["<s>"]) == added


@pytest.fixture
def facts(tmp_path, make_tokenizer):
    def inspected(**data):
        own = {"messages": [{"role": "system", "content": "Mine."}, *conversations(1)[0]["messages"]]}
        path = write_jsonl(tmp_path / "rows.jsonl", [*conversations(9), own])
        template = tmp_path / "lamp.jinja"
        template.write_text(SLIPS_IN, encoding="utf-8")
        section = DataSection(files=[str(path)], validation_share=0.0, template=str(template), **data)
        return prepare(Recipe(data=section), make_tokenizer()).facts

    return inspected


def test_rows_without_a_system_message_are_told_of(facts):
    found = facts()
    assert found.report.template.adds == "You are Lamp, made by Ada."
    finding = next(one for one in found.report.findings if one.kind == "added_text")
    assert finding.rows == 9
    assert [place.row for place in finding.first] == list(range(1, 10))
    assert "made by Ada" in finding.says
    assert any("made by Ada" in warning and "data.system_prompt" in warning for warning in found.warnings)


def test_a_system_message_of_one_s_own_takes_its_place(facts):
    assert all(one.kind != "added_text" for one in facts(system_prompt="Answer briefly.").report.findings)
