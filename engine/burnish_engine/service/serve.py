"""Run `burnish serve`: one long-lived process for a window's requests. It loads no torch; its workers may.

Runs and exports are detached processes and outlive it. It ends when its client closes the stream, or dies.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from burnish_engine.channel.child import Child
from burnish_engine.channel.log import log
from burnish_engine.channel.server import Handler, LineServer
from burnish_engine.channel.stdio import take_stdio
from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.contract.paths import downloads_dir
from burnish_engine.contract.serve.messages import Hello
from burnish_engine.contract.version import burnish_version

if TYPE_CHECKING:
    from burnish_engine.chat.chat_pool import ChatPool
    from burnish_engine.service.machine import MachineCache


def serve() -> None:
    """Answer requests from standard input until it closes, then end the process."""
    source, target = take_stdio()
    server = LineServer(target)
    server.send(Hello(burnish=burnish_version(), pid=os.getpid()))
    data = Child("burnish_engine.service.data_worker", "data process")
    from burnish_engine.chat.chat_pool import ChatPool  # after the greeting: nobody waits for these
    from burnish_engine.service.machine import MachineCache

    machine = MachineCache()
    chat = ChatPool(machine.facts)
    code, text = ExitCode.DONE, ""
    try:
        from burnish_engine.runs.jobs.trash import purge_old

        answering = handlers(machine, data, chat)
        for slow in (purge_old, _resume_downloads):  # may take long: nobody waits for it
            threading.Thread(target=slow, name=slow.__name__.strip("_"), daemon=True).start()
        server.serve(source, answering)
    except KeyboardInterrupt:
        text = "Stopped.\n"
    except BaseException:  # noqa: BLE001  below the process is ended at once: nobody else would tell it
        code, text = ExitCode.BUG, traceback.format_exc()
        log(text)
    data.close()
    chat.close()
    if sys.stderr is not None:  # on Windows a program without a console may have none
        sys.stderr.write(text)
        sys.stderr.flush()
    os._exit(code)  # a handler that is inside a library must not keep the process alive


def _resume_downloads() -> None:
    """Start the downloads that a crash or the end of the machine interrupted."""
    if not downloads_dir().is_dir():
        return
    from burnish_engine.hub.download_queue import start_waiting

    with suppress(BurnishError):  # whoever asks for the downloads is told
        start_waiting()


def handlers(machine: MachineCache, data: Child, chat: ChatPool) -> Mapping[str, Handler]:
    """Return the function that answers each method.

    Args:
        machine: source of the machine's facts.
        data: process that reads datasets and model folders.
        chat: processes that hold the chat models.
    """
    from burnish_engine.service.advice_requests import AdviceRequests
    from burnish_engine.service.hardware import stream_hardware
    from burnish_engine.service.live_requests import LiveRequests
    from burnish_engine.service.plans import PlanService
    from burnish_engine.service.run_requests import RunRequests
    from burnish_engine.service.several_requests import SeveralRequests

    def by_data(about: Callable[[Any], str]) -> Handler:
        """Let the data process answer; `about` says of a request what it is about."""
        return lambda request, job: data.ask(request, job, about=about(request))

    plans = PlanService(machine, data)
    live, runs = LiveRequests(machine, plans, data, chat), RunRequests(plans, chat, data)
    several = SeveralRequests(machine, plans, data)
    advice = AdviceRequests(machine, plans, data)
    return {
        "doctor": live.doctor,
        "machine": live.machine,
        "hardware": stream_hardware,
        "model": live.model,
        "models": advice.models,
        "local_models": advice.local_models,
        "search_hub": advice.search_hub,
        "check_files": live.check_files,
        "adapter": live.adapter,
        "downloads": live.downloads,
        "download": live.download,
        "what_fits": advice.capacity,
        "suggest": advice.suggest,
        "fetch": live.fetch,
        "inspect": live.inspect,
        "columns": by_data(lambda _: "the columns of the dataset"),
        "rows": by_data(lambda _: "the rows of the dataset"),
        "preview": by_data(lambda request: f"row {request.index + 1} of the dataset"),
        "estimate": plans.estimate,
        "offers": plans.offers,
        "try_rewards": live.try_rewards,
        "chat": live.chat,
        "free": live.free,
        "runs": runs.runs,
        "start": runs.start,
        "resume": runs.resume,
        "command": runs.command,
        "delete": runs.delete,
        "restore": runs.restore,
        "purge": runs.purge,
        "annotate": runs.annotate,
        "held_out": runs.held_out,
        "vote": runs.vote,
        "compare": runs.compare,
        "stop_bench": runs.stop_bench,
        "plan_sweep": several.plan_sweep,
        "start_sweep": several.start_sweep,
        "sweeps": several.sweeps,
        "plan_duel": by_data(lambda _: "the recipes of the duel"),
        "start_duel": several.start_duel,
        "duels": several.duels,
        "stop_duel": several.stop_duel,
        "resume_duel": several.resume_duel,
        "forecast": by_data(lambda request: f"the export of {request.run}"),
        "export": runs.export,
        "cancel_export": runs.cancel_export,
        "programs": runs.programs,
        "hand_over": by_data(lambda request: request.file),
    }
