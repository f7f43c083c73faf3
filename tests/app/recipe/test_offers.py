"""Settings that are offered only where they apply."""

import pytest
from app.facts import data_facts
from app.facts import machine_facts as machines
from app.facts import page_facts as facts

from burnish_app.recipe.offers import follow_strategy, offered_settings
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe

AMPERE = machines.gpu().model_copy(update={"compute_capability": (8, 6), "name": "NVIDIA GeForce RTX 3090"})
ONE = machines.machine(AMPERE)
TWO = machines.pair()


def values(**sections):
    return Recipe.model_validate(sections).model_dump()


def offered(given=None, *, model=None, dataset=None, machine=ONE, plan=None):
    return offered_settings(given or values(), model or facts.model_facts(), dataset, machine, plan)


def mixture():
    spec = facts.model_facts().spec.model_dump() | {"num_experts": 64, "experts_per_token": 8}
    return facts.model_facts(spec=DecoderSpec(**spec))


def streaming(*places):
    return facts.plan(memory_plan=MemoryPlan(layers=("products",) * 4, head_rows=64, weights=places))


def test_a_dense_model_on_one_card_with_chats_is_offered_nothing_more():
    assert offered(dataset=data_facts.dataset(), plan=streaming()) == {}
    assert offered_settings(values(), None, None, None, None) == {}


def test_experts_have_their_rank_where_there_are_some():
    reason = offered(model=mixture())["adapter.expert_rank"]
    assert "8" in reason
    assert "64" in reason
    assert not offered(values(adapter={"method": "full"}), model=mixture())


def test_several_gpus_are_offered_where_there_are_several():
    assert list(offered(machine=TWO))[:2] == ["devices.strategy", "devices.gpus"]
    assert "2 GPUs" in offered(machine=TWO)["devices.strategy"]
    assert not offered(values(devices={"kind": "cpu"}), machine=TWO)
    shares = values(devices={"strategy": "data_parallel", "gpus": [0, 1]})
    assert "devices.strategy" in offered(shares, machine=ONE), "what is chosen can be taken back"


def test_products_in_eight_bits_are_offered_where_the_card_has_them():
    ada, ampere = ((8, 9), "RTX 4090"), ((8, 6), "RTX 3090")
    for (capability, name), is_offered in ((ada, True), (ampere, False)):
        card = machines.gpu().model_copy(update={"compute_capability": capability, "name": f"NVIDIA GeForce {name}"})
        reason = offered(machine=machines.machine(card)).get("train.products", "")
        assert (name in reason) == is_offered
    assert "train.products" not in offered(values(devices={"kind": "cpu"}), machine=ONE)


def test_streamed_layers_are_offered_while_some_stream():
    assert "3 layers" in offered(plan=streaming("card", "host", "host", "host"))["memory.weights"]
    assert "1 layer " in offered(plan=streaming("card", "host"))["memory.weights"]
    both = offered(plan=streaming("ranks", "ranks", "host", "card"))["memory.weights"]
    assert "share the weights of 2 layers" in both
    assert "1 layer " in both
    assert "memory.weights" in offered(values(memory={"weights": "card"}), plan=streaming())
    plain = values(train={"engine": "plain"})
    assert not offered(plain, plan=streaming("host", "host", "host", "host")), "the plain engine streams nothing"


@pytest.mark.parametrize(
    ("data", "says"), [(data_facts.pairs(), "pairs"), (data_facts.dataset(shape="kto"), "good or bad")]
)
def test_what_is_learned_from_preferences_is_offered_with_such_rows(data, says):
    assert says in offered(dataset=data)["preference.objective"]
    assert "preference.beta" not in offered(dataset=data), "of no use while the replies themselves are learned"
    dpo = values(preference={"objective": "dpo"}, train={"micro_batch_tokens": 4096})
    assert "preference.beta" in offered(dpo, dataset=data)


def test_each_objective_and_its_beta_are_explained_and_one_that_the_rows_do_not_fit_is_named():
    reasons = {}
    for objective in ("sft", "dpo", "orpo", "simpo"):
        made = values(preference={"objective": objective}, train={"micro_batch_tokens": 4096})
        reasons[objective] = offered(made, dataset=data_facts.pairs())
        assert "cannot" not in reasons[objective]["preference.objective"]
    assert len({texts["preference.objective"] for texts in reasons.values()}) == 4
    assert len({texts.get("preference.beta") for texts in reasons.values()}) == 4
    unfit = offered(values(preference={"objective": "kto"}), dataset=data_facts.pairs())
    assert "cannot" in unfit["preference.objective"]
    unknown = offered(values(preference={"objective": "kto"}))
    assert "labels" in unknown["preference.objective"]


def test_sharing_takes_all_gpus_and_training_alone_the_first():
    shared = values()
    shared["devices"]["strategy"] = "data_parallel"
    follow_strategy(shared, TWO)
    assert Recipe.model_validate(shared).devices.gpus == [gpu.index for gpu in TWO.gpus]
    shared["devices"]["strategy"] = "single"
    follow_strategy(shared, TWO)
    assert Recipe.model_validate(shared).devices.gpus == [TWO.gpus[0].index]
    shared["devices"]["gpus"] = [1, 0]
    follow_strategy(shared, TWO)
    assert shared["devices"]["gpus"] == [1]
