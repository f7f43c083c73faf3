"""Runs the process that renders chat templates, which `data.sandbox.render_process` starts with `python -m`.

The process reads requests from its standard input and answers on its standard output until the input ends, which
happens at the latest when the parent ends. It limits its own memory and processor time, so that no template keeps it
running. It imports little, because its own memory counts against the limit.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from datetime import date
from typing import Any, BinaryIO

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.sandbox.compiled import CompiledTemplate, TemplateFaultError
from burnish_engine.data.sandbox.confine import limit_memory
from burnish_engine.data.sandbox.frames import frame, read_body, read_length
from burnish_engine.data.sandbox.limits import BYTES_PER_BYTE, START_BYTES, memory_limit
from burnish_engine.data.templates.whole_rows import WholeRowRenderer

_MOST_TEMPLATES = 8

Answer = dict[str, Any]


class _RequestHandler:
    """Answers the parent's requests, one at a time."""

    def __init__(self) -> None:
        self._templates = OrderedDict[str, CompiledTemplate]()
        self._renderers: dict[tuple[str, str], WholeRowRenderer] = {}

    def answer(self, request: Answer, memory_bytes: int) -> Answer:
        """Answer a request.

        Args:
            request: request in the form that `render_process` describes.
            memory_bytes: memory limit of this process, bytes.
        """
        try:
            template = self._template(request["key"], request["template"])
            template.memory_bytes = memory_bytes
            template.begin()
            try:
                return getattr(self, f"_{request['do']}")(request, template)
            finally:
                template.end()
        except RowError as error:
            return {"row_error": error.reason}
        except TemplateFaultError as error:
            return {"fault": error.what, "hostile": error.hostile}

    def _template(self, key: str, parts: Answer) -> CompiledTemplate:
        found = self._templates.get(key)
        if found is None:
            found = CompiledTemplate(parts["source"], parts["special_tokens"], date.fromisoformat(parts["today"]))
            self._templates[key] = found
        self._templates.move_to_end(key)
        if len(self._templates) > _MOST_TEMPLATES:
            gone, _ = self._templates.popitem(last=False)
            self._renderers = {name: kept for name, kept in self._renderers.items() if name[0] != gone}
        return found

    def _compile(self, _request: Answer, _template: CompiledTemplate) -> Answer:
        return {}

    def _render(self, request: Answer, template: CompiledTemplate) -> Answer:
        prompt, tools = request["add_generation_prompt"], request["tools"]
        return {"text": template.render(request["messages"], add_generation_prompt=prompt, tools=tools)}

    def _rows(self, request: Answer, template: CompiledTemplate) -> Answer:
        options = request["options"]
        name = (request["key"], repr(options))
        renderer = self._renderers.get(name)
        if renderer is None:
            renderer = self._renderers[name] = WholeRowRenderer(template, **options)
        return {"rows": [_rendered(renderer, row) for row in request["rows"]]}


def _rendered(renderer: WholeRowRenderer, given: Sequence[Any]) -> Any:
    """Render one row; return the fields of `RenderedRow`, or a text with the reason why the row cannot be rendered."""
    messages, tools = given
    conversation = Conversation(tuple(Message(*message) for message in messages), None, 0, "", tuple(tools))
    try:
        row = renderer.render(conversation)
    except RowError as error:
        return error.reason
    return row.text, row.spans, row.add_bos, row.add_eos, row.turn_end, row.prompt_differs, row.lost, row.offers


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Report that the process has started, then answer requests until there are no more."""
    child = _RequestHandler()
    answers.write(frame({}))  # it has started
    answers.flush()
    while (length := read_length(requests)) is not None:
        memory_bytes = limit_memory(START_BYTES + BYTES_PER_BYTE * length)
        try:
            data = frame(child.answer(read_body(requests, length), memory_bytes))
        except MemoryError:
            data = frame({"fault": memory_limit(memory_bytes), "hostile": True})
        except Exception:  # noqa: BLE001  # told to the parent, which raises it as a bug
            data = frame({"bug": traceback.format_exc()})
        answers.write(data)
        answers.flush()


def main() -> None:
    """Answer the parent's requests over standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the input
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else writes between the answers
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
