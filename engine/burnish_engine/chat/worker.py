"""Process that holds the chat model: `python -m burnish_engine.chat.worker`.

It is separate from the server because models are large, and because llama.cpp may end its process over a damaged file.
It uses the server's own protocol and knows the method `chat`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing

from burnish_engine.channel.job import Job
from burnish_engine.channel.server import Handler
from burnish_engine.channel.worker import work
from burnish_engine.chat.model_cache import ModelCache
from burnish_engine.chat.target import find_target
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import ChatRequest
from burnish_engine.contract.serve.replies import Reply
from burnish_engine.models.generation.sampling import Sampling

_WAIT_S = 0.1


class _ChatRequests:
    def __init__(self) -> None:
        self._models = ModelCache()
        self._turn = threading.Lock()  # one reply at a time: a model belongs to one thread

    def chat(self, request: ChatRequest, job: Job) -> Result:
        """Stream a reply."""
        while not self._turn.acquire(timeout=_WAIT_S):
            job.check()
        try:
            return self._reply(request, job)
        except BurnishError:
            raise
        except BaseException:  # out of memory, for example: the loaded model may be broken, and takes up the memory
            self._models.clear()
            raise
        finally:
            self._turn.release()

    def _reply(self, request: ChatRequest, job: Job) -> Result:
        job.check()
        backend, name = self._models.get(find_target(request.target, request.variant))
        options = request.options
        sampling = Sampling(**options.model_dump())
        messages = [message.model_dump() for message in request.messages]
        began, text, first_s = time.perf_counter(), "", None
        with closing(backend.stream(messages, sampling)) as stream:
            job.check()  # loading may have taken long: the request may have been canceled meanwhile
            for piece in stream:
                if first_s is None:
                    first_s = time.perf_counter() - began
                text += piece
                job.piece(piece)
            reply = Reply(
                text=text,
                stopped=stream.stopped,
                tokens=stream.tokens,
                seconds=time.perf_counter() - began,
                name=name,
                first_token_s=first_s,
            )
        return Result(id=request.id, reply=reply)


def handlers() -> Mapping[str, Handler]:
    """Return the function that answers each method."""
    return {"chat": _ChatRequests().chat}


if __name__ == "__main__":
    work(handlers())
