"""A run whose recipe chooses a chat template: all that is made of it speaks by that template, not by the base's own."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from burnish_engine.chat.model_cache import ModelCache
from burnish_engine.chat.run_model import base_model, trained_model
from burnish_engine.chat.target import find_target
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import SampleDone
from burnish_engine.data.templates.library import TEMPLATES
from burnish_engine.export.destinations.modelfile import read_modelfile
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.generate import generate_replies
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import open_run, read_recipe, with_own_template
from burnish_engine.train.lifecycle.inputs import RunInputs

from support.runs.tiny_runs import WATCHED, tiny_recipe

TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '> ' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]
HI_RENDERED = "<user> Hi\n<assistant> "


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of three steps, trained with a template from a file, which was edited afterwards."""
    folder = tmp_path_factory.mktemp("templated")
    (folder / "house.jinja").write_text(TEMPLATE, encoding="utf-8")
    recipe = tiny_recipe(folder, max_steps=3, extra=WATCHED)
    recipe = recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"template": str(folder / "house.jinja")})}
    )
    (folder / "recipe.toml").write_text(dump_recipe(recipe), encoding="utf-8")
    run = folder / "home" / "runs" / "templated"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert main(["train", str(folder / "recipe.toml"), "--run-dir", str(run)]) == 0
    (folder / "house.jinja").write_text("edited after training", encoding="utf-8")
    return run


@pytest.fixture
def run(trained, burnish_home):
    """The run as `last` in this test's home."""
    shutil.copytree(trained, burnish_home / "runs" / "templated")
    return open_run("last")


@pytest.mark.full
def test_the_file_and_its_modelfile_carry_it(run):
    assert main(["export", "last", "--to", "ollama", "--quant", "F16"]) == 0
    (file,) = run.export.glob("*.gguf")
    assert read_header(file).metadata["tokenizer.chat_template"] == TEMPLATE
    modelfile = (run.export / "ollama-F16" / "Modelfile").read_text(encoding="utf-8")
    (template,) = [one.value for one in read_modelfile(modelfile) if one.word == "template"]
    assert "<user> {{ .Content }}" in template
    assert "im_start" not in template
    assert main(["verify", str(file), "--against", "last"]) == 0


@pytest.mark.full
def test_a_file_with_another_template_is_refused(run, capsys):
    from gguf import GGUFReader

    assert main(["export", "last", "--quant", "F16"]) == 0
    (file,) = run.export.glob("*.gguf")
    field = GGUFReader(file, "r+").fields["tokenizer.chat_template"]
    part = field.parts[field.data[0]]
    part[:] = list(TEMPLATE.replace("'<' +", "'[' +").encode())
    part.flush()
    capsys.readouterr()
    assert main(["verify", str(file), "--against", "last"]) == 14
    assert "a rendered chat" in " ".join(capsys.readouterr().err.split())


def test_the_merged_folder_carries_it(run, tmp_path):
    assert main(["export", "last", "--to", "safetensors", "--out", str(tmp_path)]) == 0
    folder = tmp_path / "safetensors"
    assert AutoTokenizer.from_pretrained(folder).chat_template == TEMPLATE
    assert (folder / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("variant", ["tuned", "base"])
def test_one_talks_to_the_run_by_it(run, variant, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "burnish_engine.chat.torch_chat.generate_stream",
        lambda _speaker, tokenizer, ids, _options: asked.append(tokenizer.decode(ids)),
    )
    models = ModelCache()
    backend, _ = models.get(find_target("last", variant))
    backend.stream(HI)
    models.clear()
    assert asked == [HI_RENDERED]


def test_another_template_is_another_model_on_the_shelf(run):
    models = ModelCache()
    first, _ = models.get(find_target("last", "base"))
    again, _ = models.get(find_target("last", "tuned"))
    assert again is first
    own, _ = models.get(find_target(read_recipe(run).model.path, "base"))
    models.clear()
    assert own is not first


@pytest.mark.full
def test_the_samples_of_the_training_were_asked_by_it(run):
    """The greedy sample at the end is what the trained model answers to the chosen template's prompt."""
    from support.models.export import tuned_model

    source, adapter = trained_model(run, with_own_template(run, read_recipe(run)))
    tokenizer = load_tokenizer(source)
    last = [event for event in read_events(run.events) if isinstance(event, SampleDone)][-1]
    messages = [{"role": "user", "content": last.prompt}]
    (wanted,) = generate_replies(tuned_model(source, adapter), tokenizer, [messages], 3)
    assert last.reply == wanted.text


def test_messages_are_rendered_by_it(run):
    tokenizer = load_tokenizer(base_model(with_own_template(run, read_recipe(run))))
    assert tokenizer.apply_chat_template(HI, tokenize=False, add_generation_prompt=True) == HI_RENDERED


@pytest.mark.full
def test_a_resumed_run_goes_on_with_the_template_it_began_with(run):
    recipe = read_recipe(run)
    assert "edited" in Path(recipe.data.template).read_text(encoding="utf-8")
    listener = SimpleNamespace(phase=lambda *_: None, warn=lambda *_: None, progress=lambda *_: None)
    assert RunInputs.load(run, recipe, listener, fresh=False).data.template.source == TEMPLATE


def test_a_template_by_name_and_one_that_is_gone(run):
    recipe = read_recipe(run)

    def choosing(template):
        return recipe.model_copy(update={"data": recipe.data.model_copy(update={"template": template})})

    assert base_model(choosing("alpaca")).chat_template == TEMPLATES["alpaca"]
    assert base_model(choosing("auto")).chat_template == ""
    with pytest.raises(DataError, match=r"gone\.jinja', which is neither a known name"):
        trained_model(run, choosing("gone.jinja"))
