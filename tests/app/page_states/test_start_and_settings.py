"""What the pages Start and Settings show."""

from burnish_app.page_states import settings, start


def test_the_newest_runs_stand_in_place_of_how_it_goes():
    assert start.page_state(0).parts == {"steps"}
    assert start.page_state(1).parts == {"goes_on"}
    assert start.page_state(3).parts == {"goes_on", "recent"}


def test_preferences_are_shown_as_choices():
    state = settings.page_state(mode="dark", motion="full", asks_on_close=True, notifies=False)
    assert state.chosen == {"mode": "dark", "motion": "full", "asking": "yes", "notifying": "no"}
