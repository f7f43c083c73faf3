"""Main loop that the server's worker processes share."""

from __future__ import annotations

import os
from collections.abc import Mapping

from burnish_engine.channel.server import Handler, LineServer
from burnish_engine.channel.stdio import take_stdio
from burnish_engine.contract.garbage import collect_seldom


def work(handlers: Mapping[str, Handler]) -> None:
    """Answer requests from standard input until it closes, then end the process, even with running threads."""
    collect_seldom()
    source, target = take_stdio()
    LineServer(target).serve(source, handlers)
    os._exit(0)
