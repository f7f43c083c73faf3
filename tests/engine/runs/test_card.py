"""A card on disk."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import FactChange, Resume, RunCard
from burnish_engine.runs.card import read_card, write_card

from support.runs.cards import make_card


def test_a_card_comes_back_as_it_was(tmp_path):
    paths = RunPaths(tmp_path)
    assert read_card(paths) is None
    card = make_card(resumes=[Resume(t=3.0, step=5, changed=[FactChange(what="torch", before="2.11.0", after=None)])])
    write_card(paths, card)
    assert read_card(paths) == card
    assert list(tmp_path.iterdir()) == [tmp_path / "card.json"]


def test_what_is_true_now_follows_the_resumes():
    changes = [
        Resume(t=1.0, step=2, changed=[FactChange(what="device", before="Lamp 9000", after="Kettle 2")]),
        Resume(t=2.0, step=4, changed=[FactChange(what="cuda", before="12.8", after=None)]),
    ]
    now = make_card(resumes=changes).now()
    assert (now["device"], now["cuda"], now["torch"]) == ("Kettle 2", None, "2.13.0")
    assert now["memory"] == "8.0 GiB"


def test_a_later_burnish_may_add_to_a_card():
    raw = make_card().model_dump(mode="json") | {"weather": "fine"}
    assert RunCard.model_validate(raw) == make_card()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "damaged"),
        ("[]", "version None"),
        ('{"v": 2}', "version 2"),
        ('{"v": 1, "seed": "x"}', "damaged.*: t: Field required; and 6 more"),
        ("[" * 100_000, "damaged"),
        ("\udc80", "damaged"),
    ],
)
def test_a_card_that_cannot_be_used_is_said(tmp_path, content, words):
    paths = RunPaths(tmp_path)
    paths.card.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=words):
        read_card(paths)
