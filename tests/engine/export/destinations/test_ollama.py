"""Modelfiles: the derived template renders what the Jinja template renders, or none is written."""

import re
from datetime import date

import pytest
from jinja2 import Environment

from burnish_engine.contract.errors import UsageError
from burnish_engine.data.templates.template import PLAIN_TEMPLATE, ChatTemplate
from burnish_engine.export.destinations.ollama import export_ollama, quoted
from burnish_engine.export.destinations.ollama_template import derive_pieces

from support.data.chat_templates import QWEN35
from support.models.export import make_model, save_tokenizer, write_16_bit
from support.models.gguf_edit import edit_gguf
from support.models.tiny import CHATML

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA3 = (
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\n\n' -%}"
    "{%- set rest = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set rest = messages -%}{%- endif -%}"
    "{%- for message in rest -%}{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}{{ message['content'] | trim }}"
    "{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)
GEMMA1 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% else %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
)
ZEPHYR = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
PHI3 = ZEPHYR.replace("eos_token", "'<|end|>'")
DATED = (
    "{{ bos_token }}{{ '<|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul\n\n' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{{ '<|eot_id|>' }}{% for message in rest %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
NUMBERED = (
    "{% for m in messages %}{{ '<|' + m['role'] + loop.index0 | string + '|>' + m['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SHOUTING = CHATML.replace("message['content']", "(message['content'] if message['content'] != 'Hi' else 'HI')")

ENDS = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>"]
KNOWN = {
    "chatml": (CHATML, ""),
    "smollm2": (SMOLLM2, ""),
    "llama 3": (LLAMA3, "<s>"),
    "llama 3, bos in the template": (LLAMA3, ""),
    "gemma 3": (GEMMA3, "<s>"),
    "gemma 1": (GEMMA1, "<s>"),
    "mistral": (MISTRAL, "<s>"),
    "zephyr": (ZEPHYR, ""),
    "phi 3": (PHI3, ""),
    "qwen 3.5": (QWEN35, ""),
    "burnish's own": (PLAIN_TEMPLATE.format(bos="''"), ""),
}
UNKNOWN = {"numbered": NUMBERED, "shouting": SHOUTING, "no end": "{% for m in messages %}{{ m.content }}{% endfor %}"}


def compiled(source):
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, today=date(2026, 1, 1))


def run_go(source, system, turns):
    """What Ollama makes of a template: the few actions ours use, translated to Jinja and run."""
    rules = [
        (r"\{\{ \$system := \.System \}\}", "{% set ns = namespace(system=System) %}"),
        (r'\{\{ \$system = "" \}\}', "{% set ns.system = '' %}"),
        (r"\{\{ if \$system \}\}", "{% if ns.system %}"),
        (r"\{\{ \$system \}\}", "{{ ns.system }}"),
        (r"\{\{ if \.System \}\}", "{% if System %}"),
        (r"\{\{ \.System \}\}", "{{ System }}"),
        (r"\{\{ range (?:\$i, \$_ := )?\.Messages \}\}(.*)\{\{ end \}\}$", r"{% for m in Messages %}\1{% endfor %}"),
        (r"\{\{ if eq \(len \(slice \$\.Messages \$i\)\) 1 \}\}", "{% if loop.last %}"),
        (r'\{\{ if eq \.Role "user" \}\}', "{% if m.role == 'user' %}"),
        (r'\{\{ else if eq \.Role "assistant" \}\}', "{% elif m.role == 'assistant' %}"),
        (r"\{\{ \.Content \}\}", "{{ m.content }}"),
        (r"\{\{ end \}\}", "{% endif %}"),
    ]
    for pattern, replacement in rules:
        source = re.sub(pattern, replacement, source, flags=re.DOTALL)
    messages = [{"role": "system", "content": system}] if system else []  # Ollama leaves it among the messages
    messages += [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]
    return Environment(keep_trailing_newline=True).from_string(source).render(System=system, Messages=messages)


@pytest.mark.parametrize("name", KNOWN)
def test_known_templates_render_the_same_in_ollama(name):
    source, bos = KNOWN[name]
    template = compiled(source)
    pieces = derive_pieces(template, ENDS, bos)
    assert pieces is not None
    go = pieces.go_template()
    for system in ("", "Be kind.\nAlways.") if pieces.system_open is not None else ("",):
        for turns in (["Hello?"], ["One", "Two.", "Three"], ["a", "b", "c\n\nd", "e", "f"]):
            messages = [{"role": "system", "content": system}] if system else []
            messages += [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]
            wanted = template.render(messages, add_generation_prompt=True).removeprefix(bos)
            assert run_go(go, system or pieces.default_system, turns) == wanted


def test_what_is_found_in_them():
    assert derive_pieces(compiled(SMOLLM2), ENDS).default_system.startswith("You are a helpful AI")
    assert derive_pieces(compiled(GEMMA1), ENDS, "<s>").system_open is None
    assert derive_pieces(compiled(GEMMA3), ENDS, "<s>").system_in_turn
    assert derive_pieces(compiled(LLAMA3), ENDS).start == "<s>"
    assert derive_pieces(compiled(LLAMA3), ENDS, "<s>").start == ""
    assert derive_pieces(compiled(QWEN35), ENDS).prefill == "<think>\n"


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_templates_are_never_guessed(name):
    assert derive_pieces(compiled(UNKNOWN[name]), ENDS) is None


def test_a_system_block_that_is_always_there_is_kept_or_refused():
    pieces = derive_pieces(compiled(DATED), ENDS, "<s>")
    if pieces is not None:
        wanted = compiled(DATED).render([{"role": "user", "content": "x"}], add_generation_prompt=True)
        assert run_go(pieces.go_template(), pieces.default_system, ["x"]) == wanted.removeprefix("<s>")


def test_the_folder(wide_f16, tmp_path):
    source = tmp_path / "my model-F16.gguf"
    edit_gguf(wide_f16, source, metadata=lambda keys: keys.update({"general.license": "Apache-2.0\nas is\n"}))
    made = export_ollama(source, tmp_path / "ollama")
    text = made.modelfile.read_text()
    assert text.startswith('FROM ./my-model-F16.gguf\nTEMPLATE """{{ if .System }}<|im_start|>system\n')
    assert 'PARAMETER stop """<|im_end|>"""' in text
    assert 'PARAMETER stop """<|endoftext|>"""' in text
    assert "PARAMETER num_ctx 512\n" in text  # what the model was made for
    assert 'LICENSE """Apache-2.0\nas is"""' in text
    assert made.gguf.read_bytes() == source.read_bytes()
    assert made.gguf.stat().st_ino == source.stat().st_ino  # linked, not copied
    assert sorted(path.name for path in made.gguf.parent.iterdir()) == ["Modelfile", "my-model-F16.gguf"]


def test_an_unknown_template_is_said_and_left_out(tmp_path):
    source = make_model(tmp_path / "base", "llama", vocab_size=1536)
    save_tokenizer(source.folder, "digits", template=NUMBERED)
    made = export_ollama(write_16_bit(source, None, tmp_path), tmp_path / "ollama")
    assert "TEMPLATE" not in made.modelfile.read_text()
    assert "no known Ollama form" in made.notes[0]


@pytest.mark.full
def test_a_template_cannot_break_out_of_its_quotes(tmp_path):
    assert quoted('say "hi" now\nPARAMETER x') == '"""say "hi" now\nPARAMETER x"""'
    for text in ('a"""\nFROM evil', '"x', 'x"'):
        with pytest.raises(UsageError, match="cannot hold"):
            quoted(text)
    evil = CHATML.replace("<|im_start|>", '\\"\\"\\"\nADAPTER ./evil\n')
    source = make_model(tmp_path / "base", "llama", vocab_size=1536)
    save_tokenizer(source.folder, "digits", template=evil)
    with pytest.raises(UsageError, match="cannot hold"):
        export_ollama(write_16_bit(source, None, tmp_path), tmp_path / "ollama")
