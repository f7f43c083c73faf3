"""Settings that only some models, data or machines have a use for, each with why it is offered here. No Qt."""

from __future__ import annotations

from typing import Any

from burnish_app.look.language import tr
from burnish_app.recipe.recipe_relevance import is_relevant
from burnish_app.state.objectives import offered_objectives
from burnish_app.wording.data_text import objective_reason, shape_text
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.advice import ModelFacts, RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import MOST_GPUS

Values = dict[str, Any]

_CLOSENESS = tr("Higher: stays closer to the model as it was. Lower: follows your rows further.")
_BETAS = {
    "dpo": _CLOSENESS,
    "kto": _CLOSENESS,
    "orpo": tr("Higher: preferring counts more beside learning the chosen reply."),
    "simpo": tr("Scale of the difference between the two replies; 2 to 10 are usual."),
}
"""Sentence on beta by objective."""
_EIGHT_BITS = (8, 9)  # least compute capability with 8-bit floating point products


def offered_settings(
    values: Values,
    model: ModelFacts | None,
    dataset: DatasetFacts | None,
    machine: MachineFacts | None,
    plan: RunPlan | None,
) -> dict[str, str]:
    """Return the settings to offer beside the main ones, in order, each with its reason in a sentence.

    Args:
        values: edited recipe as nested tables.
        model: facts about its model; None: not known.
        dataset: facts about its data; None: not known.
        machine: facts about this machine; None: not known.
        plan: newest plan of the recipe; None: there is none.
    """
    found = {
        **_preference_offers(values, dataset),
        **_expert_offers(values, model),
        **_gpu_offers(values, machine),
        **_product_offers(values, machine),
        **_streaming_offers(values, plan),
    }
    return {key: reason for key, reason in found.items() if is_relevant(key, values)}


def _preference_offers(values: Values, dataset: DatasetFacts | None) -> dict[str, str]:
    objective, shape = values["preference"]["objective"], dataset.shape if dataset is not None else ""
    offered = offered_objectives(dataset)
    if objective == "sft" and not offered:
        return {}
    reason, rows = objective_reason(objective, shape), shape_text(shape)
    if objective == "sft":
        reason = tr("Your rows are {rows}. {reason}").format(rows=rows, reason=reason)
        if "grpo" in offered:
            reason = tr("Your rows have replies that can be checked, so rewards can teach them too (GRPO).")
    elif objective == "grpo":
        return {"preference.objective": reason}
    elif shape and objective not in offered:
        reason = tr("Your rows are {rows}, which this objective cannot learn from.").format(rows=rows)
    return {
        "preference.objective": reason,
        "preference.beta": _BETAS.get(objective, ""),
    }


def _expert_offers(values: Values, model: ModelFacts | None) -> dict[str, str]:
    spec = model.spec if model is not None else None
    if spec is None or not spec.num_experts or values["adapter"]["method"] == "full":
        return {}
    reason = tr("A token visits {visited} of the model's {experts} experts, and each has an adapter of its own.")
    return {"adapter.expert_rank": reason.format(visited=spec.experts_per_token, experts=spec.num_experts)}


def _gpu_offers(values: Values, machine: MachineFacts | None) -> dict[str, str]:
    count = len(machine.gpus) if machine is not None else 0
    shares = values["devices"]["strategy"] != "single"
    if values["devices"]["kind"] == "cpu" or (count < 2 and not shares):
        return {}
    reason = tr("There are {gpus}; together they take the passes of a step at once.")
    found = {"devices.strategy": reason.format(gpus=plural(count, "GPU"))}
    if shares:
        reason = tr("They share the passes of a step (now {passes}); a multiple of their number divides evenly.")
        found["devices.gpus"] = reason.format(passes=values["train"]["accumulation"])
    elif count > 1:
        found["devices.gpus"] = tr("The one that trains.")
    return found


def _product_offers(values: Values, machine: MachineFacts | None) -> dict[str, str]:
    gpus = machine.gpus if machine is not None and values["devices"]["kind"] != "cpu" else []
    able = [gpu for gpu in gpus if (gpu.compute_capability or (0, 0)) >= _EIGHT_BITS]
    if not able:
        return {}
    name = able[0].name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    reason = tr("The {name} can multiply in 8 bits too, which may be faster; frozen weights are rounded for it.")
    return {"train.products": reason.format(name=name)}


def _streaming_offers(values: Values, plan: RunPlan | None) -> dict[str, str]:
    memory = plan.memory_plan if plan is not None else None
    if memory is None or plan is None:
        return {}
    reasons = {
        tr("The weights of {layers} do not stay on the GPU: they come from system memory in time."): (
            memory.layers_on_host
        ),
        tr("The GPUs share the weights of {layers}: each holds a part and reads the others' in time."): (
            memory.layers_on_ranks
        ),
    }
    found = [text.format(layers=plural(len(layers), "layer")) for text, layers in reasons.items() if layers]
    if found:
        return {"memory.weights": " ".join(found)}
    if values["memory"]["weights"] != "auto":
        return {"memory.weights": tr("All layers stay on the GPU with these settings.")}
    return {}


def follow_strategy(values: Values, machine: MachineFacts | None) -> None:
    """Make the GPUs fit a strategy that was just chosen: all of the machine to share a run, else the first alone.

    Args:
        values: edited recipe as nested tables; changed in place.
        machine: facts about this machine; None: not known.
    """
    devices = values["devices"]
    if devices["strategy"] == "single":
        devices["gpus"] = devices["gpus"][:1] or [0]
    elif len(devices["gpus"]) < 2 and machine is not None and len(machine.gpus) > 1:
        devices["gpus"] = [gpu.index for gpu in machine.gpus][:MOST_GPUS]
