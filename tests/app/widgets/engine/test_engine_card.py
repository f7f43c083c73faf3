import pytest
from app.page_scenes.engine import FACTS

from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.page_states.engine import engine_state
from burnish_app.widgets.engine.engine_card import EngineCard
from burnish_app.widgets.engine.first_start import FirstStart

pytestmark = pytest.mark.gui


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    return EngineWork()


@pytest.mark.parametrize("name", ["unknown", "asked", "fetching", "paused", "failed", "not-moved", "update", "done"])
def test_the_card_shows_what_its_state_says(work, qtbot, name):
    card = EngineCard(work)
    qtbot.addWidget(card)
    card.show()
    state = engine_state(FACTS[name])
    card.apply(state)
    assert {one for one, button in card.buttons.items() if button.isVisible()} == state.buttons
    assert {one for one, button in card.buttons.items() if not button.isEnabled()} == state.blocked
    assert card.primary.isVisible() == (state.primary is not None)
    assert card.bar.isVisible() == state.has_bar
    assert card.headline.text() == state.headline
    assert card.problem.isVisible() == bool(state.problem[0])


def test_the_first_start_ends_when_an_engine_is_there(work, qtbot):
    first = FirstStart(work)
    qtbot.addWidget(first)
    first.show()
    work.switched.emit()
    assert first.isVisible()
    work.facts = FACTS["done"]
    with qtbot.waitSignal(first.done):
        work.switched.emit()
    assert not first.isVisible()
