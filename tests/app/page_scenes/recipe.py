"""Scenes of Recipe."""

from app.facts import data_facts
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from app.page_scenes.answers import failure
from app.page_scenes.screenshots import scene, settle
from PySide6.QtWidgets import QScrollArea

from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, SharedSteps
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import MemoryPlan


def _recipe(window, plan, *, edit=True):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.bench.set_dataset(data_facts.dataset())
    page = window.page("recipe")
    page.clear_banner()
    page.shown()
    page.suggestions.cancel()
    page._suggested_now(facts.suggestion())
    settle(2)
    page._planned(facts.plan())
    for preset, seconds in (("quick", 9.0), ("balanced", 31.0), ("best", 68.0)):
        page.settings.presets.show_plan(preset, facts.plan(seconds=seconds))
    if edit:
        page.form.row("train.epochs").editor.setText("5")
        page.form.row("train.epochs")._on_edited()
        row = page.form.row("train.micro_batch_tokens")
        row.editor.stepBy(1)
        plan = plan.model_copy(
            update={"memory_bytes": plan.memory_bytes + 430 * 2**20, "tokens_per_s": plan.tokens_per_s * 1.08}
        )
    page.plans.drop()
    page._planned(plan)
    page.plans.drop()
    _rest(page)
    return page


def _rest(page):
    """Let the form make its rows and lay them out."""
    settle()
    while page.form._timer.isActive() or page.form._layout_timer.isActive():
        settle()
    settle()


def _scroll_to(page, widget):
    _rest(page)
    page.findChild(QScrollArea).ensureWidgetVisible(widget)


@scene("recipe-empty")
def recipe_empty(window):
    window.page("recipe").shown()


@scene("recipe-busy")
def recipe_busy(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.page("recipe").clear_banner()
    window.page("recipe").shown()


@scene("recipe-done")
def recipe_done(window):
    _recipe(window, facts.plan())


@scene("recipe-suggested")
def recipe_suggested(window):
    """A recipe as it is suggested, before anything is changed."""
    _recipe(window, facts.plan(), edit=False)


@scene("recipe-advanced")
def recipe_advanced(window):
    page = _recipe(window, facts.plan())
    page.form.row("train.weight_decay")
    row = page.form.row("train.warmup_share")
    row.editor.setText("2")
    row._on_edited()
    row.editor.setFocus()
    _scroll_to(page, row)


def _learn(window, dataset, objective):
    """Choose an objective in the form, and show the settings that it uses."""
    page = _recipe(window, facts.plan(), edit=False)
    window.bench.set_dataset(dataset)
    box = page.form.row("preference.objective").editor
    box.setCurrentIndex(box.findData(objective))
    page.suggestions.cancel()
    page._planned(facts.plan())
    page.plans.drop()
    page.form.row("preference.loss_type")
    _scroll_to(page, page.form.folds["Learning from preferences"])


@scene("recipe-preferences")
def recipe_preferences(window):
    """A recipe that learns from preference pairs, and its settings on them."""
    _learn(window, data_facts.pairs(), "dpo")


@scene("recipe-labels")
def recipe_labels(window):
    """A recipe that learns from replies labeled good or bad."""
    _learn(window, data_facts.dataset(shape="kto"), "kto")


@scene("recipe-optimizer")
def recipe_optimizer(window):
    """The sections on optimizer, guard and stopping early."""
    page = _recipe(window, facts.plan())
    optimizer = page.form.row("train.optimizer")
    optimizer.editor.setCurrentText("Lion")
    for key, text in (("evaluation.every", "50"), ("evaluation.patience", "3")):
        row = page.form.row(key)
        row.editor.setText(text)
        row._on_edited()
    page.form.row("guard.action").editor.setCurrentText("say so and continue")
    page.form.row("masking.kind").editor.setCurrentText("Magma")
    _scroll_to(page, optimizer)


@scene("recipe-search")
def recipe_search(window):
    page = _recipe(window, facts.plan())
    page.form.search.setText("checkpoint")
    page.form.search.setFocus()
    _scroll_to(page, page.form.folds["Training"])


@scene("recipe-offers")
def recipe_offers(window):
    """A mixture of experts on two cards, with layers streamed from system memory."""
    page = _recipe(window, facts.plan(), edit=False)
    spec = DecoderSpec(**{**facts.model_facts().spec.model_dump(), "num_experts": 128, "experts_per_token": 8})
    window.bench.set_model(facts.model_facts(spec=spec))
    page._machine = machines.pair()
    memory = MemoryPlan(layers=("products",) * 4, head_rows=2048, weights=("card", "host", "host", "host"))
    page._planned(facts.plan(memory_plan=memory))
    page.form.row("devices.strategy").editor.setCurrentIndex(1)
    page._planned(facts.plan(memory_plan=memory, tokens_per_s=34_000.0, seconds=17.0))
    _scroll_to(page, page.form._offered)


@scene("recipe-all")
def recipe_all(window):
    """The lower end of the form, with all settings open."""
    page = _recipe(window, facts.plan(), edit=False)
    page.form.all_settings.open()
    settle()
    bar = page.findChild(QScrollArea).verticalScrollBar()
    bar.setValue(bar.maximum())


@scene("recipe-toml")
def recipe_toml(window):
    page = _recipe(window, facts.plan())
    page._show_as("toml")
    _scroll_to(page, page.toml)


@scene("recipe-elsewhere")
def recipe_elsewhere(window):
    page = _recipe(window, facts.plan(), edit=False)
    row = page.form.row("devices.where")
    row.editor.setText("ssh:ada@office")
    row._on_edited()
    page.plans.ask()
    _rest(page)


@scene("recipe-failed")
def recipe_failed(window):
    page = _recipe(window, facts.plan(fits=False), edit=False)
    page.starting._failed(
        failure("It does not fit: 46.3 GiB are needed, 21.9 GiB are free.", "Set train.recompute.", 10)
    )


def _there(window, *, where="ssh:office", **state):
    """The recipe trains at another place."""
    page = _recipe(window, facts.plan(device="NVIDIA H100 80GB HBM3"), edit=False)
    page.there.where = where
    for name, value in {"state": "ready", "machine": None, "checkup": None, "failure": None, **state}.items():
        setattr(page.there, name, value)
    recipe = window.bench.recipe
    page.draft.write(recipe.model_copy(update={"devices": recipe.devices.model_copy(update={"where": where})}))
    page._refresh_form()
    page.plans.drop()
    page.there.changed.emit()
    _rest(page)
    return page


@scene("recipe-there")
def recipe_there(window):
    card = machines.gpu(name="NVIDIA H100 80GB HBM3", vram_total_bytes=80 * 2**30, vram_free_bytes=78 * 2**30)
    there = machines.machine(card, card.model_copy(update={"index": 1}))
    page = _there(window, machine=there, checkup=machines.checkup(there))
    page._planned(facts.plan(device="NVIDIA H100 80GB HBM3", memory_free_bytes=78 * 2**30))
    page.plans.drop()
    _rest(page)


@scene("recipe-there-service")
def recipe_there_service(window):
    """A service was asked: the machine that the run would take, what it takes there, and the others."""
    shared = SharedSteps(gpus=4, passes=1, times=2.8, step_ms=112.0, exchange_ms=35.0, exchange_bytes=2**26)
    plan = facts.plan(device="NVIDIA A100-SXM4-80GB", memory_free_bytes=78 * 2**30, shared=shared)
    there = machines.machine(*(machines.gpu(index, name="NVIDIA A100-SXM4-80GB") for index in range(4)))
    best = PlannedOffer(name="a100x4", machine=there, gpus=4, used_gpus=4, usd_per_hour=10.0, plan=plan)
    other = best.model_copy(update={"name": "l4x4", "usd_per_hour": 3.8, "plan": facts.plan(fits=False)})
    found = PlaceOffers(where="hf", offers=[other, best], chosen=1, longest_s=3600)
    page = _there(window, where="hf", machine=there, offers=found)
    page.there._asked_text = page.there.recipe_text()
    page._planned(plan)
    page.plans.drop()
    _rest(page)


@scene("recipe-there-offered")
def recipe_there_offered(window):
    page = _there(window, state="offered")
    page._planned_elsewhere("ssh:office")
    _rest(page)


@scene("recipe-there-connecting")
def recipe_there_connecting(window):
    page = _there(window, state="connecting", doing="Looking for this Burnish on ssh:office; the first time it is "
                  "installed there, which takes minutes")  # fmt: skip
    page._planned_elsewhere("ssh:office")
    _rest(page)


@scene("recipe-there-refused")
def recipe_there_refused(window):
    refused = failure(
        "ssh does not get into office: Host key verification failed.",
        "Make `ssh office` work without a question: accept its key, and use a key with an agent.",
    )
    page = _there(window, state="failed", failure=refused)
    page._planned_elsewhere("ssh:office")
    _rest(page)
