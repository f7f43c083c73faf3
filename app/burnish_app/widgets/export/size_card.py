"""The card with the chart of sizes, and the words below it."""

from __future__ import annotations

from burnish_app.curves.export_points import ExportPoint, limit_text
from burnish_app.look.language import tr
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.export.size_chart import SizeChart
from burnish_engine.contract.recipe.recipe_export import TargetSection


class SizeCard(Card):
    """Shows which type is small, good and fast enough, before one is chosen and after it was made.

    Attributes:
        chart: chart, whose points choose types.
    """

    def __init__(self) -> None:
        hint = tr("Each dot is a type; press it to choose it. Hollow is predicted, filled is measured.")
        super().__init__(tr("Size, gain and speed"), hint, icon_name="scale")
        self.chart = SizeChart()
        self._limit = body("")
        self._legend = caption(tr("Larger dots write faster on this machine's processor."))
        for widget in (self.chart, self._limit, self._legend):
            self.body.addWidget(widget)

    def show_points(self, points: list[ExportPoint], limit_bytes: int, target: TargetSection) -> None:
        """Replace the points.

        Args:
            points: points, smallest file first.
            limit_bytes: largest file that the target runs; 0: not known.
            target: device that the result is for.
        """
        self.chart.show_points(points, limit_bytes)
        text = limit_text(points, limit_bytes, target) if points else ""
        self._limit.setText(text)
        self._limit.setVisible(bool(text))
