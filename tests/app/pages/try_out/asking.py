"""The page Try it, asked and read as a person does."""

ROWS = [[{"role": "user", "content": f"Row {n}?"}, {"role": "assistant", "content": f"Wanted {n}."}] for n in range(3)]
"""Held-out rows."""


def page_of(window):
    window.go_to("try_out")
    return window.page("try_out")


def ask(page, text="Hi"):
    page.prompt.setPlainText(text)
    page.primary.click()


def reply(text):
    return {"type": "result", "reply": {"text": text, "stopped": True, "tokens": 8, "seconds": 2.0, "name": "SmolLM2"}}


def facts(pane):
    """Return what stands below a reply, with usual spaces."""
    return pane.state.text().replace("\N{NO-BREAK SPACE}", " ")
