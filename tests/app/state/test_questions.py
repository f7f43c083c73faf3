"""Saved prompts and held-out rows as questions."""

from burnish_app.state.questions import ChatQuestion, SavedPrompts, WrittenTexts, held_out_questions
from burnish_engine.contract.serve.model_requests import ChatMessage


def turns(*pairs):
    return [ChatMessage(role=role, content=content) for role, content in pairs]


def test_a_row_asks_its_last_turn_and_knows_what_is_wanted():
    row = turns(("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    (question,) = held_out_questions([row])
    assert (question.text, question.wanted) == ("c", "d")
    assert [turn.content for turn in question.messages] == ["Be brief.", "a", "b", "c"]


def test_rows_without_a_reply_are_left_out():
    assert held_out_questions([turns(("user", "a")), turns(("assistant", "b")), []]) == []


def test_prompts_are_kept_newest_first_and_once(tmp_path):
    saved = SavedPrompts(tmp_path / "studio" / "prompts.json")
    for text in ("one", "two", " one "):
        saved.add(text)
    assert saved.read() == ["one", "two"]
    saved.remove("one")
    assert SavedPrompts(tmp_path / "studio" / "prompts.json").read() == ["two"]


def test_a_damaged_file_holds_no_prompts(tmp_path):
    file = tmp_path / "prompts.json"
    for text in ("{", '{"a": 1}', '[1, null, "ok"]'):
        file.write_text(text, encoding="utf-8")
        assert SavedPrompts(file).read() == (["ok"] if "ok" in text else [])
    SavedPrompts(file).add("new")
    assert {one.read_text(encoding="utf-8") for one in tmp_path.glob("prompts-*")} == {"{", '{"a": 1}'}


def test_what_was_written_comes_back_with_its_place():
    row, other = (ChatQuestion((ChatMessage(role="user", content=text),), "wanted") for text in ("Row 0?", "Row 1?"))
    written = WrittenTexts()
    assert (written.text_of(None), written.text_of(row)) == ("", "Row 0?")
    written.leave(None, "My own words")
    written.leave(row, "Row 0, changed")
    written.leave(other, " Row 1?\n")
    assert [written.text_of(one) for one in (None, row, other)] == ["My own words", "Row 0, changed", "Row 1?"]
    written.leave(row, "")
    written.forget(None)
    assert [written.text_of(one) for one in (None, row)] == ["", "Row 0?"]
