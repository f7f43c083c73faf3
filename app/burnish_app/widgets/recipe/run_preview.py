"""The card that sums up the run to be started: model, data, steps and rate."""

from __future__ import annotations

from pathlib import Path

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import FactLine
from burnish_app.wording.numbers import decimal_text, plural
from burnish_app.wording.plain_words import model_text
from burnish_engine.contract.facts.advice import ModelFacts
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe

_NAME_PX = 96


class RunPreview(Card):
    """Shows what will be trained on what, and how many tokens a step takes."""

    def __init__(self) -> None:
        super().__init__(tr("The run"), icon_name="train")
        self.body.setSpacing(UNIT // 2)
        names = {
            "model": tr("Model"),
            "data": tr("Data"),
            "method": tr("Method"),
            "batch": tr("Batch"),
            "rate": tr("Learning rate"),
        }
        self._lines = {key: FactLine(name, name_px=_NAME_PX) for key, name in names.items()}
        for line in self._lines.values():
            self.body.addWidget(line)

    def show_recipe(self, recipe: Recipe, model: ModelFacts | None, dataset: DatasetFacts | None) -> None:
        """Show a recipe.

        Args:
            recipe: recipe to be trained.
            model: facts about its model; None: not known yet.
            dataset: facts about its data; None: not known yet.
        """
        train, adapter = recipe.train, recipe.adapter
        name = model.name if model is not None else model_text(recipe.model.path)
        files = [Path(file).name for file in recipe.data.files]
        rows = f" ({plural(dataset.train_rows, 'row')})" if dataset is not None else ""
        data = files[0] if len(files) == 1 else plural(len(files), "file")
        storage = {"nf4": tr("QLoRA, 4 bits"), "fp8": tr("LoRA, 8 bits")}
        quantized = storage.get(recipe.model.quantize, tr("LoRA, 16 bits"))
        method = (
            tr("every weight")
            if adapter.method == "full"
            else tr("{quantized}, continues from {name}").format(quantized=quantized, name=Path(adapter.start).name)
            if adapter.start  # it has a rank of its own
            else tr("{quantized}, rank {rank}").format(quantized=quantized, rank=adapter.rank)
        )
        step = train.micro_batch_tokens * train.accumulation
        texts = {
            "model": name,
            "data": f"{data}{rows}" if files else tr("none yet"),
            "method": method,
            "batch": tr("{micro_batch_tokens:,} × {accumulation} = {step:,} tokens a step").format(
                micro_batch_tokens=train.micro_batch_tokens, accumulation=train.accumulation, step=step
            ),
            "rate": decimal_text(train.learning_rate),
        }
        for key, text in texts.items():
            self._lines[key].set_text(text)
