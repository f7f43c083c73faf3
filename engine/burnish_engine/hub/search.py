"""Searches the hub for models that could be trained, and judges each for this machine. No torch.

A hub's answer holds no shapes, so the config.json of each model found is read too: a few kilobytes, several at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from burnish_engine.advise.suggest.settings import FitInputs, quick_fit
from burnish_engine.contract.errors import BurnishError, SetupError
from burnish_engine.contract.facts.advice import FoundOnHub
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.paths import fetched_model_dir, is_hub_name
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.hub.client import HubClient, TransientError
from burnish_engine.hub.files import FoundAnswer
from burnish_engine.hub.judge_local import OTHER_FAMILY, TOO_BIG, judgment
from burnish_engine.hub.offline import GO_ONLINE, is_offline
from burnish_engine.models.checkpoint.config_checks import check_config
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.wrapper import text_part
from burnish_engine.models.families import stores_nf4

MOST = 24
"""Models that are listed of a search, those that were downloaded most often first."""
_AT_A_TIME = 6
_LONGEST_CONFIG = 5_000_000  # bytes
_OTHER_FORMATS = {"gguf", "mlx", "onnx", "openvino", "exl2", "exl3", "gptq", "awq", "compressed-tensors", "bitnet"}
"""Tags of weights that were rounded or converted for running."""
_CONVERTED = "Its weights were rounded or converted for running: train the model that it was made from."
_QUANTIZED = "Its weights are stored quantized: fetch it to see whether it trains, or take the model it was made from."
_TASKS = {None, "text-generation", "text2text-generation", "image-text-to-text", "any-to-any"}
"""Tasks of models that write text, as the hub names them; None: it does not say."""
_UNREADABLE = "Its config.json cannot be read without accepting its terms: fetch it with an access token to know more."

Progress = Callable[[str, int, int], None]


def search_hub(
    query: str,
    machine: MachineFacts,
    target: TargetSection,
    *,
    dataset: DatasetFacts | None = None,
    progress: Progress = lambda _what, _done, _total: None,
) -> list[FoundOnHub]:
    """Search the hub and judge what is found: models that train here first, else in the hub's order.

    Args:
        query: words that the name holds.
        machine: facts of the machine that trains.
        target: device that the result shall run on.
        dataset: facts on the rows; None: usual ones.
        progress: callback given what is done, the number of models that were read, and how many there are; it may
            raise to stop.

    Raises:
        SetupError: The environment asks for no network, or the hub was not reached.
    """
    if is_offline():
        raise SetupError("The hub is not searched: the environment asks for no network.", GO_ONLINE)
    with HubClient(os.environ.get("HF_TOKEN", "").strip()) as client:
        progress("Searching the hub", 0, 0)
        try:
            found = [answer for answer in client.search(query, MOST)[:MOST] if is_hub_name(answer.id)]
        except TransientError as failure:
            raise failure.problem from None
        configs = _configs(client, found, progress)
    judged = [_judge(answer, config, machine, target, dataset) for answer, config in zip(found, configs, strict=True)]
    order = ("good", "tight", "unknown", "too_big", "unusable")
    return sorted(judged, key=lambda model: order.index(model.verdict))


def _configs(client: HubClient, found: Sequence[FoundAnswer], progress: Progress) -> list[dict[str, Any] | None]:
    """Read the config.json of each model; None where it cannot be read."""
    read = []
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        waiting = [pool.submit(_config, client, answer) for answer in found]
        try:
            for number, one in enumerate(waiting):
                progress("Reading what was found", number, len(waiting))
                read.append(one.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return read


def _config(client: HubClient, answer: FoundAnswer) -> dict[str, Any] | None:
    if answer.tags_of(_OTHER_FORMATS) or answer.task not in _TASKS:
        return None
    content = bytearray()
    try:
        with client.file(answer.id, answer.sha, "config.json", 0) as body:
            for chunk in body.chunks:
                content += chunk
                if len(content) > _LONGEST_CONFIG:
                    return None
        config = json.loads(content)
    except (BurnishError, TransientError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _judge(
    answer: FoundAnswer,
    config: dict[str, Any] | None,
    machine: MachineFacts,
    target: TargetSection,
    dataset: DatasetFacts | None,
) -> FoundOnHub:
    def listed(verdict: str, reason: str, **more: Any) -> FoundOnHub:
        return FoundOnHub.model_validate(
            {
                "name": answer.id,
                "parameters": answer.parameters,
                "license": answer.license,
                "gated": bool(answer.gated),
                "downloads": answer.downloads,
                "download_bytes": answer.weight_bytes,
                "here": fetched_model_dir(answer.id).is_dir(),
                "verdict": verdict,
                "reason": reason,
                **more,
            }
        )

    if answer.tags_of(_OTHER_FORMATS):
        return listed("unusable", _CONVERTED)
    if answer.task not in _TASKS:
        return listed("unusable", f"It is made for {answer.task}, not for writing text.")
    if config is None:
        return listed("unknown", _UNREADABLE if answer.gated else "Its config.json cannot be read.")
    config, wrapper = text_part(config)
    try:
        check_config(Path(answer.id), config, nested=wrapper is not None)
        spec = decoder_spec(config)
    except BurnishError as error:
        return listed("unusable", error.what)
    if spec is None:
        return listed("unknown", OTHER_FAMILY)
    if config.get("quantization_config") and not (spec.has_mxfp4_experts or stores_nf4(config)):
        return listed("unknown", _QUANTIZED)
    fit = quick_fit(FitInputs(answer.id, spec, machine, target, dataset, config=config))
    return listed("too_big", TOO_BIG) if fit is None else listed(**judgment(fit))
