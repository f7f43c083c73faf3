"""Words for machines elsewhere: how GPUs share a run, what is said once, and which machines are listed."""

from app.facts import page_facts as facts
from app.facts.machine_facts import machine

from burnish_app.recipe.place_text import offers_text, plan_there_text
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, SharedSteps

SHARED = SharedSteps(gpus=4, passes=1, idle=2, times=2.0, step_ms=112.0, exchange_ms=35.0)


def offer(name, *, gpus=1, used=1, price=None, **plan):
    return PlannedOffer(
        name=name, machine=machine(), gpus=gpus, used_gpus=used, usd_per_hour=price, plan=facts.plan(**plan)
    )


def listed(*offers, chosen=0):
    return offers_text(PlaceOffers(where="hf", offers=list(offers), chosen=chosen, longest_s=60)).splitlines()


def test_gpus_that_share_a_run_have_passes_an_exchange_and_those_that_wait():
    one, two = (plan_there_text(facts.plan(shared=SHARED.model_copy(update={"passes": n}))) for n in (1, 2))
    assert ("1 pass " in one, "2 passes " in two) == (True, True)
    assert all(word in one for word in ("4 GPUs", "35 ms", "112 ms", "2 of them"))
    assert "while" in plan_there_text(facts.plan(shared=SHARED.model_copy(update={"while_computing": True})))
    assert "while" not in one
    processes = plan_there_text(facts.plan(shared=SHARED.model_copy(update={"exchange_ms": None, "idle": 0})))
    assert "4 processes" in processes
    assert "ms" not in processes


def test_what_the_plans_own_card_says_is_not_said_again():
    assert plan_there_text(facts.plan()) == ""
    assert plan_there_text(facts.plan(fits=False, shared=SHARED), 2.0) == ""
    for seconds, price in ((5400.0, "3.00 USD at 2.00 an hour"), (None, "2.00 USD an hour")):
        assert plan_there_text(facts.plan(seconds=seconds, times=[]), 2.0) == price


def test_the_machine_that_would_be_taken_comes_first_and_those_that_do_not_fit_last():
    found = listed(offer("small", fits=False), offer("dear", price=9.0), offer("best", price=2.0), chosen=2)
    assert [line.split(":")[0] for line in found] == ["best", "dear", "small"]
    assert "USD" in found[0]
    assert "USD" not in found[2]


def test_of_several_gpus_it_is_said_how_many_train_and_of_many_machines_some_are_listed():
    found = listed(offer("four", gpus=4, used=1), *(offer(f"m{number}") for number in range(7)))
    assert "1 of 4 GPUs" in found[0]
    assert len(found) == 6
    assert "3" in found[-1]
