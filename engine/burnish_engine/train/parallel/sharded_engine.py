"""The plain engine on a whole model that is shared out over ranks, for the leader and for the others.

All ranks have to run the model together, whatever it is run for. A step is made by all, each with its part of the
passes. In whatever else the leader does with the model (an evaluation, replies, the guard's checks), the others keep it
company: before each of its forward passes it tells them to make one of their own, over two tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from typing_extensions import override

from burnish_engine.contract.errors import DoesNotFitError, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.base.engine import EngineFacts
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.exchange.deal import cost_of, deal_by_cost
from burnish_engine.train.exchange.rank_exchange import NEWS_S
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.plain.whole_model import WholeModel
from burnish_engine.train.recovery.recovery import short_message

if TYPE_CHECKING:
    from burnish_engine.train.parallel.sharded_model import ShardedWholeModel

OPTIMIZERS = ("adamw", "lion", "schedule_free")
"""Optimizers that move each weight by itself, so that a part of a tensor is moved as it would be within the whole."""
_WATCH_S = 0.5


def refuse_sharded(recipe: Recipe, device: torch.device, precision: str) -> None:
    """Refuse what cannot be trained with the weights shared out.

    Raises:
        UsageError: The recipe asks for it.
    """
    section, problem = recipe.train, ""
    remedy = 'devices.strategy = "single" or "data_parallel" trains it.'
    if recipe.adapter.method != "full":
        problem = 'Only whole models (adapter.method = "full") are shared out over GPUs'
    elif section.optimizer not in OPTIMIZERS or recipe.masking.is_active:
        problem = f"{section.optimizer} looks at whole tensors" if not recipe.masking.is_active else "Masking does"
        problem += ", and each GPU has a part of them"
        remedy = f"Choose one of {', '.join(OPTIMIZERS)}, without masking."
    elif section.engine == "fast":
        problem, remedy = "The fast engine trains no whole models", 'Set train.engine = "plain" or "auto".'
    elif device.type == "cpu" and precision != "fp32":
        problem, remedy = "On CPUs parts of weights travel in fp32 only", 'Set train.precision = "fp32".'
    elif not torch.distributed.is_available():
        problem = "This torch has no torch.distributed, by which weights are shared out"
    if problem:
        raise UsageError(f"{problem}.", remedy)


class ShardedEngine(PlainEngine):
    """Plain engine of one rank, whose weights are shared out.

    Args:
        spec: specification of the engine.
        rank: number of this rank.
        size: number of ranks.
        collectives: operations over all ranks.
    """

    def __init__(self, spec: EngineSpec, rank: int, size: int, collectives: Collectives) -> None:
        self._rank, self._size, self._collectives = rank, size, collectives
        self._may_shrink, self._averages = True, ExitStack()
        super().__init__(spec)
        self._may_shrink = False  # the ranks cannot change their plans in the midst

    @property
    def sharded(self) -> ShardedWholeModel:
        """The model, of which this rank holds a part."""
        return cast("ShardedWholeModel", self._whole)

    @override
    def _whole_model(self, source: ModelSource, spec: EngineSpec) -> WholeModel:
        from burnish_engine.train.parallel.sharded_model import ShardedWholeModel  # not every torch has what it needs

        return ShardedWholeModel(source, spec.precision, spec.device)

    @property
    @override
    def facts(self) -> EngineFacts:
        return replace(super().facts, state_bytes=2**62)  # nothing is copied to be tried first: all ranks would have to

    @override
    def shrink(self) -> str:
        return super().shrink() if self._may_shrink else ""

    @override
    def _own_passes(self, passes: list[MicroBatch]) -> list[MicroBatch]:
        dealt = deal_by_cost([cost_of(one) for one in passes], self._size)
        self._idle = max(map(len, dealt)) - len(dealt[self._rank])
        return [passes[index] for index in dealt[self._rank]]

    @override
    def _over_ranks(self, total: float, _figures: torch.Tensor) -> float:
        for _ in range(self._idle):
            self.keep_company(grad=True)
        values = torch.cat([torch.tensor([total], dtype=torch.float64, device=_figures.device), _figures.double()])
        self._collectives.all_reduce(values)
        _figures.copy_(values[1:])
        return float(values[0])

    @override
    def _clip(self, max_norm: float) -> float:
        gradients = [own.grad for _, own in self.parameters if own.grad is not None]
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
        squares = torch.stack(norms).square().sum().reshape(1)
        self._collectives.all_reduce(squares)
        norm = float(squares.sqrt())
        if max_norm and norm > max_norm:
            torch._foreach_mul_(gradients, max_norm / (norm + 1e-6))  # as torch's clip_grad_norm_
        return norm

    def keep_company(self, *, grad: bool) -> None:
        """Run the model over two tokens because another rank runs it; with `grad` also backward, adding nothing."""
        with torch.set_grad_enabled(grad):
            ids = torch.zeros(1, 2, dtype=torch.int64, device=self._device)
            logits = self.model(input_ids=ids, use_cache=False).logits
            if grad:
                (logits.float().sum() * 0.0).backward()

    @override
    def _optimizer_state(self, *, copy: bool = False) -> dict[str, torch.Tensor]:
        return self.sharded.gather_state(super()._optimizer_state(copy=copy))

    def take_optimizer(self, tensors: dict[str, torch.Tensor], shapes: dict[str, list[Any]]) -> None:
        """Take over this rank's part of an optimizer's whole state, which rank 0 has.

        Args:
            tensors: the whole state; of use on rank 0 only.
            shapes: shape and dtype of each tensor, by name.
        """
        own: dict[str, torch.Tensor] = {}
        for name, (shape, dtype) in shapes.items():
            kind = getattr(torch, dtype)
            whole = tensors[name] if self._rank == 0 else torch.empty(shape, dtype=kind)
            there = whole.to(self._device).contiguous()
            self._collectives.broadcast(there, 0)
            own[name] = self.sharded.part_of(name, there, self._rank, self._size).cpu()
        super().restore_optimizer(own)

    def take_part(self, order: Message) -> None:
        """Do, as another rank, what the leader does with the model."""
        match order["what"]:
            case "forward":
                self.model.train(order["training"])
                self.keep_company(grad=order["grad"])
                self._drop_gradients()
                self.model.train()
            case "average":
                self._averages.close()
                if order["on"]:
                    self._averages.enter_context(self._averaged())
            case "save":
                self.save_adapter(Path(order["folder"]))
            case "state":
                self.optimizer_tensors()
            case "restore":
                self.take_optimizer({}, order["shapes"])
            case other:
                raise ValueError(f"unknown part {other!r}")


class LeadingShardedEngine(ShardedEngine):
    """Plain engine of rank 0, which tells the other ranks what it does.

    Args:
        spec: specification of the engine.
        ranks: other ranks.
        replica: what they load their engines from, beside plan and weights.
    """

    def __init__(self, spec: EngineSpec, ranks: Ranks, replica: Message) -> None:
        if ranks.speeds:
            raise UsageError(
                "A whole model is shared out over GPUs of one model only.", "Name such ones in devices.gpus."
            )
        self._ranks, self._together = ranks, True
        order = {
            "do": "load",
            "sharded": True,
            "plan": spec.plan,
            "adapter": str(spec.adapter) if spec.adapter else "",
            "layout": spec.layout or "",
            "learning_rate": spec.recipe.train.learning_rate,
        }
        ranks.send(replica | order, answered=True)
        try:
            with self._watching():
                super().__init__(spec, 0, ranks.size, ranks.collectives)
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error):
                raise
            raise DoesNotFitError(  # to try again, all would have to
                f"Memory ran out in loading this GPU's part of the model ({short_message(error)}).",
                "Use more GPUs, or a smaller model.",
            ) from error
        ranks.wait()
        self._together = False
        self.model.register_forward_pre_hook(self._invite, prepend=True)  # before FSDP gathers

    def _invite(self, model: Any, _inputs: Any) -> None:
        """Have the other ranks run the model too, unless they do so anyway."""
        if not self._together:
            forward = {"grad": torch.is_grad_enabled(), "training": model.training}
            self._ranks.send({"do": "part", "what": "forward"} | forward)

    @override
    @contextmanager
    def _averaged(self) -> Iterator[None]:
        tells = not self._together and self._recipe.train.optimizer == "schedule_free"
        if tells:
            self._ranks.send({"do": "part", "what": "average", "on": True})
        try:
            with super()._averaged():
                yield
        finally:
            if tells:
                self._ranks.send({"do": "part", "what": "average", "on": False})

    @override
    def computing(self) -> AbstractContextManager[None]:
        return self._watching()

    @override
    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        assert source is None, "there is no dry run"
        super().start(step, total_steps, total_micro_batches)
        order = {"do": "start", "step": step, "steps": total_steps, "micro_batches": total_micro_batches}
        self._ranks.call(order)

    @override
    def queue_step(self) -> None:
        self._ranks.begin_step()
        self._ranks.agree()
        self._do_together(super().queue_step)

    @override
    def save_adapter(self, folder: Path) -> None:
        self._ranks.send({"do": "part", "what": "save", "folder": str(folder)})
        self._do_together(lambda: super(LeadingShardedEngine, self).save_adapter(folder))

    @override
    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        found: list[dict[str, torch.Tensor]] = []
        self._ranks.send({"do": "part", "what": "state"})
        self._do_together(lambda: found.append(super(LeadingShardedEngine, self).optimizer_tensors()))
        return found[0]

    @override
    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        shapes = {name: [list(value.shape), str(value.dtype)[6:]] for name, value in sorted(tensors.items())}
        self._ranks.send({"do": "part", "what": "restore", "shapes": shapes})
        self._do_together(lambda: self.take_optimizer(tensors, shapes))

    def _do_together(self, action: Callable[[], object]) -> None:
        """Do what the other ranks do at the same time, of themselves."""
        self._together = True
        try:
            with self._watching():
                action()
        finally:
            self._together = False

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Look for ranks that end while all compute together: else this one would wait for them for ever."""
        over, lost = threading.Event(), list[BaseException]()

        def watch() -> None:
            while not over.wait(_WATCH_S):
                try:
                    self._ranks.check()
                except Exception as error:  # noqa: BLE001  raised below
                    lost.append(error)
                    if self._on_gpu:
                        self._ranks.collectives.close(abort=True)
                    return

        watcher = threading.Thread(target=watch, name="ranks", daemon=True)
        watcher.start()
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, MEMORY_ERRORS) and is_out_of_memory(error):
                raise
            until = time.monotonic() + NEWS_S
            while not lost and time.monotonic() < until:
                time.sleep(_WATCH_S / 10)
            if not lost:
                raise
        finally:
            over.set()
            watcher.join()
        if lost:
            raise lost[0]

    @property
    def _on_gpu(self) -> bool:
        return torch.distributed.get_backend() == "nccl"
