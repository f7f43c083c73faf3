"""The close look: what is found, in which rows, and that what it offers does what it says."""

import json

import pytest
from engine.data.report.looked_at import applied, chat, finding, numbers, prepared, prose, rows

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.facts.data_report import RowPlace
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.prepare import prepare
from burnish_engine.data.report.describe import readable
from burnish_engine.data.report.findings import row_list_text


@pytest.mark.full
def test_nothing_odd_is_nothing_said(write_jsonl, make_tokenizer):
    facts = prepared(write_jsonl(rows()), make_tokenizer()).facts
    assert facts.report.findings == []
    assert facts.report.used_rows == facts.rows == 40
    assert facts.report.supervised_share == pytest.approx(facts.supervised_tokens / facts.tokens)


@pytest.mark.full
def test_rows_of_several_files_are_named_with_their_files(tmp_path, make_tokenizer):
    """The second row of the second file has a key, its third no reply, its fourth is one of the first file's."""
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    bad = [chat("Question x?", "It is fine."), chat("The key?", f"It is {key} now."), chat("And?", ""), rows()[3]]
    for path, content in ((first, rows()), (second, bad)):
        path.write_text("\n".join(map(json.dumps, content)) + "\n", encoding="utf-8")
    data = DataSection(files=[str(first), str(second)], max_length=512, validation_share=0.0, workers=2)
    facts = prepare(Recipe(data=data, train=TrainSection(micro_batch_tokens=65536)), make_tokenizer()).facts
    assert finding(facts, "secrets").first == [RowPlace(file=str(second), row=2)]
    assert finding(facts, "duplicates").first == [RowPlace(file=str(second), row=4)]
    assert list(facts.dropped_examples.values()) == [[RowPlace(file=str(second), row=3)]]
    assert any("(row 2 of second.jsonl)" in warning for warning in facts.warnings)
    places = [RowPlace(file="/x/a.jsonl", row=3), RowPlace(file="/x/a.jsonl", row=17), RowPlace(file="/y/b.csv", row=4)]
    assert row_list_text(places, several=True) == "3, 17 of a.jsonl; 4 of b.csv"


@pytest.mark.full
@pytest.mark.parametrize(
    "secret",
    [
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a1B2" * 9,
        "hf_" + "aB3d" * 9,
        "sk-proj-" + "abcdEFGH1234" * 3,
        "xoxb-" + "123456789012-abcdef",
        "AIza" + "B" * 35,
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "postgres://admin:" + "hunter22@db.internal/x",
    ],
)
def test_secrets_are_named_by_row_and_never_shown(write_jsonl, make_tokenizer, secret):
    path, tokenizer = write_jsonl([*rows(), chat("Key?", f"It is {secret} .")]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert numbers(finding(facts, "secrets").first) == [41]
    assert not any(secret in warning for warning in facts.warnings)
    after = applied(path, tokenizer, facts, "secrets")
    assert sum(after.dropped.values()) == 1
    assert after.train_rows == 40


@pytest.mark.full
def test_addresses_but_not_those_of_documentation(write_jsonl, make_tokenizer):
    more = [chat("Who?", "Ask jo.doe@workshop.org now."), chat("Who?", "Ask someone@example.com now.")]
    path, tokenizer = write_jsonl([*rows(), *more]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert numbers(finding(facts, "addresses").first) == [41]
    assert applied(path, tokenizer, facts, "addresses").dropped == {"an e-mail address": 1}


@pytest.mark.full
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Say it.", "no way " * 60),
        ("Repeat this long question please.", "Repeat this long question please."),
        ("Hm?", "."),
    ],
)
def test_degenerate_replies(write_jsonl, make_tokenizer, question, answer):
    path, tokenizer = write_jsonl([*rows(), chat(question, answer)]), make_tokenizer()
    facts = prepared(path, tokenizer, max_length=1024).facts
    assert numbers(finding(facts, "degenerate").first) == [41]
    assert applied(path, tokenizer, facts, "degenerate", max_length=1024).train_rows == 40


def test_garbled_and_lost_letters(write_jsonl, make_tokenizer):
    garbled = "Größe und Weiß".encode().decode("cp1252", "ignore")
    tokenizer = make_tokenizer()
    for damaged, name in ((garbled, "garbled.jsonl"), ("Gr\ufffd\ufffde", "lost.jsonl")):
        path = write_jsonl([*rows(), chat("a?", damaged)], name)
        facts = prepared(path, tokenizer).facts
        assert numbers(finding(facts, "encoding").first) == [41]
        assert applied(path, tokenizer, facts, "encoding", index=-1).train_rows == 40


@pytest.mark.full
def test_control_tokens_spelled_out(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), chat("What is <|im_start|>?", "A token.")]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    found = finding(facts, "control_tokens")
    assert numbers(found.first) == [41]
    assert "<|im_start|>" in found.says
    assert applied(path, tokenizer, facts, "control_tokens").train_rows == 40


def test_tools_that_the_template_does_not_write(write_jsonl, make_tokenizer):
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    path, tokenizer = write_jsonl([*rows(), {**chat("What time is it?", "Noon."), "tools": [tool]}]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert numbers(finding(facts, "tools").first) == [41]
    assert applied(path, tokenizer, facts, "tools").train_rows == 40


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("reply", "placeholder"),
    [
        ("Hello! I am {{name}}, made by {{ author.name }}.", "{{name}}"),
        ("Dear {first_name}, welcome.", "{first_name}"),
        ("We meet on [INSERT DATE HERE].", "[INSERT DATE HERE]"),
        ("Kind regards, [Your Name]", "[Your Name]"),
        ("Send it to [COMPANY NAME].", "[COMPANY NAME]"),
        ("Set the key to <YOUR_API_KEY>.", "<YOUR_API_KEY>"),
    ],
)
def test_placeholders_that_are_learned(write_jsonl, make_tokenizer, reply, placeholder):
    asked = chat("Who is {{name}}, [YOUR NAME]?", "A person.")
    path, tokenizer = write_jsonl([*rows(), chat("Continue.", reply), asked]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    found = finding(facts, "placeholders")
    assert found.rows == 1
    assert numbers(found.first) == [41]
    assert placeholder in found.says
    assert applied(path, tokenizer, facts, "placeholders").train_rows == 41


@pytest.mark.full
@pytest.mark.parametrize(
    "reply",
    [
        "Write `{{name}}` there.",
        "```jinja\nDear {{ name }},\n```",
        "\\frac{abc}{def} and x^{abc}",
        "print(f'{total}') shows it",
        "Use ${{ secrets.TOKEN }} and /users/{id}/posts.",
        "See [Your Account](https://example.org) or item[DATE].",
        "The set {a, b} and { color: red }.",
    ],
)
def test_code_and_links_are_no_placeholders(write_jsonl, make_tokenizer, reply):
    facts = prepared(write_jsonl([*rows(), chat("Continue.", reply)]), make_tokenizer()).facts
    assert finding(facts, "placeholders") is None


def test_weights_mix_datasets_by_the_seed_alone(write_jsonl, make_tokenizer):
    a, b = write_jsonl(rows(), "a.jsonl"), write_jsonl([chat(f"b{n}", prose(n + 99)) for n in range(20)], "b.jsonl")
    tokenizer = make_tokenizer()

    def mixed(weights, seed=0, **options):
        data = DataSection(files=[str(a), str(b)], weights=weights, validation_share=0.0, max_length=512, **options)
        return prepare(Recipe(data=data, train=TrainSection(seed=seed)), tokenizer)

    once = mixed([])
    assert once.dataset_hash == mixed([1.0, 1.0]).dataset_hash
    result = mixed([0.25, 2.5])
    counts = [sum(document.file == str(path) for document in result.train) for path in (a, b)]
    assert counts == [10, 50]
    assert result.facts.dropped == {"left out by its file's weight (data.weights)": 30}
    assert result.facts.rows == result.facts.report.used_rows + 30
    assert mixed([0.25, 2.5], workers=2).dataset_hash == result.dataset_hash
    assert mixed([0.25, 2.5], seed=1).dataset_hash != result.dataset_hash


@pytest.mark.parametrize("weights", [[1.0], [0.0, 1.0], [1.0, -1.0], [1.0, 101.0]])
def test_weights_that_cannot_be(weights):
    with pytest.raises(ValueError, match="weights"):
        DataSection(files=["a", "b"], weights=weights)


def test_templates_by_name_and_from_a_file(write_jsonl, make_tokenizer, tmp_path):
    path, tokenizer = write_jsonl(rows()), make_tokenizer(None)
    facts = prepared(path, tokenizer, template="chatml").facts
    assert facts.example[0][0].startswith("<|im_start|>user")
    checked = facts.report.template
    assert (checked.name, checked.takes_system, checked.takes_two_users, checked.has_prompt) == (
        "chatml",
        True,
        True,
        True,
    )
    assert (checked.turn_end, checked.writes_calls, checked.prompt_fits) == ("<|im_end|>", False, True)
    for name in ("llama3", "gemma", "mistral", "zephyr", "phi3", "vicuna", "alpaca"):
        assert prepared(path, tokenizer, template=name).facts.report.template.takes_system
    assert any("vocabulary does not have <|end|>" in w for w in prepared(path, tokenizer, template="phi3").warnings)
    own = tmp_path / "own.jinja"
    own.write_text("{% for m in messages %}({{ m.role }}) {{ m.content }}</s>{% endfor %}")
    assert prepared(path, tokenizer, template=str(own)).facts.example[0][0].startswith("(user) ")

    with pytest.raises(DataError, match="neither a known name"):
        prepared(path, tokenizer, template="nothing")


def test_the_example_of_a_conversation_is_its_turns_and_other_values_stay():
    turns = [{"role": "user", "content": "Why?"}, {"from": "assistant", "value": "Because."}]
    assert readable(turns) == "user: Why? | assistant: Because."
    assert readable([{"role": "user", "content": 3}]) == [{"role": "user", "content": 3}]
    assert readable("as it is") == "as it is"
