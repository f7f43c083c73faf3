"""Holds chat templates by name, for base models that have none, and reads templates from files."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.files import read_limited

_TURNS = "{% for message in messages %}"
_CONTENT = "message['content'] | trim"

TEMPLATES = {
    "chatml": _TURNS
    + "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "llama3": "{{ bos_token }}"
    + _TURNS
    + "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
    + _CONTENT
    + " + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "gemma": "{{ bos_token }}{% set first = '' %}{% set turns = messages %}"
    "{% if messages and messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] | trim + '\\n\\n' %}{% set turns = messages[1:] %}{% endif %}"
    "{% for message in turns %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}"
    "{{ first if loop.first else '' }}{{ " + _CONTENT + " + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    "mistral": "{{ bos_token }}{% set first = '' %}{% set turns = messages %}"
    "{% if messages and messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] + '\\n\\n' %}{% set turns = messages[1:] %}{% endif %}"
    "{% for message in turns %}{% if message['role'] == 'assistant' %}"
    "{{ ' ' + " + _CONTENT + " + eos_token }}{% else %}"
    "{{ '[INST] ' + (first if loop.first else '') + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}",
    "zephyr": _TURNS + "{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "phi3": _TURNS + "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "vicuna": _TURNS + "{% if message['role'] == 'system' %}{{ message['content'] + ' ' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ASSISTANT: ' + message['content'] + eos_token }}"
    "{% else %}{{ 'USER: ' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' ASSISTANT: ' }}{% endif %}",
    "alpaca": _TURNS + "{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ '### Response:\\n' + message['content'] + eos_token + '\\n\\n' }}"
    "{% else %}{{ '### Instruction:\\n' + message['content'] + '\\n\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
}
"""Name to Jinja source. The templates write plain turns only: no tools and no reasoning."""

ENDING_WITH_EOS = frozenset(name for name, source in TEMPLATES.items() if "eos_token" in source)
"""Templates that end a reply with the tokenizer's end-of-sequence token; the others write a token of their own."""

CONTROL_TOKENS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "phi3": ("<|user|>", "<|assistant|>", "<|end|>"),
}
"""Control tokens of a template. One that the vocabulary lacks becomes several tokens, which costs length."""

_LARGEST_FILE_BYTES = 2**20


def template_source(chosen: str) -> str:
    """Return the Jinja source that a recipe's `data.template` names.

    Args:
        chosen: name in `TEMPLATES`, or path of a file.

    Raises:
        DataError: The name is unknown and no readable file, or the file is empty or too large.
    """
    if chosen in TEMPLATES:
        return TEMPLATES[chosen]
    path = Path(chosen)
    try:
        source = read_limited(path, _LARGEST_FILE_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = f" ({error})" if type(error) is ValueError else ""
        raise DataError(
            f"data.template is {chosen!r}, which is neither a known name nor a readable text file{why}.",
            f"Known names: auto, {', '.join(TEMPLATES)}.",
        ) from None
    if not source.strip():
        raise DataError(f"The chat template {path} is empty.", "Write Jinja source into it, or choose another.")
    return source
