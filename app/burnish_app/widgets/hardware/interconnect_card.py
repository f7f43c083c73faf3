"""The card of the connections between several GPUs: the graph, the chosen connection, and the settings that follow."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import Value, body, caption, mono
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.hardware.link_graph import LinkGraph
from burnish_app.wording.machine_text import edge_text, link_text, settings_figures
from burnish_engine.contract.facts.machine import EdgeFacts, MachineFacts, ParallelSettings


class InterconnectCard(Card):
    """Shows how the GPUs of a machine are connected, and how a run would use them.

    Args:
        machine: facts of the machine, with its graph.
        settings: settings that follow from it; None: not known yet.
    """

    def __init__(self, machine: MachineFacts, settings: ParallelSettings | None) -> None:
        super().__init__(tr("Between the GPUs"))
        self._links = {(link.first, link.second): link for link in machine.links}
        self.graph = LinkGraph(machine.gpus, machine.edges)
        self.detail, self.path = body(""), caption("")
        self.graph.chosen.connect(self._show)
        fill(self.body, self.graph, self.detail, self.path)
        if self.graph.chosen_edge is not None:
            self._show(self.graph.chosen_edge)
        if machine.all_reduce_gb_s:
            text = tr("All together: a measured all-reduce of {rate:.0f} GB/s.")
            self.body.addWidget(body(text.format(rate=machine.all_reduce_gb_s)))
        elif not any(edge.measured for edge in machine.edges):
            self.body.addWidget(caption(tr("Rates are expected ones; Check again measures them.")))
        if settings is not None:
            self._add_settings(settings)

    def _show(self, edge: EdgeFacts) -> None:
        """Show the chosen connection."""
        self.detail.setText(edge_text(edge))
        link = self._links.get((edge.first, edge.second))
        self.path.setText(link_text(link) if link else "")
        self.path.setVisible(link is not None)

    def _add_settings(self, settings: ParallelSettings) -> None:
        """Show the settings as figures, and the reason for each."""
        figures = []
        for name, figure, unit in settings_figures(settings):
            value = Value(name, unit, large=False)
            value.set(figure)
            figures.append(value)
        line = columns_layout(figures, 4 * UNIT)
        line.setContentsMargins(0, UNIT, 0, 0)
        self.body.addLayout(line)
        for reason in settings.reasons:
            self.body.addWidget(body(reason, "muted"))
        if settings.torchrun:
            fill(self.body, caption(tr("The same run, started by plain torchrun:")), mono(settings.torchrun))
