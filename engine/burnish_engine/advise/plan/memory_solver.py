"""Chooses the memory plan of the fast engine: the fastest predicted plan whose predicted peak fits.

A plan decides the layers' save levels, how much of the feed-forward and of the head exists at once, and whether
embeddings, head and layers' weights are in host memory; `FastMemory` and `FastSpeed` predict each. The search ranks all
mixes of levels by bounds that need only their counts, then walks through the best mixes layer by layer, and after that
through their neighbors. It is deterministic, takes at most a few tenths of a second, and loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import MIB
from burnish_engine.advise.plan.plan_choices import allowed_levels, head_chunks, mlp_chunks
from burnish_engine.advise.predict.fast_memory import memory_of
from burnish_engine.advise.predict.fast_speed import FastSpeed
from burnish_engine.advise.predict.level_mixes import (
    MOVING,
    Counts,
    SaveLevels,
    arrange_layers,
    level_mixes,
    neighboring_mixes,
    spread_layers,
)
from burnish_engine.advise.predict.plan_options import Bytes, PlanOptions, split_plan
from burnish_engine.advise.predict.transfers import SLOTS
from burnish_engine.contract.recipe.memory_plan import (
    AUTO,
    LEVEL_NAMES,
    MemoryPlan,
    SaveLevel,
    layers_at,
    parse_save_levels,
    parse_weight_places,
    places_alone,
    weight_places,
)

_Away: TypeAlias = tuple[bool, bool, tuple[int, ...], tuple[int, ...]]
"""Parts in other places: whether embeddings and head are on the host, layers on the host, and layers of ranks."""

MARGIN_BYTES = {True: 256 * MIB, False: 512 * MIB}
"""Margin for a desktop or a browser beside a run, by whether a GPU trains: of its, or of the system's memory."""
MARGIN_SHARE = 0.05
"""Share of the free memory that stays free by default beside that margin, for the predictions' error."""


class _Effort(NamedTuple):
    """The thoroughness of a search."""

    net: int  # number of steps of the grid of `level_mixes`
    walked: int  # number of mixes of a round that are walked through layer by layer
    clear: tuple[int, ...]  # numbers of top layers that offload nothing, tried one after the other
    hosted: int  # number of shares of the layers that are tried with their weights in host memory


_THOROUGH, _QUICK = _Effort(16, 96, (0, 2, 4), 8), _Effort(8, 24, (0,), 2)
_ROUNDS = 6  # first over mixes, then over neighbors of the best
_SORTED = 2  # rounds that are sorted at once; most searches end with the first
_WORTH_STREAMING = 0.98  # predicted share of a pass's time below which weights are streamed for speed alone


def usable_bytes(free: int, *, cuda: bool) -> int:
    """The bytes that a run may take by default of its device's free bytes: all but a margin."""
    return int(free * (1 - MARGIN_SHARE)) - MARGIN_BYTES[cuda]


def solve_memory_plan(
    run: FastRun, *, budget_bytes: float, host_budget_bytes: float = 0, quick: bool = False
) -> MemoryPlan | None:
    """Choose the fastest predicted plan whose predicted peak fits; None where none does.

    Parts that the recipe pins in `memory` stay as they are. Where layers are not pinned, `train.recompute` allows no
    save level above "attention".

    Args:
        run: the run.
        budget_bytes: bytes that the process may hold of the device, the CUDA context included.
        host_budget_bytes: bytes of host memory that may be page-locked; 0: nothing is offloaded, and all weights are on
            the device.
        quick: whether a plan within a few percent of the fastest is enough, to compare many runs. Whether one fits is
            as exact.
    """
    return _Solver(run, host_budget_bytes, _QUICK if quick else _THOROUGH).solve(budget_bytes)


def smallest_memory_plan(run: FastRun, *, host_budget_bytes: float = 0) -> MemoryPlan:
    """Choose the plan that takes the least of the device, fitting or not; arguments as in `solve_memory_plan`."""
    return _Solver(run, host_budget_bytes).least()[1]


def smallest_plan_bytes(run: FastRun, *, host_budget_bytes: float = 0) -> int:
    """The smallest budget for which `solve_memory_plan` finds a plan, bytes."""
    return _whole_bytes(_Solver(run, host_budget_bytes).least()[0])


def peak_bytes(run: FastRun, plan: MemoryPlan) -> int:
    """The peak of the device's memory that the process holds with a plan, bytes."""
    return _whole_bytes(memory_of(run).totals(*split_plan(plan))[0])


@dataclass(frozen=True)
class _TimedPlan:
    """A plan with its predicted time."""

    seconds: float
    levels: SaveLevels
    options: PlanOptions


class _Solver:
    """Searches the memory plans of one run.

    Args:
        run: the run.
        host_budget: bytes of host memory that may be page-locked.
        effort: thoroughness of the search.
    """

    def __init__(self, run: FastRun, host_budget: float, effort: _Effort = _THOROUGH) -> None:
        self.memory, self._speed, self._effort = memory_of(run), FastSpeed(run, run.largest), effort
        self._run, self._host_budget = run, host_budget
        self._layers = run.spec.num_layers
        pinned = run.recipe.memory.layers
        self._pinned = None if pinned == AUTO else parse_save_levels(pinned, self._layers)
        places = run.recipe.memory.weights
        self._places = None if places == AUTO else _pinned_places(places, run)
        self._may_share = run.cuda and run.ranks > 1 and self._speed.reads_peers_faster
        self._allowed = allowed_levels(run, moving=host_budget > 0)

    def solve(self, budget: float) -> MemoryPlan | None:
        """Choose the fastest plan that fits; None where none does."""
        if self._pinned is not None:
            return self._solve_pinned(list(self._choices()), budget)
        fastest, first = np.full((1, self._layers), LEVEL_NAMES.index(self._allowed[0]), np.int8), next(self._choices())
        if self._fits([(fastest, first)], budget)[0]:  # as on most machines: nothing to weigh
            return _memory_plan(fastest[0], first)
        choices = list(self._choices())
        best: _TimedPlan | None = None
        for hosted in (False, True):
            own = [options for options in choices if self._streams(options) == hosted]
            best = self._best(own, budget, best.seconds * _WORTH_STREAMING if best else np.inf) or best
        if best is None:
            size, least = self.least()
            return least if size <= budget else None
        return _memory_plan(best.levels[0], self._with_fewest_hosted(best, budget))

    def least(self) -> tuple[float, MemoryPlan]:
        """Choose the plan that takes the least of the device; return its bytes there and the plan."""
        tiles, heads = self._chunks()
        plans = self._smallest([list(self._of_tile(tiles[-1], heads, away))[-1] for away in self._away()])
        sizes = self.memory.totals_of(plans)
        place = int(np.argmin(sizes))
        levels, options = _plan_at(plans, place)
        return float(sizes[place]), _memory_plan(levels[0], options)

    def _smallest(self, choices: list[PlanOptions]) -> list[tuple[SaveLevels, PlanOptions]]:
        """Find, for each options, the save levels that keep least on the device, with what host memory has room for."""
        if self._pinned is not None:
            return [(level_numbers(self._pinned), options) for options in choices]
        staying = LEVEL_NAMES.index([level for level in self._allowed if level not in MOVING][-1])
        found = [np.full((len(choices), self._layers), staying, np.int8)]
        room = np.array([max(self._host_budget - self.memory.weights_on_host(options), 0) for options in choices])
        for level in [level for level in ("host", "input") if level in self._allowed]:
            moving = LEVEL_NAMES.index(level)
            offloaded = self.memory.layers(0).offloaded[:, moving].max()
            counts = np.zeros((len(choices), len(LEVEL_NAMES)), np.int16)
            counts[:, moving] = np.minimum(self._layers, room // offloaded)
            counts[:, staying] = self._layers - counts[:, moving]
            found += [arrange_layers(counts, clear) for clear in _THOROUGH.clear]
        return list(zip(np.stack(found, axis=1), choices, strict=True))

    def _solve_pinned(self, choices: list[PlanOptions], budget: float) -> MemoryPlan | None:
        assert self._pinned is not None
        levels = level_numbers(self._pinned)
        fitting = [options for options in choices if self._fits([(levels, options)], budget)[0]]
        if not fitting:
            return None

        def seconds(options: PlanOptions) -> float:
            found = float(self._speed.seconds([(levels, options)])[0])
            return found / _WORTH_STREAMING if self._streams(options) else found

        return _memory_plan(levels[0], min(fitting, key=seconds))

    def _best(self, choices: list[PlanOptions], budget: float, limit: float) -> _TimedPlan | None:
        """Find the fastest plan with one of some options; None where none fits that is faster than the limit."""
        best = self._search(choices, budget, limit) if choices else None
        for _ in range(_ROUNDS if best and self._effort is _THOROUGH else 0):
            assert best is not None
            around = neighboring_mixes(_counted(best.levels), self._allowed)
            beside = [best.options, *self._neighboring(best.options)]
            better = self._walk([(around, options) for options in beside], budget, best.seconds)
            if better is None:
                break
            best = better
        return best

    def _search(self, choices: list[PlanOptions], budget: float, limit: float) -> _TimedPlan | None:
        """Find the best of all mixes with all options, tried in the order of their approximate times."""
        counts = level_mixes(self._layers, self._allowed, self._effort.net)
        real = counts.astype(np.float64)
        times = np.full((len(choices), len(counts)), np.inf)
        for chunk in dict.fromkeys(options.mlp_chunk_tokens for options in choices):
            numbers = [number for number, options in enumerate(choices) if options.mlp_chunk_tokens == chunk]
            alike = [choices[number] for number in numbers]
            fits = self.memory.least_totals(real, alike) <= budget
            fits &= self.memory.least_host_bytes(real, alike) <= self._host_budget
            times[numbers] = np.where(fits, self._speed.approximate_seconds(real, alike), np.inf)
        best: _TimedPlan | None = None
        for number, chosen in enumerate(_from_least(times.ravel(), self._effort.walked)):
            enough = number >= _ROUNDS and (best or limit < np.inf)
            least = times.flat[chosen[0]]
            if least >= (best.seconds if best else limit) or enough or (best and self._effort is _QUICK):
                break
            choice, mix = np.divmod(chosen, len(counts))
            own = [(counts[mix[choice == one]], choices[one]) for one in np.unique(choice)]
            best = self._walk(own, budget, best.seconds if best else limit) or best
        return best

    def _walk(self, tried: Sequence[tuple[Counts, PlanOptions]], budget: float, limit: float) -> _TimedPlan | None:
        """Find the fastest of some mixes that fits, layer by layer; None where none is faster than the limit."""
        counts = np.vstack([own for own, _ in tried])
        moves = np.asarray(counts[:, [LEVEL_NAMES.index(level) for level in MOVING]].any(axis=1))
        arranged = [arrange_layers(counts, clear) for clear in (self._effort.clear if moves.any() else (0,))]
        plans, first = [], 0
        for mixes, options in tried:
            own = slice(first, first + len(mixes))
            levels = np.vstack([arranged[0][own], *(one[own][moves[own]] for one in arranged[1:])])
            plans.append((levels, options))
            first = own.stop
        fits = np.split(self._fits(plans, budget), np.cumsum([len(levels) for levels, _ in plans])[:-1])
        plans = [(levels[able], options) for (levels, options), able in zip(plans, fits, strict=True)]
        seconds = self._speed.seconds(plans)
        if not len(seconds) or seconds.min() >= limit:
            return None
        place = int(np.argmin(seconds))
        return _TimedPlan(float(seconds[place]), *_plan_at(plans, place))

    def _fits(self, plans: Sequence[tuple[SaveLevels, PlanOptions]], budget: float) -> npt.NDArray[np.bool_]:
        """Whether plans fit, on the device and on the host, [plans]; argument as of `FastMemory.totals_of`."""
        fits = self.memory.totals_of(plans) <= budget
        if self._pinned is None:
            fits &= np.concatenate([self.memory.host_bytes(*one) for one in plans]) <= self._host_budget
        return np.asarray(fits)

    def _choices(self) -> Iterator[PlanOptions]:
        """List the plan options worth trying, from the fastest on."""
        tiles, heads = self._chunks()
        for away in self._away():
            for mlp_chunk_tokens in tiles:
                yield from self._of_tile(mlp_chunk_tokens, heads, away)

    def _chunks(self) -> tuple[list[int], list[int]]:
        """List the chunks of feed-forward and head that may be tried, tokens, the largest first; 0: all."""
        largest, pinned = self._run.largest, self._run.recipe.memory
        tokens = largest.padded_tokens
        tiles = [pinned.mlp_rows] if pinned.mlp_rows else [0, *mlp_chunks(tokens)]
        if pinned.head_rows:
            return tiles, [min(pinned.head_rows, tokens)]
        return tiles, head_chunks(min(largest.supervised_tokens, tokens), cuda=self._run.cuda)

    def _of_tile(self, mlp_chunk_tokens: int, heads: list[int], away: _Away) -> Iterator[PlanOptions]:
        """List the options with one chunk of the feed-forward, down to the smallest useful chunk of the head."""
        least = self.memory.least_workspace(mlp_chunk_tokens)
        for head in heads:
            options = PlanOptions(mlp_chunk_tokens, head, *away)
            yield options
            if self.memory.head_bytes(options) <= least:
                break  # a smaller one would take time and save nothing

    def _tables(self) -> list[tuple[bool, bool]]:
        """List where (embeddings, head) may be: whether each is in host memory."""
        count = self._host_budget // self.memory.embedding_bytes if self._run.cuda else 0
        if self._run.spec.tied_embeddings:
            return [(False, False), (True, True)][: 1 + min(int(count), 1)]
        return [(False, False), (True, False), (True, True)][: 1 + min(int(count), 2)]

    def _away(self) -> Iterator[_Away]:
        """List what may be elsewhere: embeddings, head, and layers' weights, in host memory or shared by ranks."""
        shares = self._effort.hosted
        counts = {self._layers * share // shares for share in range(1, shares + 1)}
        for embedding, head in self._tables():
            if self._places is not None:
                yield embedding, head, *self._places
                continue
            yield embedding, head, (), ()
            for count in sorted(counts) if self._may_share else ():
                if count > SLOTS:
                    yield embedding, head, (), spread_layers(count, self._layers)
            used = self.memory.tables_on_host(PlanOptions(0, 1, embedding, head))
            most = self._most_hosted(used)
            for count in sorted({min(count, most) for count in counts}):
                if count > SLOTS:
                    yield embedding, head, spread_layers(count, self._layers), ()

    def _streams(self, options: PlanOptions) -> bool:
        """Whether the solver, not the recipe, put weights of layers elsewhere."""
        return self._places is None and bool(options.streamed)

    def _with_streamed(self, options: PlanOptions, count: int) -> PlanOptions:
        """The same options with another number of layers' weights where some are streamed from."""
        layers = spread_layers(count, self._layers)
        if options.layers_on_ranks:
            return options._replace(layers_on_ranks=layers)
        return options._replace(layers_on_host=layers)

    def _most_hosted(self, used: float) -> int:
        """The most layers whose weights find room in host memory beside what is used of it; 0 without a GPU."""
        if not self._run.cuda:
            return 0
        return min(self._layers, int(max(self._host_budget - used, 0) // self.memory.blocks.max()))

    def _neighboring(self, options: PlanOptions) -> Iterator[PlanOptions]:
        """List the same options with a few layers' weights more and fewer where some are streamed from."""
        count, step = len(options.streamed), max(1, self._layers // (2 * self._effort.hosted))
        hosted = self._most_hosted(self.memory.tables_on_host(options))
        most = self._layers if options.layers_on_ranks else hosted
        for other in {max(count - step, 0), min(count + step, most)} - {count}:
            if self._streams(options) and other > SLOTS:
                yield self._with_streamed(options, other)

    def _with_fewest_hosted(self, best: _TimedPlan, budget: float) -> PlanOptions:
        """The options of a plan with as few layers' weights streamed as fit and take no longer."""
        options = best.options
        counts = range(SLOTS + 1, len(options.streamed)) if self._streams(options) else range(0)
        fewer = [self._with_streamed(options, count) for count in counts]
        plans = [(best.levels, one) for one in fewer]
        if not plans:
            return options
        able = self._fits(plans, budget) & (self._speed.seconds(plans) <= best.seconds)
        return fewer[int(np.argmax(able))] if able.any() else options


def level_numbers(levels: Iterable[SaveLevel]) -> SaveLevels:
    """Turn the names of layers' save levels into an array of indices, [1, layers]."""
    return np.array([[LEVEL_NAMES.index(level) for level in levels]], dtype=np.int8)


def _from_least(times: Bytes, size: int) -> Iterator[npt.NDArray[np.intp]]:
    """List the places of finite times from the least on, a number of them at a time; equal ones in their order."""
    left, found = np.flatnonzero(times < np.inf), np.empty(0, np.intp)
    while len(left):
        most = np.partition(times[left], _SORTED * size)[_SORTED * size] if len(left) > _SORTED * size else np.inf
        now, left = left[times[left] <= most], left[times[left] > most]
        found = np.concatenate([found, now[np.argsort(times[now], kind="stable")]])
        whole = len(found) // size * size if len(left) else len(found)
        yield from (found[first : first + size] for first in range(0, whole, size))
        found = found[whole:]


def _whole_bytes(size: float) -> int:
    return int(np.ceil(size))


def _plan_at(plans: Sequence[tuple[SaveLevels, PlanOptions]], place: int) -> tuple[SaveLevels, PlanOptions]:
    """Find a plan by its place among those of several sets of options: its save levels, [1, layers], and options."""
    for levels, options in plans:
        if place < len(levels):
            return levels[place : place + 1], options
        place -= len(levels)
    raise AssertionError


def _pinned_places(text: str, run: FastRun) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the recipe's places of weights: the layers in host memory, and those that processes share."""
    places = parse_weight_places(text, run.spec.num_layers)
    places = places if run.ranks > 1 else places_alone(places)
    return layers_at("host", places), layers_at("ranks", places)


def _memory_plan(levels: SaveLevels, options: PlanOptions) -> MemoryPlan:
    return MemoryPlan(
        layers=tuple(LEVEL_NAMES[level] for level in levels),
        mlp_rows=options.mlp_chunk_tokens,
        head_rows=options.head_chunk_tokens,
        embedding_on_host=options.embedding_on_host,
        head_on_host=options.head_on_host,
        weights=weight_places(options.layers_on_host, levels.shape[-1], options.layers_on_ranks),
    )


def _counted(levels: SaveLevels) -> Counts:
    return np.array([[int((levels == level).sum()) for level in range(len(LEVEL_NAMES))]], dtype=np.int16)
