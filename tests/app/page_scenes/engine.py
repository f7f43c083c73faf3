"""Scenes of the engine's set-up, on the page Settings of a window that has no torch of its own."""

from app.page_scenes.screenshots import scene

from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.engine_setup.setup_facts import EngineSetupFacts
from burnish_app.page_states.engine import engine_state
from burnish_app.widgets.engine.engine_card import EngineCard
from burnish_engine.install.files.meter import FetchReading
from burnish_engine.install.offer import Changes

GB = 10**9
PLACE = "/home/anna/.local/share/burnish/engine"
OFFERED = {
    "offered": "0.2.0",
    "source": "releases.example.org",
    "place": PLACE,
    "fetch_bytes": 2_730_000_000,
    "disk_bytes": 10_200_000_000,
    "free_bytes": 184 * GB,
}
UPDATE = {
    **OFFERED,
    "in_use": "0.1.0 (cu130)",
    "is_update": True,
    "changes": Changes(
        ("Gemma 4 trains on the fast engine.", "Exports are 20 % faster."),
        {"xxhash": "4.1.0"},
        (),
        {"burnish": ("0.1.0", "0.2.0"), "torch": ("2.12.1", "2.13.0"), "transformers": ("5.20.0", "5.23.0")},
    ),
}
FACTS = {
    "unknown": EngineSetupFacts(place=PLACE),
    "asked": EngineSetupFacts(**OFFERED),
    "narrow-disk": EngineSetupFacts(**{**OFFERED, "free_bytes": 3 * GB}),
    "fetching": EngineSetupFacts(
        **OFFERED, doing="fetching", reading=FetchReading(1_130_000_000, 2_730_000_000, 24_500_000.0, 65.3)
    ),
    "installing": EngineSetupFacts(**UPDATE, doing="installing"),
    "paused": EngineSetupFacts(**OFFERED, is_paused=True),
    "failed": EngineSetupFacts(
        **OFFERED,
        problem=(
            "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl could not be fetched from example.org: a web page "
            "came instead of the file, as proxies and the log-in pages of networks answer.",
            "Log in to the network in a browser, or set HTTPS_PROXY to your network's proxy. Then try again: what came "
            "so far is kept.",
        ),
    ),
    "update": EngineSetupFacts(**UPDATE),
    "not-moved": EngineSetupFacts(
        in_use="0.2.0 (cu130)",
        place=PLACE,
        free_bytes=170 * GB,
        problem=("Not enough disk space for packages (/media/stick): about 7.5 GB are needed.", "Free some space."),
        failed="moving",
        has_runs=True,
    ),
    "done": EngineSetupFacts(
        in_use="0.2.0 (cu130)", former="0.1.0 (cu130)", place=PLACE, note="The engine is ready.", free_bytes=170 * GB
    ),
}


def show(window, facts):
    window.go_to("settings")
    page = window.page("settings")
    card = EngineCard(EngineWork.beside(window.client))
    page.column.insertWidget(0, card)
    card.apply(engine_state(facts))


for name, facts in FACTS.items():
    scene(f"settings-engine-{name}")(lambda window, facts=facts: show(window, facts))
