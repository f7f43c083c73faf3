"""`burnish serve`: one long-lived process for a window's questions. It loads no torch; its workers may.

Runs and exports are started apart from it and outlive it. When its client closes the line, or dies, it ends.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping

from burnish_engine.channel.child import Child
from burnish_engine.channel.log import log
from burnish_engine.channel.server import Handler, LineServer
from burnish_engine.channel.stdio import take_stdio
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.protocol import Hello
from burnish_engine.contract.version import burnish_version


def serve() -> None:
    """Answer requests from standard input until it closes. Ends the process."""
    source, target = take_stdio()
    server = LineServer(target)
    server.send(Hello(burnish=burnish_version(), pid=os.getpid()))
    data = Child("burnish_engine.service.data_worker", "data process")
    chat = Child("burnish_engine.chat.worker", "chat process")
    code, words = ExitCode.DONE, ""
    try:
        server.serve(source, _handlers(data, chat))
    except KeyboardInterrupt:
        words = "Stopped.\n"
    except BaseException:  # noqa: BLE001  below the process is ended at once: nobody else would tell it
        code, words = ExitCode.BUG, traceback.format_exc()
        log(words)
    data.close()
    chat.close()
    if sys.stderr is not None:  # on Windows a program without a console may have none
        sys.stderr.write(words)
        sys.stderr.flush()
    os._exit(code)  # a handler that is inside a library must not hold the process up


def _handlers(data: Child, chat: Child) -> Mapping[str, Handler]:
    from burnish_engine.service.advice_requests import AdviceRequests
    from burnish_engine.service.live_requests import LiveRequests
    from burnish_engine.service.machine import Machine
    from burnish_engine.service.plans import Plans
    from burnish_engine.service.run_requests import RunRequests

    machine = Machine()
    plans = Plans(machine, data)
    live, runs = LiveRequests(machine, plans, data, chat), RunRequests(plans, chat, data)
    advice = AdviceRequests(machine, plans, data)
    return {
        "doctor": live.doctor,
        "machine": live.machine,
        "model": live.model,
        "models": advice.models,
        "what_fits": advice.what_fits,
        "suggest": advice.suggest,
        "fetch": live.fetch,
        "inspect": live.inspect,
        "columns": live.columns,
        "preview": live.preview,
        "estimate": plans.estimate,
        "chat": live.chat,
        "free": live.free,
        "runs": runs.runs,
        "start": runs.start,
        "resume": runs.resume,
        "command": runs.command,
        "delete": runs.delete,
        "forecast": runs.forecast,
        "export": runs.export,
        "cancel_export": runs.cancel_export,
    }
