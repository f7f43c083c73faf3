"""The close look: what is found, in which rows, and that what it offers does what it says."""

import json

import numpy as np
import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.facts.data_report import RowPlace
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.prepare import inspect_dataset, prepare
from burnish_engine.data.report.describe import readable, share_text
from burnish_engine.data.report.findings import row_list_text
from burnish_engine.data.rows.near_duplicates import earliest_near_duplicates, minhash_bands


def chat(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dogs",
    "while",
    "seven",
    "wizards",
    "brew",
    "strong",
    "coffee",
    "near",
    "old",
    "mills",
]


def prose(seed, count=40):
    random = np.random.RandomState(seed)
    return " ".join(random.choice(WORDS) + str(random.randint(50)) for _ in range(count))


def rows():
    return [chat(f"Question {n}?", prose(n)) for n in range(40)]


def prepared(path, tokenizer, **data):
    settings = {"max_length": 512, "validation_share": 0.0, **data}
    data, train = DataSection(files=[str(path)], **settings), TrainSection(micro_batch_tokens=65536)
    return prepare(Recipe(data=data, train=train), tokenizer)


def numbers(places):
    return [place.row for place in places]


def finding(facts, kind):
    found = [item for item in facts.report.findings if item.kind == kind]
    assert len(found) <= 1
    return found[0] if found else None


def applied(path, tokenizer, facts, kind, index=0, **data):
    """Does what a finding offers, as the recipe would."""
    action = finding(facts, kind).actions[index]
    section, key = action.key.split(".")
    assert section == "data"
    return prepared(path, tokenizer, **data, **{key: action.value}).facts


def test_nothing_odd_is_nothing_said(write_jsonl, make_tokenizer):
    facts = prepared(write_jsonl(rows()), make_tokenizer()).facts
    assert facts.report.findings == []
    assert facts.report.used_rows == facts.rows == 40
    assert facts.report.supervised_share == pytest.approx(facts.supervised_tokens / facts.tokens)


def test_equal_rows(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), *rows()[3:5]]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert (finding(facts, "duplicates").rows, numbers(finding(facts, "duplicates").first)) == (2, [41, 42])
    assert any("rows 41, 42" in warning and "data.duplicates" in warning for warning in facts.warnings)
    after = applied(path, tokenizer, facts, "duplicates")
    assert after.dropped == {"the same as an earlier row": 2}
    assert numbers(after.dropped_examples["the same as an earlier row"]) == [41, 42]
    assert (after.rows, after.train_rows, finding(after, "duplicates")) == (42, 40, None)


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


def test_nearly_equal_rows(write_jsonl, make_tokenizer):
    near = chat("Question 3?", prose(3) + " indeed")
    path, tokenizer = write_jsonl([*rows(), near]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert finding(facts, "duplicates") is None
    assert numbers(finding(facts, "near_duplicates").first) == [41]
    after = applied(path, tokenizer, facts, "near_duplicates")
    assert after.dropped == {"nearly the same as an earlier row": 1}


def test_near_duplicates_are_found_and_others_are_not():
    random = np.random.RandomState(0)
    texts = [prose(seed, 60) for seed in range(300)]
    changed = []
    for text in texts[:100]:
        words = text.split()
        words[random.randint(len(words))] = "changed"
        changed.append(" ".join(words))
    bands = np.array([minhash_bands(text) for text in [*texts, *changed]])
    ids = [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) for text in [*texts, *changed]]
    first, whole = earliest_near_duplicates(bands, ids.__getitem__, np.ones(400, dtype=bool), thorough=True)
    assert whole
    assert (first[:300] == np.arange(300)).all()
    assert (first[300:] == np.arange(100)).mean() > 0.97


def test_leaks_from_training_into_validation(write_jsonl, make_tokenizer):
    near = chat("Question 7?", prose(7) + " indeed")
    held = write_jsonl([rows()[5], near, chat("new", "row")], "held.jsonl")
    path, tokenizer = write_jsonl(rows()), make_tokenizer()
    facts = prepared(path, tokenizer, validation_files=[str(held)]).facts
    assert (finding(facts, "leaks").rows, finding(facts, "near_leaks").rows) == (1, 1)
    after = applied(path, tokenizer, facts, "leaks", validation_files=[str(held)])
    assert after.dropped == {"held out as well": 2}
    assert (after.train_rows, after.validation_rows) == (38, 3)
    assert finding(after, "leaks") is finding(after, "near_leaks") is None


def test_copies_are_left_out_within_training_and_within_held_out_rows_and_never_across(write_jsonl, make_tokenizer):
    """A row in both is a leak, told and by default kept; the held-out set stays what its files say."""
    near = [chat("Question 7?", prose(7) + more) for more in (" indeed", " in fact")]
    held = write_jsonl([rows()[5], rows()[5], *near, chat("new", "row")], "held.jsonl")
    path, tokenizer = write_jsonl([*rows(), rows()[5]]), make_tokenizer()
    for setting, dropped, held_out in (
        ("keep", {}, 5),
        ("drop", {"the same as an earlier row": 2}, 4),
        ("drop_near", {"the same as an earlier row": 2, "nearly the same as an earlier row": 1}, 3),
    ):
        facts = prepared(path, tokenizer, validation_files=[str(held)], duplicates=setting).facts
        assert facts.dropped == dropped
        assert (facts.report.training_rows, facts.report.held_out_rows) == (41 - (setting != "keep"), held_out)
        leaked = finding(facts, "leaks")
        assert (leaked.rows, {place.file for place in leaked.first}) == (2 if setting == "keep" else 1, {str(held)})
        assert any("held-out rows are also among the training rows" in warning for warning in facts.warnings)
        assert finding(facts, "near_leaks").rows == held_out - leaked.rows - 1


def test_copies_within_one_file_are_not_held_out_when_they_are_dropped(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), *rows()]), make_tokenizer()
    kept = prepared(path, tokenizer, validation_share=0.3).facts
    assert finding(kept, "leaks") is not None
    found = prepared(path, tokenizer, validation_share=0.3, duplicates="drop")
    assert finding(found.facts, "leaks") is None
    assert sorted(document.row for document in [*found.train, *found.validation]) == list(range(1, 41))


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


def test_addresses_but_not_those_of_documentation(write_jsonl, make_tokenizer):
    more = [chat("Who?", "Ask jo.doe@workshop.org now."), chat("Who?", "Ask someone@example.com now.")]
    path, tokenizer = write_jsonl([*rows(), *more]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert numbers(finding(facts, "addresses").first) == [41]
    assert applied(path, tokenizer, facts, "addresses").dropped == {"an e-mail address": 1}


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
    path, tokenizer = write_jsonl([*rows(), chat("Go on.", reply), asked]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    found = finding(facts, "placeholders")
    assert found.rows == 1
    assert numbers(found.first) == [41]
    assert placeholder in found.says
    assert applied(path, tokenizer, facts, "placeholders").train_rows == 41


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
    facts = prepared(write_jsonl([*rows(), chat("Go on.", reply)]), make_tokenizer()).facts
    assert finding(facts, "placeholders") is None


def test_replies_labeled_bad_are_left_out_counted_and_never_learned(write_jsonl, make_tokenizer):
    labeled = [{**row, "label": number % 4 != 0} for number, row in enumerate(rows())]
    path, tokenizer = write_jsonl(labeled), make_tokenizer()
    with pytest.raises(DataError, match="does not say what to learn"):
        prepared(path, tokenizer)
    asks = [DataSection(files=[str(path)]), DataSection(files=[str(path)], shape="kto")]
    advised = ["data.shape =" in " ".join(inspect_dataset(Recipe(data=ask), tokenizer).facts.warnings) for ask in asks]
    assert advised == [True, False]
    data = prepared(path, tokenizer, shape="kto")
    found = finding(data.facts, "bad_replies")
    assert found.rows == 10 == sum(data.facts.dropped.values())
    assert [found.dropped] == list(data.facts.dropped)
    assert numbers(found.first) == [n + 1 for n in range(40) if n % 4 == 0]
    assert data.facts.train_rows == 30 == data.facts.rows - 10
    assert {document.row for document in data.train} == {n + 1 for n in range(40) if n % 4}


def test_rows_that_need_media_are_left_out_and_counted(write_jsonl, make_tokenizer):
    seen = {**chat("<image>What is it?", "A lathe."), "images": ["lathe.png"]}
    path, tokenizer = write_jsonl([*rows(), seen, {**chat("b?", prose(99)), "images": []}]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    found = finding(facts, "media")
    assert (found.rows, numbers(found.first)) == (1, [41])
    assert facts.train_rows == 41
    with pytest.raises(DataError, match="images, audio or video"):
        prepared(write_jsonl([seen], "seen.jsonl"), tokenizer)


def test_a_place_for_media_without_any_is_told(write_jsonl, make_tokenizer):
    tags = ["<image>", "<|image_1|>", "<|video_pad|>", "<IMG>a.jpg</IMG>", "<start_of_image>"]
    closed = ["<video>\n</video>", "<img src='a.jpg'>", "<audio>a</audio> <audio>b</audio>"]
    html = [chat("In HTML?", said) for said in closed]
    data = [*rows(), *(chat(f"{tag} What is it?", "A lathe.") for tag in tags), *html]
    found = finding(prepared(write_jsonl(data), make_tokenizer()).facts, "media")
    assert (found.rows, numbers(found.first)) == (5, [41, 42, 43, 44, 45])


def test_columns_of_usual_names_that_the_recipe_leaves_out_are_told(write_jsonl, make_tokenizer):
    """Naming some columns by hand must not silently lose the others, least of all the labels of bad replies."""
    asked = [{"q": f"What is tool {n}?", "a": prose(n), "system": "Be brief.", "label": n > 3} for n in range(8)]
    path, tokenizer, columns = write_jsonl(asked), make_tokenizer(), ["prompt=q", "completion=a"]
    told = [one for one in prepared(path, tokenizer, columns=columns).facts.warnings if "leaves out" in one]
    assert len(told) == 1
    assert '"label=label", "system=system"' in told[0]
    whole = prepared(path, tokenizer, shape="kto", columns=[*columns, "system=system", "label=label"]).facts
    assert not [one for one in whole.warnings if "leaves out some" in one]
    assert whole.train_rows == 4


def test_columns_with_media_do_not_count_where_a_person_named_the_others(write_jsonl, make_tokenizer):
    listed = [{"q": f"What is tool {n}?", "a": prose(n), "image": "x.png"} for n in range(8)]
    columns = ["prompt=q", "completion=a"]
    facts = prepared(write_jsonl(listed), make_tokenizer(), columns=columns).facts
    assert facts.train_rows == 8
    assert facts.report.readings[0].columns == {"prompt": "q", "completion": "a"}
    tagged = [{**row, "q": f"<image>{row['q']}"} for row in listed]
    with pytest.raises(DataError, match="images, audio or video"):
        prepared(write_jsonl(tagged, "tagged.jsonl"), make_tokenizer(), columns=columns)


def test_what_is_dropped_is_counted_by_its_reason(write_jsonl, make_tokenizer):
    """Each setting leaves out its own rows and no others."""
    odd = {
        "secrets": chat("Key?", "It is " + "AKIA" + "ABCDEFGHIJKLMNOP" + " ."),
        "addresses": chat("Who?", "Ask jo.doe@workshop.org now."),
        "damaged": chat("a?", "Gr\ufffd\ufffde"),
        "control_tokens": chat("What is <|im_start|>?", "A token."),
        "degenerate": chat("Hm?", "."),
        "placeholders": chat("Who are you?", "I am {{name}}."),
    }
    path, tokenizer = write_jsonl([*rows(), *odd.values()]), make_tokenizer()
    for place, setting in enumerate(odd, start=41):
        facts = prepared(path, tokenizer, **{setting: "drop"}).facts
        assert [numbers(places) for places in facts.dropped_examples.values()] == [[place]]


def test_cut_lines_say_what_a_length_would_cost(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), chat("Long?", prose(99, 2000))]), make_tokenizer()
    whole = prepared(path, tokenizer, max_length=65536).facts
    lines = {line.max_length: line for line in whole.report.cut_lines}
    cut = prepared(path, tokenizer, max_length=512).facts
    assert lines[512].rows_cut == cut.truncated_rows == 1
    assert lines[512].tokens_lost == cut.report.tokens_lost == whole.tokens - cut.tokens
    assert lines[512].learned_lost == whole.supervised_tokens - cut.supervised_tokens
    assert numbers(finding(cut, "overlong").first) == [41]
    for overlong, offered in (("auto", ["drop", "split"]), ("split", ["drop"])):
        facts = prepared(path, tokenizer, max_length=512, overlong=overlong).facts
        assert [action.value for action in finding(facts, "overlong").actions] == offered
        assert any("makes several rows" in warning for warning in facts.warnings) == ("split" in offered)
    dropped = applied(path, tokenizer, cut, "overlong", 0, max_length=512)
    assert dropped.dropped == {"longer than 512 tokens": 1}


@pytest.mark.parametrize(("share", "nothing"), [(0.0, True), (0.00004, False), (0.000499, False)])
def test_a_loss_is_never_shown_as_nothing(share, nothing):
    assert (share_text(share) == "0.0%") is nothing


def test_long_rows_are_split_where_the_recipe_says_so(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    turns = [{"role": "system", "content": "Be brief."}]
    for number in range(12):
        turns += [{"role": "user", "content": f"Part {number}?"}, {"role": "assistant", "content": prose(number, 12)}]
    path = write_jsonl([{"messages": turns}, chat("a", "b")])
    result = prepared(path, tokenizer, max_length=300, overlong="split")
    texts = [tokenizer.decode(document.input_ids) for document in result.train]
    assert len(texts) > 3
    assert all(text.startswith("<|im_start|>system\nBe brief.") for text in texts[:-1])
    assert sum(text.count("Part ") for text in texts) == 12
    assert (result.facts.rows, result.facts.report.used_rows, result.facts.truncated_rows) == (2, 2, 0)
    held = prepared(path, tokenizer, max_length=300, overlong="split", validation_share=0.5)
    assert {d.row for d in held.train}.isdisjoint({d.row for d in held.validation})


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
    from burnish_engine.contract.errors import DataError

    with pytest.raises(DataError, match="neither a known name"):
        prepared(path, tokenizer, template="nothing")


def test_the_example_of_a_conversation_is_its_turns_and_other_values_stay():
    turns = [{"role": "user", "content": "Why?"}, {"from": "assistant", "value": "Because."}]
    assert readable(turns) == "user: Why? | assistant: Because."
    assert readable([{"role": "user", "content": 3}]) == [{"role": "user", "content": 3}]
    assert readable("as it is") == "as it is"
