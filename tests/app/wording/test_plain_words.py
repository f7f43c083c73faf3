"""Engine texts in the window: without backticks, recipe keys and names of devices; other text stays as it is."""

import pytest

from burnish_app.wording.plain_words import device_text, model_name, model_text, plain_words
from burnish_app.wording.recipe_text import setting_name, setting_term
from burnish_engine.contract.recipe.recipe import sections, setting_of

KEYS = [f"{section}.{name}" for section, model in sections().items() for name in model.model_fields]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_named_as_the_form_names_it(key):
    said = plain_words(f"Lower {key}, then start again.")
    assert key not in said
    assert setting_term(key) in said


def test_no_two_settings_share_a_term():
    terms = [setting_term(key) for key in KEYS if setting_of(key).label]
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Run `burnish doctor` there.", ["“burnish doctor”"]),
        ('Set train.engine = "plain".', [f"“{setting_name('train.engine')}”", "to “plain”"]),
        ("model.quantize = nf4 needs a GPU.", ["in 4 bits (QLoRA)"]),
        ("At step 132 the loss is nan and the gradient norm inf.", ["not a number", "infinite"]),
        ("Starting the engine of ssh:ada@office", ["of ada@office"]),
    ],
)
def test_commands_values_and_numbers_are_said_plainly(text, parts):
    said = plain_words(text)
    assert all(part in said for part in parts)
    assert not set("`=") & set(said)
    assert "nan" not in said
    assert "ssh:" not in said


@pytest.mark.parametrize(
    "text",
    [
        "data.jsonl is empty.", "model.safetensors is cut.", "It needs 4.5 GiB.", "Name it ssh:HOST.",
        "/data/inf.jsonl is empty.", "C:\\data.files\\nan is empty.", "/runs/data.files/x is empty.",
        "data.files.jsonl is empty.", "try-inf has ended.",
    ],
)  # fmt: skip
def test_names_of_files_and_figures_stay(text):
    assert plain_words(text) == text


def test_a_command_stays_as_it_has_to_be_typed():
    assert "“burnish submit r.toml --to ssh:office”" in plain_words("Run `burnish submit r.toml --to ssh:office`.")


def test_devices_and_the_built_in_model_have_names():
    devices = ("cuda-1", "cuda-GPU-8f3a", "cuda", "rocm-0", "")
    assert [device_text(device) for device in devices] == ["GPU 1", "GPU 8f3a", "cuda", "rocm-0", ""]
    assert "cpu" not in device_text("cpu")
    assert "embedded" not in model_text("embedded") + model_name("embedded")
    assert (model_text("Qwen/Qwen3-0.6B"), model_name("D:\\models\\mine\\")) == ("Qwen/Qwen3-0.6B", "mine")
