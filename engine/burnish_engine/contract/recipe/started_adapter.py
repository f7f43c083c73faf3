"""The adapter section of a run that goes on from a saved adapter: what a recipe could say of it, and what it trains."""

from __future__ import annotations

import math

from burnish_engine.contract.facts.coverage import BeyondLayers
from burnish_engine.contract.recipe.recipe_train import AdapterSection


class StartedSection(AdapterSection):
    """An adapter section that a saved adapter's files decide. It is never written: recipes name the adapter alone.

    Attributes:
        folder: folder of the adapter's two files.
        shapes: shape of every tensor that is trained.
        modules: paths of the modules in which tensors are trained, in the model.
        beyond: what is trained beyond the layers' matrices.
        whole_matrix: a layer's matrix that is trained itself, which 4-bit weights do not allow; empty: there is none.
        obstacle: why the fast engine does not train it, completing "The adapter ..."; empty where it does.
    """

    folder: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    modules: tuple[str, ...] = ()
    beyond: tuple[BeyondLayers, ...] = ()
    whole_matrix: str = ""
    obstacle: str = ""

    @property
    def weights(self) -> int:
        """Number of trained weights."""
        return sum(map(math.prod, self.shapes))
