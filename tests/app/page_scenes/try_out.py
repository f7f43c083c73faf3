"""Scenes of Try it."""

import sys
from pathlib import Path

from app.page_scenes.answers import failure, result, run_folder
from app.page_scenes.screenshots import scene

from burnish_app.engine.client_there import ClientThere
from burnish_app.state.questions import ChatQuestion
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.facts.votes import VoteCount
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.replies import Reply

QUESTION = "My parcel has not moved for six days. What can I do?"
BASE = (
    "I'm sorry to hear that your parcel has not moved for six days. There are several things that you could try. "
    "First, you could try to contact the company that"
)
TUNED = (
    "Cause: It waits at the depot for a customs paper.\nFix: Send the invoice to the carrier and ask for a trace.\n"
    "Check: The status changes within one working day."
)


@scene("try_out-empty")
def try_out_empty(window):
    window.page("try_out").shown()


def _ask(window):
    window.bench.set_run(run_folder())
    page = window.page("try_out")
    page.shown()
    page.prompt.setPlainText(QUESTION)
    page.send()
    return page


@scene("try_out-busy")
def try_out_busy(window):
    page = _ask(window)
    page.left.stream(BASE)
    page.left._flush()


def _reply(page, pane, text, tokens, seconds, first, name, waited=""):
    request = next(request for request, asked in page.answering.open.items() if asked is pane)
    page.answering._answered(
        request,
        result(
            reply=Reply(
                text=text, stopped=tokens < 100, tokens=tokens, seconds=seconds, name=name, first_token_s=first,
                waited=waited,
            )
        ),
    )  # fmt: skip


def _both(page):
    _reply(page, page.left, BASE, 120, 2.1, 0.31, "Qwen3 0.6B")
    _reply(page, page.right, TUNED, 44, 0.9, 0.12, "Qwen3 0.6B + support-desk")


@scene("try_out-done")
def try_out_done(window):
    page = _ask(window)
    _both(page)
    page.sampling.fold.click()


@scene("try_out-three")
def try_out_three(window):
    """Three models answer a held-out row, whose wanted reply stands beside them."""
    names = ("support-desk-Q8_0.gguf", "support-desk-Q4_K_M.gguf")
    window.bench.set_run(run_folder(names))
    page = window.page("try_out")
    page.shown()
    rows = [
        ChatQuestion((ChatMessage(role="user", content=text),), TUNED)
        for text in (QUESTION, "It broke.", "Where is it?")
    ]
    page.questions.show_rows(window.bench.run, rows)
    page.questions.source.button("rows").click()
    page.count.button("3").click()
    page.middle.choose("tuned")
    page.right.choose(names[1])
    page.send()
    _reply(page, page.left, BASE, 120, 2.1, 0.31, "Qwen3 0.6B")
    _reply(page, page.middle, TUNED, 44, 0.9, 0.12, "Qwen3 0.6B + support-desk")
    _reply(page, page.right, TUNED, 43, 1.4, 0.2, names[1], "they do not fit into memory together")


@scene("try_out-again")
def try_out_again(window):
    """The tuned model was asked once more by itself."""
    page = _ask(window)
    _both(page)
    page.right.again.click()
    _reply(page, page.right, "Cause: A customs paper is missing.", 9, 0.2, 0.12, "Qwen3 0.6B + support-desk")


@scene("try_out-there")
def try_out_there(window):
    """A run that was stopped at another machine answers there, where its base model lies; it is being reached."""
    folder = run_folder()
    job = RemoteJob(where="ssh:office", id="7", folder="/home/ada/.burnish/jobs/x")
    Path(folder, "remote.json").write_text(job.model_dump_json(), encoding="utf-8")
    Path(folder, "state.json").write_text(RunStateFile(run="x", status="stopped").model_dump_json(), encoding="utf-8")
    window.bench.set_run(folder)
    page = window.page("try_out")
    page.shown()
    page.left.choose("base-there")
    page.right.choose("tuned-there")
    others = page.answering._there._others  # its engine is being reached all the time
    others["ssh:office"] = ClientThere("ssh:office", (sys.executable, "-c", "input()"), page.answering._there)
    page.prompt.setPlainText(QUESTION)
    page.send()
    page.answering._connecting("ssh:office", "Starting the engine of ssh:office")


@scene("try_out-blind")
def try_out_blind(window):
    """A blind vote: replies are there, who wrote them is not said."""
    window.bench.set_run(run_folder())
    page = window.page("try_out")
    page.shown()
    page.blind.setChecked(True)
    page.prompt.setPlainText(QUESTION)
    page.send()
    _both(page)


@scene("try_out-voted")
def try_out_voted(window):
    try_out_blind(window)
    page = window.page("try_out")
    page._vote(0)
    page._voted(result(votes=VoteCount(votes=8, wins={"tuned": 5, "base": 1}, equal=2)))


@scene("try_out-failed")
def try_out_failed(window):
    page = _ask(window)
    for name in list(page.answering.open):
        page.answering.fail(name, failure("It needs 3.1 GiB, 0.8 GiB are free.", "Free memory."))
