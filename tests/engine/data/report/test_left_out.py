"""The close look at what is not learned: rows left out, cut or split, and columns nobody reads."""

import pytest
from engine.data.report.looked_at import applied, chat, finding, numbers, prepared, prose, rows

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.prepare import inspect_dataset
from burnish_engine.data.report.describe import share_text


@pytest.mark.full
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


@pytest.mark.full
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
