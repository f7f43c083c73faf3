"""`burnish plan` without a recipe, as a person types it."""

import pytest

from burnish_engine.advise.suggest import capacity as module
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.capacity import DeviceCapacity

from support.machines.advice import CPU_24, GIB, H100, machine
from support.models.tiny import make_llama

LARGEST = "meta-llama/Llama-3.3-70B-Instruct"
ANSWERS = {}
"""What was worked out already, by card and model: commands that ask the same print it differently."""


@pytest.fixture(autouse=True)
def an_h100(monkeypatch):
    """The command sees this machine, and for each question is answered from one calculation."""
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: H100)
    real = module.find_capacity

    def once(on, models, *, only, gpu_gib, progress):
        key = (id(on), only and only.path, gpu_gib)
        if key not in ANSWERS:
            few = [model for model in models if model.name in {*module.USUAL_MODELS, LARGEST}]
            ANSWERS[key] = real(on, few, only=only, gpu_gib=gpu_gib, progress=progress)
        return ANSWERS[key]

    monkeypatch.setattr(module, "find_capacity", once)


def run(capsys, *arguments):
    """Exit code and what was printed."""
    code = main(["plan", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def line_of(text, *words):
    """The first line that holds all words."""
    return next(line for line in text.splitlines() if all(word in line for word in words))


@pytest.mark.full
def test_it_prints_the_largest_models_and_both_tables(capsys):
    code, text, _ = run(capsys)
    assert code == ExitCode.DONE
    assert "NVIDIA H100 80GB HBM3: 75.6 GiB of 79.6 GiB free, with 205 GiB of system memory free" in text
    assert "Llama 3.3 70B" in line_of(text, "Largest model", "in 16 bits (LoRA)", "tokens/s")
    assert "Llama 3.3 70B" in line_of(text, "Largest model", "in 4 bits (QLoRA)")
    assert "the model's context" in line_of(text, "Qwen3 0.6B", "LoRA", "40,960")
    assert "Biggest pass of rows of 2,048 tokens" in text
    assert "predicted, not measured" in text
    assert "…" not in text


def test_lines_stay_within_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, text, _ = run(capsys)
    tables = text[text.index("Longest row, alone") : text.index("note:")]
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80
    assert "…" not in tables
    assert "the model's context" in line_of(tables, "40,960")  # not folded


def test_json_is_the_whole_answer(capsys):
    code, text, _ = run(capsys, "--json")
    answer = DeviceCapacity.model_validate_json(text)
    assert code == ExitCode.DONE
    assert answer.memory_free_bytes == H100.gpus[0].vram_free_bytes
    assert all(one.longest.tokens_per_s > 0 for one in answer.models if one.longest)


@pytest.mark.full
def test_a_card_of_another_size(capsys):
    _, text, _ = run(capsys, "--gpu-gib", "4", "--json")
    answer = DeviceCapacity.model_validate_json(text)
    assert answer.memory_total_bytes == 4 * GIB
    assert not [one for one in answer.models if one.name == "Qwen/Qwen3-32B" and one.longest]
    _, text, _ = run(capsys, "--gpu-gib", "4")
    assert "a card of 4 GiB, as fast as this NVIDIA H100" in text
    assert "Qwen3 32B" in line_of(text, "Do not fit")


@pytest.mark.full
@pytest.mark.parametrize("name", ["Qwen/Qwen3-4B", "qwen3-4b"])
def test_one_model(capsys, name):
    _, text, _ = run(capsys, "--model", name, "--json")
    assert {(one.name, one.method) for one in DeviceCapacity.model_validate_json(text).models} == {
        ("Qwen/Qwen3-4B", "lora"),
        ("Qwen/Qwen3-4B", "qlora"),
    }


def test_a_model_in_a_folder(capsys, tmp_path):
    folder = make_llama(tmp_path / "my model")
    code, text, _ = run(capsys, "--model", folder)
    assert code == ExitCode.DONE
    assert "my model" in text


def test_a_model_that_does_not_fit_says_why_and_ends_with_its_exit_code(capsys):
    code, text, _ = run(capsys, "--model", "qwen3-32b", "--gpu-gib", "4")
    assert code == ExitCode.DOES_NOT_FIT
    assert "not as LoRA:" in text
    assert "the base weights" in line_of(text, "not as QLoRA:")


@pytest.mark.full
def test_a_processor_is_no_card(capsys, monkeypatch):
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: CPU_24)
    code, text, _ = run(capsys)
    assert code == ExitCode.DONE
    assert "What fits on CPU" in text
    assert "QLoRA" not in text
    assert "in 32 bits (LoRA)" in text


@pytest.mark.full
def test_nothing_fits(capsys, monkeypatch):
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: machine(ram_gib=1, cores=1))
    code, text, _ = run(capsys)
    assert code == ExitCode.DOES_NOT_FIT
    assert "Longest row" not in text
    assert "Qwen3 0.6B" in line_of(text, "Do not fit")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu-gib", "-8"), "--gpu-gib -8"),
        (("--gpu-gib", "0"), "--gpu-gib 0"),
        (("--gpu-gib", "100000"), "100000 GiB is no card's memory"),
        (("--model", "no/such-model"), "no/such-model"),
        (("--skip-data",), "no recipe was given"),
        (("mine.toml", "--gpu-gib", "4"), "--gpu-gib asks what would fit"),
        (("mine.toml", "--gpu-gib", "0"), "--gpu-gib asks what would fit"),
        (("mine.toml", "--model", "qwen3-4b"), "--model asks what would fit"),
    ],
)
def test_questions_without_sense_are_refused(capsys, arguments, words):
    code, text, error = run(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert words in error
    assert text == ""
