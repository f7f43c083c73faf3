"""What the pages Start and Settings show."""

from app.facts.run_summaries import RUNS

from burnish_app.page_states import settings, start


def test_the_newest_runs_stand_in_place_of_how_it_goes():
    none, some = start.page_state([]), start.page_state(RUNS * 2)
    assert (none.parts, none.lines) == ({"steps"}, ())
    assert (some.parts, some.lines) == ({"recent"}, tuple(RUNS))


def test_preferences_are_shown_as_choices():
    state = settings.page_state(
        mode="dark", motion="full", asks_on_close=True, notifies=False, text_percent=120, price=0.3
    )
    assert state.chosen == {"mode": "dark", "motion": "full", "asking": "yes", "notifying": "no"}
    assert (state.text_percent, state.price) == (120, 0.3)
