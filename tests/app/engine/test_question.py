"""One question at a time: the newest answer is heard, late ones and those of a dropped question are not."""

import pytest
from PySide6.QtCore import QObject
from shiboken6 import delete

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_engine.contract.serve.model_requests import MachineRequest

from support.app.held_client import HeldClient


@pytest.fixture
def engine(qapp):
    made = HeldClient()
    yield made
    made.close()


class Asker(QObject):
    """Notes all that it hears, with whether its question still waits."""

    def __init__(self, engine):
        super().__init__()
        self.heard = []
        self.question = Question(
            engine,
            self,
            answered=lambda result: self.note(result.detail),
            failed=lambda failure: self.note(failure.what),
            progressed=lambda *step: self.note(step),
            changed=lambda: self.note("changed"),
        )

    def note(self, what):
        self.heard.append((what, self.question.is_waiting))


@pytest.fixture
def asker(engine):
    return Asker(engine)


def test_an_answer_ends_the_question(engine, asker):
    asker.question.ask(MachineRequest, about="this")
    engine.advance("machine", "Looking", 1, 4)
    engine.answer("machine", detail="well")
    assert asker.heard == [("changed", True), (("Looking", 1, 4), True), ("well", False), ("changed", False)]
    assert (asker.question.about, asker.question.failure) == ("this", None)


def test_a_failure_ends_it_and_is_kept_until_the_next_question(engine, asker):
    asker.question.ask(MachineRequest)
    engine.fail("machine", "No driver.")
    assert asker.heard[1:] == [("No driver.", False), ("changed", False)]
    assert asker.question.failure.what == "No driver."
    asker.question.ask(MachineRequest)
    assert asker.question.failure is None


@pytest.mark.parametrize("late", ["answer", "fail", "give_up"])
@pytest.mark.parametrize("taken_back", ["asked anew", "dropped"])
def test_what_comes_of_a_question_that_was_taken_back_is_not_heard(engine, asker, taken_back, late):
    asker.question.ask(MachineRequest)
    (former,) = engine.open("machine")
    if taken_back == "dropped":
        asker.question.drop()
    else:
        asker.question.ask(MachineRequest)
    assert [request["request"] for request in engine.requests("cancel")] == [former]
    heard, waits = list(asker.heard), asker.question.is_waiting
    getattr(engine, late)("machine", *(["late"] if late == "fail" else []), to=former)
    assert (asker.heard, asker.question.is_waiting) == (heard, waits)
    assert waits == (taken_back == "asked anew")


def test_a_question_that_the_engine_gives_up_waits_no_more(engine, asker):
    asker.question.ask(MachineRequest)
    engine.give_up("machine")
    assert asker.heard[1:] == [("changed", False)]


def test_dropping_what_was_not_asked_says_nothing(engine, asker):
    asker.question.drop()
    assert asker.heard == []
    assert engine.asked == []


def test_an_answer_may_lead_to_the_next_question(engine, qapp):
    parent, seen = QObject(), []

    def answered(result):
        seen.append(result.detail)
        if len(seen) < 3:
            question.ask(MachineRequest)

    question = Question(engine, parent, answered=answered)
    question.ask(MachineRequest)
    for detail in ("first", "second", "third"):
        assert question.is_waiting
        engine.answer("machine", detail=detail)
    assert (seen, question.is_waiting) == (["first", "second", "third"], False)


def test_another_engine_is_asked_from_then_on(engine, asker, qapp):
    other = HeldClient()
    asker.question.ask(MachineRequest)
    asker.question.use(other)
    assert not asker.question.is_waiting
    asker.question.ask(MachineRequest)
    engine.answer("machine", detail="from the former")
    assert asker.question.is_waiting
    other.answer("machine", detail="from the other")
    assert ("from the other", False) in asker.heard
    assert ("from the former", False) not in asker.heard
    other.close()


def test_nothing_is_heard_once_the_asker_is_gone(engine, asker):
    asker.question.ask(MachineRequest)
    heard = asker.heard
    delete(asker)
    engine.answer("machine", detail="late")
    assert heard == [("changed", True)]


def test_a_question_that_waits_for_the_engine_s_start_is_asked_anew_without_a_pause(qapp):
    engine = EngineClient()
    asker = Asker(engine)
    for _ in range(2):
        asker.question.ask(MachineRequest)
    assert asker.heard == [("changed", True)] * 2
    engine.close()
