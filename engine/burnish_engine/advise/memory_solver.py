"""Chooses how a pass of the fast engine uses memory: the fastest predicted plan whose predicted peak fits.

What is kept of layers, how much of the feed-forward and of the head exists at once, and whether embeddings and head are
in host memory are weighed against each other by `FastMemory` and `FastSpeed`. All mixes of levels are ranked by bounds
that take only their counts; the best of them are then walked through layer by layer, and after that what is next to the
best. Deterministic, at most a tenth of a second, loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from burnish_engine.advise.fast_memory import Bytes, Pieces, memory_of, of_plan
from burnish_engine.advise.fast_shape import head_rows
from burnish_engine.advise.fast_speed import FastSpeed
from burnish_engine.advise.level_mixes import MOVING, Counts, Levels, arranged, mixes, neighbors
from burnish_engine.advise.planned_run import FastRun
from burnish_engine.advise.shape import MIB
from burnish_engine.contract.memory_plan import AUTO, LEVELS, Level, MemoryPlan, parse_levels

MARGIN_BYTES = {True: 256 * MIB, False: 512 * MIB}
"""What a desktop or a browser may take while a run goes on: of a GPU (True), or of the system's memory."""
MARGIN_SHARE = 0.05
"""Of the free memory, left free beside that by default: what predictions err by."""

_LEAST_TILE = 1024  # smaller tiles leave a GPU idle
_HEAD_DIVIDED = (1, 2, 4, 8, 16)
# "all" is left to those who pin it: on an H100 it is 0.4 % faster than "rotated" for as much memory again.
_AUTO_GPU: tuple[Level, ...] = ("rotated", "products", "offloaded", "narrow", "attention", "host", "input")
_AUTO_CPU: tuple[Level, ...] = ("products", "narrow", "attention")


class _Effort(NamedTuple):
    """How thoroughly to search.

    Attributes:
        net: Of `mixes`.
        walked: Mixes of a round that are walked through layer by layer.
        clear: Layers on top from which nothing moves: tried one after the other.
    """

    net: int
    walked: int
    clear: tuple[int, ...]


_THOROUGH, _QUICK = _Effort(16, 96, (0, 2, 4)), _Effort(8, 24, (0,))
_ROUNDS = 6  # of mixes, and then of neighbors of the best


def usable_bytes(free: int, *, cuda: bool) -> int:
    """What a run may take by default of so many free bytes of its device: all but a margin."""
    return int(free * (1 - MARGIN_SHARE)) - MARGIN_BYTES[cuda]


def choose_plan(
    run: FastRun, *, budget_bytes: float, host_budget_bytes: float = 0, quick: bool = False
) -> MemoryPlan | None:
    """The fastest predicted plan whose predicted peak fits; None where none does.

    What the recipe pins in `memory` stays as it is. Where layers are not pinned, `train.recompute` allows no level
    above "attention".

    Args:
        run: The run.
        budget_bytes: What the process may hold of the device, the CUDA context included.
        host_budget_bytes: Host memory that may be page-locked; 0: nothing is moved there.
        quick: Take a plan that is a few percent from the fastest, to compare many runs. Whether one fits is as exact.
    """
    return _Solver(run, host_budget_bytes, _QUICK if quick else _THOROUGH).solve(budget_bytes)


def least_plan(run: FastRun, *, host_budget_bytes: float = 0) -> MemoryPlan:
    """The plan that takes the least of the device, whether it fits or not; arguments as in `choose_plan`."""
    return _Solver(run, host_budget_bytes).least()


def least_bytes(run: FastRun, *, host_budget_bytes: float = 0) -> int:
    """What that takes: the smallest budget for which `choose_plan` finds a plan."""
    return peak_bytes(run, least_plan(run, host_budget_bytes=host_budget_bytes))


def peak_bytes(run: FastRun, plan: MemoryPlan) -> int:
    """What the process holds of the device at its worst moment with a plan."""
    return int(np.ceil(memory_of(run).totals(*of_plan(plan))[0]))


@dataclass(frozen=True)
class _Found:
    """A plan with its time."""

    seconds: float
    levels: Levels
    pieces: Pieces


class _Solver:
    """Searches for one run.

    Args:
        run: The run.
        host_budget: Bytes of host memory.
        effort: How thoroughly.
    """

    def __init__(self, run: FastRun, host_budget: float, effort: _Effort = _THOROUGH) -> None:
        self.memory, self._speed, self._effort = memory_of(run), FastSpeed(run, run.largest), effort
        self._run, self._host_budget = run, host_budget
        self._layers = run.spec.num_layers
        pinned = run.recipe.memory.layers
        self._pinned = None if pinned == AUTO else parse_levels(pinned, self._layers)
        self._allowed = _allowed(run, moving=host_budget > 0)

    def solve(self, budget: float) -> MemoryPlan | None:
        """The fastest that fits."""
        choices = list(self._choices())
        if self._pinned is not None:
            return self._solve_pinned(choices, budget)
        fastest = np.full((1, self._layers), LEVELS.index(self._allowed[0]), np.int8)
        if self._fits(fastest, choices[0], budget)[0]:  # as on most machines: nothing to weigh
            return _plan(fastest[0], choices[0])
        best = self._search(choices, budget)
        if best is None:
            least = self.least()
            return least if self.memory.totals(*of_plan(least))[0] <= budget else None
        for _ in range(_ROUNDS if self._effort is _THOROUGH else 0):
            around = neighbors(_counted(best.levels), self._allowed)
            better = self._walk([(around, best.pieces)], budget, best.seconds)
            if better is None:
                break
            best = better
        return _plan(best.levels[0], best.pieces)

    def least(self) -> MemoryPlan:
        """The smallest."""
        best: tuple[float, MemoryPlan] | None = None
        rows, levels = self._run.largest.static_rows, self._smallest()
        smallest: dict[tuple[bool, bool], Pieces] = {}
        for pieces in self._choices():
            away = pieces.embedding_on_host, pieces.head_on_host
            known = smallest.setdefault(away, pieces)
            smallest[away] = min(known, pieces, key=lambda one: (one.mlp_rows or rows, one.head_rows))
        for pieces in smallest.values():
            able = levels if self._pinned else levels[self._host(levels, pieces) <= self._host_budget]
            sizes = self.memory.totals(able, pieces)
            first = int(np.argmin(sizes))
            if best is None or sizes[first] < best[0]:
                best = float(sizes[first]), _plan(able[first], pieces)
        assert best is not None
        return best[1]

    def _smallest(self) -> Levels:
        """Levels that keep the least; as much of it in host memory as there is place for."""
        if self._pinned is not None:
            return of_levels(self._pinned)
        staying = LEVELS.index([level for level in self._allowed if level not in MOVING][-1])
        found = [np.full((1, self._layers), staying, np.int8)]
        for level in [level for level in ("host", "input") if level in self._allowed]:
            moving = LEVELS.index(level)
            parked = sum(self.memory.layer(0)[moving].parked)
            for tables in range(3):
                room = max(self._host_budget - tables * self.memory.embedding_bytes, 0)
                counts = np.zeros((1, len(LEVELS)), np.int16)
                counts[0, moving] = min(self._layers, int(room // parked))
                counts[0, staying] = self._layers - counts[0, moving]
                found += [arranged(counts, clear) for clear in _THOROUGH.clear]
        return np.vstack(found)

    def _solve_pinned(self, choices: list[Pieces], budget: float) -> MemoryPlan | None:
        assert self._pinned is not None
        levels = of_levels(self._pinned)
        fitting = [pieces for pieces in choices if self._fits(levels, pieces, budget)[0]]
        if not fitting:
            return None
        return _plan(levels[0], min(fitting, key=lambda pieces: float(self._speed.seconds([(levels, pieces)])[0])))

    def _search(self, choices: list[Pieces], budget: float) -> _Found | None:
        """The best of all mixes with all pieces, looked at in the order of how fast they nearly are."""
        counts = mixes(self._layers, self._allowed, self._effort.net)
        real = counts.astype(np.float64)
        times, which, places = [], [], []
        for number, pieces in enumerate(choices):
            fits = self.memory.least_totals(real, pieces) <= budget
            fits &= self.memory.least_host_bytes(real, pieces) <= self._host_budget
            able = np.flatnonzero(fits)
            times.append(self._speed.nearly(real[able], pieces))
            which.append(np.full(len(able), number))
            places.append(able)
        time, choice, mix = (np.concatenate(parts) for parts in (times, which, places))
        order = np.argsort(time, kind="stable")
        best: _Found | None = None
        walked = self._effort.walked
        for first in range(0, len(order), walked):
            chosen = order[first : first + walked]
            enough = self._effort is _QUICK or first >= _ROUNDS * walked
            if best and (enough or time[chosen[0]] >= best.seconds):
                break
            own = [(counts[mix[chosen[choice[chosen] == one]]], choices[one]) for one in np.unique(choice[chosen])]
            best = self._walk(own, budget, best.seconds if best else np.inf) or best
        return best

    def _walk(self, tried: Sequence[tuple[Counts, Pieces]], budget: float, limit: float) -> _Found | None:
        """The fastest of some mixes that fits, walked through layer by layer; None where none is under the limit."""
        plans = []
        for counts, pieces in tried:
            moves = counts[:, [LEVELS.index(level) for level in MOVING]].any(axis=1)
            clears = self._effort.clear[1:] if moves.any() else ()
            levels = np.vstack([arranged(counts, 0), *(arranged(counts[moves], clear) for clear in clears)])
            plans.append((levels[self._fits(levels, pieces, budget)], pieces))
        seconds = self._speed.seconds(plans)
        if not len(seconds) or seconds.min() >= limit:
            return None
        place = int(np.argmin(seconds))
        for levels, pieces in plans:
            if place < len(levels):
                return _Found(float(seconds.min()), levels[place : place + 1], pieces)
            place -= len(levels)
        raise AssertionError

    def _fits(self, levels: Levels, pieces: Pieces, budget: float) -> Bytes:
        """Whether plans fit, on the device and on the host."""
        fits = self.memory.totals(levels, pieces) <= budget
        if self._pinned is None:
            fits &= self._host(levels, pieces) <= self._host_budget
        return np.asarray(fits)

    def _host(self, levels: Levels, pieces: Pieces) -> Bytes:
        return self.memory.host_bytes(levels, pieces)

    def _choices(self) -> Iterator[Pieces]:
        """What may be done in pieces, from the fastest on."""
        run, pinned = self._run, self._run.recipe.memory
        rows, supervised = run.largest.static_rows, min(run.largest.supervised, run.largest.static_rows)
        tiles = [pinned.mlp_rows] if pinned.mlp_rows else [0, *_tiles(rows)]
        heads = [min(pinned.head_rows, rows)] if pinned.head_rows else _heads(supervised, cuda=run.cuda)
        for away in self._tables():
            for mlp_rows in tiles:
                least = self.memory.least_workspace(mlp_rows)
                for head in heads:
                    pieces = Pieces(mlp_rows, head, *away)
                    yield pieces
                    if self.memory.head_bytes(pieces) <= least:
                        break  # a smaller one would take time and save nothing

    def _tables(self) -> list[tuple[bool, bool]]:
        """Whether embeddings and head may be in host memory."""
        count = self._host_budget // self.memory.embedding_bytes if self._run.cuda else 0
        if self._run.spec.tied_embeddings:
            return [(False, False), (True, True)][: 1 + min(int(count), 1)]
        return [(False, False), (True, False), (True, True)][: 1 + min(int(count), 2)]


def of_levels(levels: Iterable[Level]) -> Levels:
    """Levels by layer, as they are counted with."""
    return np.array([[LEVELS.index(level) for level in levels]], dtype=np.int8)


def _plan(levels: Levels, pieces: Pieces) -> MemoryPlan:
    return MemoryPlan(
        layers=tuple(LEVELS[level] for level in levels),
        mlp_rows=pieces.mlp_rows,
        head_rows=pieces.head_rows,
        embedding_on_host=pieces.embedding_on_host,
        head_on_host=pieces.head_on_host,
    )


def _counted(levels: Levels) -> Counts:
    return np.array([[int((levels == level).sum()) for level in range(len(LEVELS))]], dtype=np.int16)


def _allowed(run: FastRun, *, moving: bool) -> tuple[Level, ...]:
    """Levels that the search may give, from the fastest on."""
    allowed = _AUTO_GPU if run.cuda else _AUTO_CPU
    if run.recipe.train.recompute:
        allowed = tuple(level for level in allowed if level in {"attention", "host", "input"})
    if not moving:
        allowed = tuple(level for level in allowed if level not in MOVING)
    if not run.spec.qk_norm:  # the same as "products" there
        allowed = tuple(level for level in allowed if level != "rotated")
    return allowed


def _tiles(rows: int) -> list[int]:
    """Tiles of the feed-forward that are of use, the largest first."""
    sizes = []
    size = _LEAST_TILE
    while size < rows:
        sizes.append(size)
        size *= 2
    return sizes[::-1]


def _heads(supervised: int, *, cuda: bool) -> list[int]:
    """Chunks of the head, the largest first."""
    divided = _HEAD_DIVIDED if cuda else _HEAD_DIVIDED[:1]
    return list(dict.fromkeys(head_rows(supervised, cuda=cuda, divided=times) for times in divided))
