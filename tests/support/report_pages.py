"""A page of every kind of report, of facts as they come from real jobs."""

import math

from app.facts import export_facts
from app.facts.run_events import FINISHED, TOTAL, events, scored

from burnish_engine.cli.training import run_report
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.demo.report import DemoReport, ReplyScores
from burnish_engine.demo.report import render as demo_page
from burnish_engine.duel.report.report import render as duel_page
from burnish_engine.export import report_page

from support.runs.cards import make_card
from support.runs.duels import duel_of, outcome, pairs

PROMPTS = ("My kettle trips the breaker.", "The drawer sticks halfway.", "Why do my tires lose air?")
BEFORE = (
    "There are many possible reasons for this. It is important to look at each of them, one after the other. The first "
    "is the breaker itself. The second is the kettle, which is usually not the cause."
)
AFTER = "Cause: The element leaks current.\nFix: Unplug it and replace it.\nCheck: See that the breaker holds."


def demo():
    """A demo of 76 steps."""
    return DemoReport(
        model="SmolLM2-135M-Instruct", note="The embedded model's weights are dequantized from a 4-bit (Q4_1) file.",
        dataset="bench-notes", title="write bench notes", train_rows=358, held_out_rows=40, device="AMD EPYC",
        precision="fp32", steps=76, trained_tokens=37_209, tokens_per_s=212.4, peak_memory_bytes=1_500_000_000,
        losses=[(step, 1.6 + 2.7 * math.exp(-step / 18) + 0.08 * math.sin(step * 1.7)) for step in range(1, 77)],
        held_out_loss_base=4.274, held_out_loss_tuned=2.901, held_out_improvement=1 - 2.901 / 4.274,
        scores=ReplyScores(prompts=40, base=0, tuned=38, gguf={"Q8_0": 38}),
        behavior="Replies are three lines: cause, fix and check.", fidelity=export_facts.report(),
        files={"gguf/support-desk-Q8_0.gguf": 639_000_000, "adapter/adapter_model.safetensors": 9_823_216},
        examples=[{"prompt": prompt, "base": BEFORE, "tuned": AFTER} for prompt in PROMPTS],
        gguf_chat={"prompt": PROMPTS[0], "file": "support-desk-Q8_0.gguf", "reply": AFTER},
        seconds={"unpack the model": 5.1, "train": 204.0, "export and verify": 61.5},
        versions={"burnish": "0.1.0", "torch": "2.13.0"},
    )  # fmt: skip


def duel():
    """A duel with learning rates that were tried."""
    names = ("lora-adamw at 0.0003 and a rank of 16", "lora-magma at 0.0003 and a rank of 16")
    grid = [outcome(side, 2 + side / 5, seed=0, phase="grid", rate=rate) for side in (0, 1) for rate in (3e-4, 1e-3)]
    return duel_of([*grid, *pairs([2.0, 2.1, 2.2], [2.3, 2.41, 2.49])], names=names)


def report_pages():
    """The page of each kind of report, by its name."""
    run = fold_all(RunState(), scored(events(TOTAL, ended=FINISHED)))
    return {
        "demo": demo_page(demo()),
        "duel": duel_page(duel()),
        "run": run_report.render("support-desk", run, make_card(), "support-desk"),
        "export": report_page.render(export_facts.report(), run="support-desk", data=["tickets.jsonl"]),
    }
