"""The replica of a run's engine on a rank other than the leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from burnish_engine.advise.predict.plain.whole_model_memory import later_bytes
from burnish_engine.contract.errors import DoesNotFitError, SetupError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.events import Phase
from burnish_engine.models.device.device import MEMORY_ERRORS, cap_memory, is_out_of_memory
from burnish_engine.runs.store import read_recipe
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.exchange import ERRORS
from burnish_engine.train.base.random_state import seed_everything
from burnish_engine.train.base.stream import References
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.exchange.rank_memory import RankWindows
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_model import TrainableDecoder
from burnish_engine.train.fast.smaller_plan import read_memory_plan
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.lifecycle.inputs import RunInputs
from burnish_engine.train.lifecycle.measure import Measure
from burnish_engine.train.lifecycle.start import started_recipe
from burnish_engine.train.parallel.evaluation_share import evaluate_share
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.rank_server import RankServer, Replica
from burnish_engine.train.parallel.sharded_engine import ShardedEngine
from burnish_engine.train.recovery.recovery import release, short_message

_WEIGHTS, _REFERENCE = "weights", "reference/"


def weights_checksum(model: TrainableDecoder) -> int:
    """Compute the checksum of a model's trained weights; waits for the device."""
    return checksums({_WEIGHTS: model.optimizer.param})[_WEIGHTS]


def state_of(model: TrainableDecoder, references: References | None) -> dict[str, torch.Tensor]:
    """Return everything that steps depend on beside the frozen weights, by name, on the CPU.

    Args:
        model: model that trains.
        references: log-probabilities under the reference; None where there are none.
    """
    found = {_WEIGHTS: model.optimizer.param.to("cpu", copy=True)} | model.state()
    if references:
        for name in ("train", "mismatched"):
            found[_REFERENCE + name] = torch.from_numpy(np.ascontiguousarray(getattr(references, name)))
    return found


@torch.no_grad()
def take_state(model: TrainableDecoder, tensors: Mapping[str, torch.Tensor]) -> References | None:
    """Take over what `state_of` returned; return the references in it."""
    state = {name: value for name, value in tensors.items() if name != _WEIGHTS and not name.startswith(_REFERENCE)}
    model.optimizer.param.copy_(tensors[_WEIGHTS])
    model.restore(state)
    model.write_compute_copies()
    if _REFERENCE + "train" not in tensors:
        return None
    none: npt.NDArray[np.float32] = np.zeros((0, 1), np.float32)
    train, mismatched = (tensors[_REFERENCE + name].numpy() for name in ("train", "mismatched"))
    return References(train, none, mismatched, none)


class _Quiet:
    """Recorder of nothing: the leader says it already."""

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Do nothing."""

    def progress(self, done: int, total: int) -> None:
        """Do nothing."""

    def warn(self, code: str, message: str) -> None:
        """Do nothing."""


class RunReplica(Replica):
    """Replica of a run's engine; it reads model and data by itself, as the run folder's recipe names them.

    Args:
        server: server that the replica's steps are agreed on with.
        device: device of this rank.
    """

    def __init__(self, server: RankServer, device: torch.device) -> None:
        self._server, self._device = server, device
        self._measure = Measure(device)
        self._spec: EngineSpec | None = None
        self._engines: list[FastEngine] = []
        self._sharded: list[ShardedEngine] = []

    @override
    def load(self, order: Message) -> Message:
        self.close()
        self._engines.clear()
        self._sharded.clear()
        release(self._device)
        spec = self._spec or self._read(order)
        spec = replace(spec, exchange=self._server.exchange(exact=spec.recipe.devices.exact))
        self._spec = spec
        section = spec.recipe.train.model_copy(update={"learning_rate": order["learning_rate"]})
        recipe = spec.recipe.model_copy(update={"train": section})
        adapter = Path(order["adapter"]) if order["adapter"] else None
        spec = replace(spec, recipe=recipe, plan=order["plan"], adapter=adapter)
        if order.get("sharded"):
            spec = replace(spec, name="plain", layout=order["layout"] or None, exchange=None)
            self._take_part(lambda: self._sharded.append(ShardedEngine(spec, *self._server.place)))
            return {}
        self._engines.append(FastEngine(replace(spec, memory=RankWindows(*self._server.place, self._server.meet))))
        return {"plan": self._engine.facts.memory_plan}

    @override
    def use_plan(self, plan: str) -> None:
        memory_plan = read_memory_plan(plan, self._engine.model.loaded.decoder.spec)
        assert memory_plan is not None
        self._engine.use_plan(memory_plan)

    @override
    def start(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> None:
        assert self._spec is not None
        if self._sharded:
            return self._sharded[0].start(order["step"], order["steps"], order["micro_batches"])
        errors = {name: value for name, value in tensors.items() if name.startswith(ERRORS)}
        references = take_state(self._engine.model, {name: tensors[name] for name in tensors.keys() - errors.keys()})
        if references:
            self._spec.stream.references = references
        exchange = self._spec.exchange
        assert isinstance(exchange, RankExchange)
        slices = self._engine.slice_gradient(order["slices"])
        exchange.use(slices, self._engine.model.optimizer.grad, **order["use"])
        exchange.restore_errors({name.removeprefix(ERRORS): value for name, value in errors.items()})
        return self._engine.start(order["step"], order["steps"], order["micro_batches"])

    @override
    def step(self) -> None:
        if self._sharded:
            self._server.meet()
            self._take_part(self._sharded[0].queue_step)
            list(self._sharded[0].results())
            return
        self._engine.queue_step()
        for _ in self._engine.results():  # they are the leader's, number for number
            pass

    @override
    def take_part(self, order: Message) -> None:
        self._take_part(lambda: self._sharded[0].take_part(order))

    def _take_part(self, action: Callable[[], object]) -> None:
        """Do what all ranks do together; where memory runs out, this one ends, as the others wait for it."""
        try:
            action()
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error):
                raise
            raise DoesNotFitError(
                f"memory ran out ({short_message(error)}).", "Lower train.micro_batch_tokens, or use more GPUs."
            ) from error

    @override
    def checksum(self) -> int:
        if self._sharded:
            return 0  # each rank has other weights
        for _ in self._engine.results(wait=True):
            pass
        return weights_checksum(self._engine.model)

    @override
    def evaluate(self, order: Message, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return evaluate_share(self._engine, order, tensors)

    @override
    def close(self) -> None:
        for engine in (*self._engines, *self._sharded):
            engine.close()

    @property
    def _engine(self) -> FastEngine:
        return self._engines[0]

    def _read(self, order: Message) -> EngineSpec:
        """Read the run's inputs; they must be those that the leader read."""
        torch.set_num_threads(order["threads"])
        paths = RunPaths(Path(order["run"]))
        recipe = read_recipe(paths)
        seed_everything(recipe.train.seed)
        inputs = RunInputs.load(paths, recipe, _Quiet(), fresh=False)
        if inputs.data.dataset_hash != order["dataset_hash"]:
            raise SetupError(
                "the training data that it reads is not the leader's.", "Give every machine the same files."
            )
        cap_memory(self._device, recipe.memory.budget_gib, self._measure.beside, later_bytes(recipe.adapter))
        return EngineSpec(
            source=inputs.source,
            recipe=started_recipe(recipe, inputs.start),
            stream=inputs.stream,
            tokenizer=inputs.tokenizer,
            precision=order["precision"],
            products=order["products"],
            device=self._device,
            name="fast",
            layout="packed",
        )
