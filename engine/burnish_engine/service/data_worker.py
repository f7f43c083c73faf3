"""Process that reads datasets and model folders: `python -m burnish_engine.service.data_worker`.

Tokenizers come with transformers, and transformers loads torch; the server itself loads neither. The last dataset is
kept in memory, so that browsing its rows costs nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.channel.job import Job
from burnish_engine.channel.worker import work
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.serve.data_requests import ColumnsRequest, EstimateRequest, InspectRequest, PreviewRequest
from burnish_engine.contract.serve.duel_requests import PlanDuelRequest, StartDuelRequest
from burnish_engine.contract.serve.export_requests import ForecastRequest, HandOverRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import ModelRequest
from burnish_engine.contract.serve.replies import Preview
from burnish_engine.service.model_facts import model_facts
from burnish_engine.service.recipes import data_key, read_recipe_text

if TYPE_CHECKING:
    from burnish_engine.data.prepare import PreparedDataset
    from burnish_engine.duel.prepare import DuelForecast

_WAIT_S = 0.1


@dataclass(frozen=True)
class _CachedDataset:
    exact_key: str
    loose_key: str
    prepared: PreparedDataset
    tokenizer: Any

    def key(self, *, packing: bool) -> str:
        """Key of its inputs, with or without how rows are packed."""
        return self.exact_key if packing else self.loose_key


class _DataRequests:
    def __init__(self) -> None:
        self._turn = threading.Lock()  # one dataset in memory at a time
        self._kept: _CachedDataset | None = None

    def model(self, request: ModelRequest, _job: Job) -> Result:
        """Describe a model folder; unpacks the embedded one."""
        return Result(id=request.id, model=model_facts(request.path))

    def estimate(self, request: EstimateRequest, _job: Job) -> Result:
        """Plan for a model whose folder cannot be judged without transformers."""
        recipe = read_recipe_text(request.recipe)
        kept = self._kept
        known = kept is not None and kept.loose_key == data_key(recipe, packing=False)
        dataset = kept.prepared.facts if kept and known else request.dataset
        return Result(id=request.id, plan=plan_recipe(recipe, dataset=dataset))

    def inspect(self, request: InspectRequest, job: Job) -> Result:
        """Inspect a dataset."""
        recipe = read_recipe_text(request.recipe)
        return Result(id=request.id, dataset=self._prepared(recipe, job).prepared.facts)

    def columns(self, request: ColumnsRequest, _job: Job) -> Result:
        """List the meanings that the columns of the first file can have."""
        from burnish_engine.service.data_columns import file_columns

        return Result(id=request.id, columns=file_columns(read_recipe_text(request.recipe).data))

    def preview(self, request: PreviewRequest, job: Job) -> Result:
        """Render one row as it would be trained on."""
        from burnish_engine.data.report.describe import example_pieces
        from burnish_engine.service.token_pieces import token_pieces

        kept = self._prepared(read_recipe_text(request.recipe), job, packing=False)
        rows = kept.prepared.train
        if request.row > len(rows):
            raise UsageError(f"Row {request.row} was asked for; {len(rows)} are used.", f"Give 1 to {len(rows)}.")
        document = rows[request.row - 1]
        preview = Preview(
            row=request.row,
            rows=len(rows),
            tokens=len(document),
            pieces=(token_pieces if request.tokens else example_pieces)(document, kept.tokenizer),
            source=f"{document.file}, row {document.row}",
        )
        return Result(id=request.id, preview=preview)

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
        from burnish_engine.duel.prepare import forecast_recipes
        from burnish_engine.duel.sides.spec import duel_options

        recipes = [read_recipe_text(side.recipe) for side in request.sides]
        options = duel_options(seeds=request.seeds, factors=request.factors, anyway=request.anyway)
        files = [f"{letter}.toml" for letter in "abcdefgh"[: len(recipes)]]
        command = " ".join(
            ["burnish duel", *(f"recipes/{file}" for file in files), f"--seeds {request.seeds}",
             f"--factors {','.join(f'{factor:g}' for factor in request.factors)}",
             *(["--anyway"] if request.anyway else [])]
        )  # fmt: skip
        names = [side.name for side in request.sides]
        if len(set(names)) < len(names):
            names = [f"{name} {file[0].upper()}" for name, file in zip(names, files, strict=True)]
        return forecast_recipes(recipes, names, files, options, command, progress=job.progress)

    def _prepared(self, recipe: Recipe, job: Job, *, packing: bool = True) -> _CachedDataset:
        from burnish_engine.data.prepare import inspect_dataset
        from burnish_engine.models.checkpoint.source import open_model
        from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

        while not self._turn.acquire(timeout=_WAIT_S):
            job.check()
        try:
            key = data_key(recipe, packing=packing)
            if self._kept is None or self._kept.key(packing=packing) != key:
                self._kept = None
                job.progress("Reading the model's tokenizer", 0, 0)
                tokenizer = load_tokenizer(open_model(recipe.model.path))
                prepared = inspect_dataset(recipe, tokenizer, progress=job.progress)
                self._kept = _CachedDataset(data_key(recipe), data_key(recipe, packing=False), prepared, tokenizer)
            return self._kept
        finally:
            self._turn.release()


if __name__ == "__main__":
    data = _DataRequests()
    work(
        {
            "model": data.model,
            "estimate": data.estimate,
            "inspect": data.inspect,
            "columns": data.columns,
            "preview": data.preview,
            "forecast": data.forecast,
            "hand_over": data.hand_over,
            "plan_duel": data.plan_duel,
            "start_duel": data.start_duel,
        }
    )
