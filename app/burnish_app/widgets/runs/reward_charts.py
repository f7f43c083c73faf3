"""The charts of what a run earns with its own replies: reward, its parts, length, entropy, divergence and the like."""

from __future__ import annotations

from collections.abc import Callable

from burnish_app.curves.reward_curves import RewardCurves
from burnish_app.curves.ticks import TickText
from burnish_app.look.language import tr
from burnish_app.recipe.rewards import reward_name
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.recipe.recipe_reinforce import MOST_REWARDS


class RewardCharts:
    """Makes and draws the charts.

    Args:
        chart: function that makes a chart, as `LinkedCharts` does.
        value_text: function that formats a reward.
        tick_text: function that formats a tick.

    Attributes:
        charts: charts in order.
    """

    def __init__(self, chart: Callable[..., Chart], value_text: Callable[[float], str], tick_text: TickText) -> None:
        step = ChartLine(tr("each step"))
        small = {"small": True, "tick_text": tick_text}
        share = {"unit": "%", "from_zero": True, "small": True}
        self.reward = chart(tr("Reward"), {"reward": step}, value_text, tick_text=tick_text, smooth="reward")
        parts = {f"part{place}": ChartLine("", place) for place in range(MOST_REWARDS)}
        self.parts = chart(tr("Rewards, each"), parts, value_text, tick_text=tick_text)
        self.length = chart(tr("Length"), {"length": step}, value_text, unit=tr("tokens"), from_zero=True, **small)
        self.entropy = chart(tr("Entropy"), {"entropy": step}, value_text, unit=tr("nats"), from_zero=True, **small)
        self.kl = chart(tr("Distance"), {"kl": step}, value_text, unit=tr("nats"), from_zero=True, **small)
        self.lost = chart(
            tr("Nothing learned"),
            {"equal": ChartLine(tr("groups all equal")), "cut": ChartLine(tr("replies cut"), 1)},
            lambda value: f"{value:.0f} %",
            **share,
        )
        self.writing = chart(tr("Writing"), {"writing": step}, count_text, unit=tr("tokens/s"), from_zero=True, **small)
        self.charts = (self.reward, self.parts, self.length, self.entropy, self.kl, self.lost, self.writing)

    def draw(self, found: RewardCurves) -> set[Chart]:
        """Draw the curves, and return the charts that have any."""
        names = list(found.parts)[:MOST_REWARDS]
        self.parts.name_lines({f"part{place}": reward_name(name) for place, name in enumerate(names)})
        shown = {
            self.reward: {"reward": found.reward},
            self.parts: {f"part{place}": found.parts[name] for place, name in enumerate(names)},
            self.length: {"length": found.length},
            self.entropy: {"entropy": found.entropy},
            self.kl: {"kl": found.kl},
            self.lost: {"equal": found.equal, "cut": found.cut},
            self.writing: {"writing": found.writing},
        }
        for chart, curves in shown.items():
            chart.set_curves(curves)
        known = {chart for chart, curves in shown.items() if any(map(len, curves.values()))}
        return known if len(names) > 1 else known - {self.parts}
