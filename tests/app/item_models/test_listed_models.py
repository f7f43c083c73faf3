from app.facts import model_facts
from app.facts import page_facts as facts

from burnish_app.item_models.listed_models import chosen, merge

QWEN = "Qwen/Qwen3-0.6B"


def listed(**parts):
    return merge(facts.catalog(), model_facts.local_models(), model_facts.hub_models(), **parts)


def test_a_model_of_the_catalog_that_another_program_keeps_is_listed_once_with_both_facts():
    (row,) = [row for row in listed() if row.name == QWEN]
    assert row.place == "hub_cache"
    assert row.path == model_facts.local_models()[0].folder
    assert row.title == "Qwen3 0.6B"
    assert row.catalog.good_for
    assert row.tokens_per_s == 18_400


def test_a_damaged_copy_of_burnish_s_own_is_told_instead_of_offered():
    cut = model_facts.local_models()[0].model_copy(
        update={"name": "Qwen/Qwen3-1.7B", "place": "burnish", "verdict": "unusable", "reason": "It was cut short."}
    )
    (row,) = [row for row in merge(facts.catalog(), [cut]) if row.name == cut.name]
    assert row.path == ""
    assert row.reason == "It was cut short."
    assert row.can_be_fetched


def test_a_file_that_cannot_be_trained_does_not_hide_the_catalog_s_model():
    gguf = model_facts.local_models()[2].model_copy(update={"name": QWEN})
    rows = [row for row in merge(facts.catalog(), [gguf]) if row.name == QWEN]
    assert [row.place for row in rows] == ["catalog", "ollama"]


def test_what_fits_comes_first_and_what_is_here_before_what_is_to_be_fetched():
    rows = listed()
    good = [row for row in rows if row.verdict == "good"]
    assert rows[: len(good)] == good
    assert [row.is_here for row in good] == sorted((row.is_here for row in good), reverse=True)
    assert rows[-1].verdict == "unusable"


def test_what_the_hub_found_is_marked_where_the_list_has_it_already():
    (known,) = [one for one in model_facts.hub_models() if one.name.endswith("AWQ")]
    again = known.model_copy(update={"name": "Qwen/Qwen3-32B"})
    rows = chosen(merge(facts.catalog(), [], [again]), "hub", "other words", only_fitting=False)
    assert [(row.name, row.place) for row in rows] == [("Qwen/Qwen3-32B", "catalog")]


def test_the_embedded_model_is_used_by_its_own_path():
    one = facts.catalog()[0].model_copy(update={"here": True, "path": "embedded"})
    (row,) = merge([one], [])
    assert (row.place, row.path) == ("embedded", "embedded")


def test_filters():
    rows = listed()
    assert all(row.is_here for row in chosen(rows, "here", "", only_fitting=False))
    assert all(row.ranked for row in chosen(rows, "catalog", "", only_fitting=False))
    assert {row.verdict for row in chosen(rows, "all", "", only_fitting=True)} == {"good", "tight", "small"}
    assert [row.name for row in chosen(rows, "all", "OLLAMA", only_fitting=False)] == ["gemma3:4b"]
