"""The real window asks another machine: the real transport, ssh where there is an sshd, a real engine behind it."""

import pytest

from burnish_app.widgets.recipe.place_card import PlaceCard

from support.machines.fake_ssh import FakeSsh
from support.machines.ssh_host import HOST, SshHost, missing_for_sshd

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]


@pytest.fixture
def office(request, tmp_path, monkeypatch):
    """A machine that ssh reaches; a stand-in for ssh where there is no sshd."""
    if not missing_for_sshd():
        host = SshHost(tmp_path)
        request.addfinalizer(host.close)
    else:
        host = FakeSsh(tmp_path)
    host.use(monkeypatch)
    return host


@pytest.mark.full
def test_a_recipe_is_planned_and_checked_for_another_machine(studio, tiny, office, qtbot):
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    bench.set_data_files([str(tiny / "data.jsonl")])
    page = studio.visit(window, "recipe")
    studio.wait(lambda: bench.plan is not None and bench.dataset is not None and not page.plans.is_waiting)
    where = page.form.row("devices.where")._editor.lineEdit()
    studio.type_into(where, f"ssh:{HOST}")
    studio.enter(where)
    place = page.findChild(PlaceCard)
    studio.wait(lambda: bench.plan is None)
    studio.press(place.ask)
    studio.wait(lambda: bench.plan is not None and not page.suggestions.is_waiting and not page.plans.is_waiting)
    assert HOST in page.fit._memory.text()
    assert bench.recipe.devices.where == f"ssh:{HOST}"
    studio.press(place.check)
    studio.wait(lambda: page.there.checkup is not None)
    assert place.verdict.isVisible()
    if isinstance(office, SshHost):
        it_is_lost_and_found_again(studio, page, office, bench)


def it_is_lost_and_found_again(studio, page, office, bench):
    office.wire.down = True
    office.wire.cut()
    studio.wait(lambda: page.there.state == "failed")
    assert page.there.failure.what
    assert page.there.failure.remedy
    studio.wait(lambda: bench.plan is None)
    assert page.primary.isEnabled()
    office.wire.down = False
    place = page.findChild(PlaceCard)
    office.forget_key()
    studio.press(place.ask)
    studio.wait(lambda: "Host key verification failed" in place.words.text())
    assert bench.plan is None
    office.know_key()
    studio.press(place.ask)
    studio.wait(lambda: bench.plan is not None)
