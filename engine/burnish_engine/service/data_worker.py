"""Process that reads datasets and model folders: `python -m burnish_engine.service.data_worker`.

Tokenizers come with transformers, and transformers loads torch; the server itself loads neither. The last dataset is
kept in memory, so that browsing its rows costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.channel.job import Job
from burnish_engine.channel.server import Handler
from burnish_engine.channel.worker import work
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.serve.data_requests import (
    ColumnsRequest,
    EstimateRequest,
    InspectRequest,
    PreviewRequest,
    RowsRequest,
)
from burnish_engine.contract.serve.duel_requests import PlanDuelRequest, StartDuelRequest
from burnish_engine.contract.serve.export_requests import ForecastRequest, HandOverRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import ModelRequest
from burnish_engine.service.model_facts import model_facts
from burnish_engine.service.recipes import data_key, model_key, read_recipe_text

if TYPE_CHECKING:
    from burnish_engine.data.prepare import PreparedDataset
    from burnish_engine.duel.prepare import DuelForecast
    from burnish_engine.service.data_rows import RowReader

_WAIT_S = 0.1


@dataclass(frozen=True)
class _CachedDataset:
    exact_key: str
    loose_key: str
    prepared: PreparedDataset


class _DataRequests:
    def __init__(self) -> None:
        self._turn = threading.Lock()  # one dataset in memory at a time
        self._kept: _CachedDataset | None = None
        self._rows_turn = threading.Lock()
        self._reader: RowReader | None = None
        self._last_tokenizer: tuple[str, Any] | None = None

    def model(self, request: ModelRequest, _job: Job) -> Result:
        """Describe a model folder; unpacks the embedded one."""
        return Result(id=request.id, model=model_facts(request.path))

    def estimate(self, request: EstimateRequest, _job: Job) -> Result:
        """Plan for a model whose folder cannot be judged without transformers."""
        recipe = read_recipe_text(request.recipe)
        kept = self._kept
        known = kept is not None and kept.loose_key == data_key(recipe, packing=False)
        dataset = kept.prepared.facts if kept and known else request.dataset
        return Result(id=request.id, plan=plan_recipe(recipe, dataset=dataset, machine=request.machine))

    def inspect(self, request: InspectRequest, job: Job) -> Result:
        """Inspect a dataset."""
        recipe = read_recipe_text(request.recipe)
        return Result(id=request.id, dataset=self._prepared(recipe, job).prepared.facts)

    def columns(self, request: ColumnsRequest, job: Job) -> Result:
        """List the meanings that the columns of a file can have."""
        data = read_recipe_text(request.recipe).data
        with self._reading(job) as reader:
            return Result(id=request.id, columns=reader.columns(data, request.file, job.check))

    def rows(self, request: RowsRequest, job: Job) -> Result:
        """Read some rows of a file as they are in it."""
        data = read_recipe_text(request.recipe).data
        with self._reading(job) as reader:
            if request.places:
                return Result(id=request.id, rows=reader.places(data, request.places, job.check))
            page = reader.page(data, request.file, request.start, request.count, job.check)
            return Result(id=request.id, rows=page)

    def preview(self, request: PreviewRequest, job: Job) -> Result:
        """Render one row as it would be trained on."""
        recipe = read_recipe_text(request.recipe)
        with self._reading(job) as reader:
            tokenizer = self._tokenizer(recipe, job)
            preview = reader.preview(recipe, tokenizer, request.file, request.index, job.check)
            return Result(id=request.id, preview=preview)

    @contextmanager
    def _reading(self, job: Job) -> Iterator[RowReader]:
        """Wait for the turn to read rows; an inspection that is running does not hold them up."""
        while not self._rows_turn.acquire(timeout=_WAIT_S):
            job.check()
        try:
            if self._reader is None:
                from burnish_engine.service.data_rows import RowReader

                self._reader = RowReader()
            yield self._reader
        finally:
            self._rows_turn.release()

    def _tokenizer(self, recipe: Recipe, job: Job) -> Any:
        """Load the tokenizer of the recipe's model, unless it was the last one."""
        from burnish_engine.models.checkpoint.source import open_model
        from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

        key = model_key(recipe)
        kept = self._last_tokenizer
        if kept is None or kept[0] != key:
            job.progress("Reading the model's tokenizer", 0, 0)
            kept = self._last_tokenizer = key, load_tokenizer(open_model(recipe.model.path))
        return kept[1]

    def forecast(self, request: ForecastRequest, _job: Job) -> Result:
        """Predict an export."""
        from burnish_engine.service.export_forecast import export_forecast

        return Result(id=request.id, forecast=export_forecast(request))

    def hand_over(self, request: HandOverRequest, job: Job) -> Result:
        """Give a finished file to a program."""
        from burnish_engine.export.destinations.hand_over import hand_over

        job.progress(f"Giving {request.file} to {request.program}", 0, 0)
        called = hand_over(request.run, request.file, request.program, lambda: job.canceled)
        return Result(id=request.id, detail=called)

    def plan_duel(self, request: PlanDuelRequest, job: Job) -> Result:
        """Forecast a duel."""
        from burnish_engine.duel.report.overview import planned_facts

        return Result(id=request.id, duels=[planned_facts(self._duel(request, job))])

    def start_duel(self, request: StartDuelRequest, job: Job) -> Result:
        """Create the folder of a duel."""
        from burnish_engine.duel.state import create

        found = self._duel(request, job)
        return Result(id=request.id, run=str(create(found.state, found.recipes, None).root))

    def _duel(self, request: PlanDuelRequest | StartDuelRequest, job: Job) -> DuelForecast:
        from burnish_engine.duel.prepare import factor_sides, forecast_recipes
        from burnish_engine.duel.sides.spec import duel_options

        recipes, names = [read_recipe_text(side.recipe) for side in request.sides], [one.name for one in request.sides]
        if request.tried:
            names, recipes = factor_sides(recipes[0], request.tried)
        options = duel_options(seeds=request.seeds, factors=request.factors, anyway=request.anyway)
        files = [f"{chr(ord('a') + place)}.toml" for place in range(len(recipes))]
        command = " ".join(
            ["burnish duel", *(f"recipes/{file}" for file in files), f"--seeds {request.seeds}",
             f"--factors {','.join(f'{factor:g}' for factor in request.factors)}",
             *(["--anyway"] if request.anyway else [])]
        )  # fmt: skip
        if len(set(names)) < len(names):
            names = [f"{name} {file[0].upper()}" for name, file in zip(names, files, strict=True)]
        return forecast_recipes(recipes, names, files, options, command, tried=request.tried, progress=job.progress)

    def _prepared(self, recipe: Recipe, job: Job) -> _CachedDataset:
        from burnish_engine.data.prepare import inspect_dataset

        while not self._turn.acquire(timeout=_WAIT_S):
            job.check()
        try:
            key = data_key(recipe)
            if self._kept is None or self._kept.exact_key != key:
                self._kept = None
                prepared = inspect_dataset(recipe, self._tokenizer(recipe, job), go_on=True, progress=job.progress)
                self._kept = _CachedDataset(key, data_key(recipe, packing=False), prepared)
            return self._kept
        finally:
            self._turn.release()


def handlers() -> Mapping[str, Handler]:
    """Return the function that answers each method."""
    data = _DataRequests()
    return {
        "model": data.model,
        "estimate": data.estimate,
        "inspect": data.inspect,
        "columns": data.columns,
        "rows": data.rows,
        "preview": data.preview,
        "forecast": data.forecast,
        "hand_over": data.hand_over,
        "plan_duel": data.plan_duel,
        "start_duel": data.start_duel,
    }


if __name__ == "__main__":
    work(handlers())
