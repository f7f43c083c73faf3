"""Text from data cannot steer a terminal, vanish as markup or break a command; a reader that leaves is no failure."""

import errno
import io
import json
import math
import sys

import pytest

from burnish_engine.cli.main import main
from burnish_engine.cli.terminal import Terminal, duration, out, print_json, print_raw, say_error, styled
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.plain_text import one_line, printable
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import EvaluationDone, Warned
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.store import create_run, read_state, write_state

from support.models.tiny import make_llama, write_jsonl

EVIL = "[/bold] [data] [red] :smile: \x1b]0;title\x07\x1b[2J\x9b31m\r\u202e"
SEEN = "[/bold] [data] [red] :smile: \\x1b]0;title\\x07\\x1b[2J\\x9b31m\\x0d\\u202e"


def harmless(text):
    return not any(sign in text for sign in ("\x1b", "\x07", "\x9b", "\r", "\u202e"))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"), (59, "59 s"), (60, "1 min 00 s"), (95, "1 min 35 s"), (3599, "59 min 59 s"),
        (3600, "1 h 00 min"), (5432, "1 h 30 min"), (90_061, "25 h 01 min"), (math.inf, "unknown"),
        (math.nan, "unknown"), (-1, "unknown"),
    ],
)  # fmt: skip
def test_times_read_as_people_say_them(seconds, words):
    assert duration(seconds) == words


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def evil_run():
    paths = create_run(Recipe(), runs_dir() / "evil")
    state = read_state(paths).model_copy(
        update={"run": EVIL, "message": EVIL, "verdict": EVIL, "status": "finished", "loss": 2.0}
    )
    write_state(paths, state)
    writer = EventWriter(paths.events)
    writer.write(Warned(code="odd", message=EVIL))
    writer.write(EvaluationDone(step=1, loss=2.0, tokens=1, seconds=0.1))
    writer.close()
    return paths


def test_the_width_is_that_of_now(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    assert terminal.width == 80
    monkeypatch.setenv("COLUMNS", "200")
    assert terminal.width == 200
    assert Terminal(width=50).width == 50


@pytest.mark.parametrize("command", [["runs", "list"], ["runs", "show", "evil"], ["runs", "show", "evil", "--json"]])
def test_a_run_with_escapes_and_markup_in_its_texts_is_shown(evil_run, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert harmless(printed)
    if "--json" in command:
        assert json.loads(printed)["message"] == EVIL
    elif "show" in command:
        assert SEEN in printed
    else:  # a table cuts what is too long for its column
        assert "[/bold] [data] [red] :smile:" in printed


@pytest.mark.full
def test_names_of_columns_and_files_are_shown_as_they_are(tmp_path, capsys, model):
    data = tmp_path / "[data] :smile: \x1b[2J.jsonl"
    write_jsonl(data, [{"\x1b[31m[x]": "a", "text": f"words \x1b[0m {number}"} for number in range(8)])
    assert main(["inspect", str(data), "--model", str(model)]) == 0
    printed = capsys.readouterr()
    assert harmless(printed.out + printed.err)
    assert "[data] :smile: \\x1b[2J.jsonl" in " ".join(printed.out.split())
    assert "\\x1b[31m[x]" in printed.out


@pytest.mark.parametrize(
    "command",
    [["recipe", "check", "{}.toml"], ["chat", "{}.gguf"], ["runs", "show", "{}"], ["suggest", "--data", "{}"],
     ["plan", "{}"], ["train", "{}"], ["models", "fetch", "{}"], ["{}"], ["runs", "list", "--{}"]],
)  # fmt: skip
def test_an_error_quotes_what_was_given_on_one_harmless_line(capsys, command):
    assert main([part.format(EVIL + "\nburnish: forged") for part in command]) in (2, 11)
    error = capsys.readouterr().err
    assert harmless(error)
    assert error.count("\n") == 1
    assert "[data]" in error


def test_control_characters_are_spelled_out_and_the_rest_stays():
    assert printable("a\tb\nc é 漢 🙂") == "a\tb\nc é 漢 🙂"
    assert printable(EVIL) == SEEN
    assert one_line("a\r\nb\nc") == "a b c"
    assert printable("\ud800") == "\\ud800"


def test_values_are_no_markup_but_the_template_is():
    text = styled("[bold]{}[/] {}", "[red]x[/]\\", "\x1b")
    assert text.plain == "[red]x[/]\\ \\x1b"
    assert [span.style for span in text.spans] == ["bold"]


def test_a_table_on_a_terminal_is_as_harmless():
    stream = io.StringIO()
    Terminal(file=stream, force_terminal=True, color_system=None).print(EVIL)
    assert SEEN in stream.getvalue()


class Gone(io.StringIO):
    """A stream whose reader has gone."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, "gone")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_nobody_reads_any_more(monkeypatch, number):
    monkeypatch.setattr(sys, "stdout", Gone(number))
    monkeypatch.setattr(sys, "stderr", Gone(number))
    out.print("words")
    print_json("{}")
    print_raw("piece")
    say_error("a problem")
    assert main(["runs", "list"]) == 0


def test_a_full_disk_behind_the_output_is_still_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Gone(errno.ENOSPC))
    assert main(["runs", "list"]) == 15
