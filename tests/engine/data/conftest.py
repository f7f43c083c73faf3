"""Small tokenizers trained on the spot, and chat templates as real models have them."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

MISTRAL = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}{% if message['role'] == 'user' %}"
    "{% if loop.first and system is defined %}{{ '[INST] ' + system + '\n\n' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] | trim + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)

QWEN3 = """{%- set ns = namespace(last_query_index=messages|length - 1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last_query_index = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role in ['user', 'system', 'tool'] %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') }}
            {{- '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

TEMPLATES = {
    "chatml": (CHATML, "<|endoftext|>", "<|im_end|>"),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|end_of_text|>"),
    "gemma": (GEMMA, "<bos>", "<eos>"),
    "zephyr": (ZEPHYR, "<s>", "</s>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "qwen3": (QWEN3, "<|endoftext|>", "<|im_end|>"),
}
"""Name to (source, beginning-of-sequence token, end-of-sequence token)."""

SPECIAL = [
    *("<unk>", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>", "<|user|>", "<|system|>", "<|assistant|>", "[INST]", "[/INST]"),
]

CORPUS = [
    "Hello world, how are you today?  I am well.\n\nThe quick brown fox   jumps over the lazy dog.\n",
    "def f(x):\n    return x * 2\n\n\nuser assistant system model think\n",
    "Größe, naïve café, 你好，世界。 مرحبا 😀👍🏽 e\u0301 \u00a0 end \t tab\r\n",
] * 8


def _byte_bpe(trim_offsets):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=450, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    return tokenizer


def _metaspace():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=560, special_tokens=[*SPECIAL, *byte_tokens], limit_alphabet=60)
    )
    return tokenizer


_BACKENDS = {"bytes": lambda: _byte_bpe(False), "bytes-trimmed": lambda: _byte_bpe(True), "metaspace": _metaspace}


@pytest.fixture(scope="session")
def make_tokenizer():
    """A factory of transformers tokenizers: (template name or None, backend, extra arguments)."""
    from transformers import PreTrainedTokenizerFast

    saved = {name: make().to_str() for name, make in _BACKENDS.items()}

    def make(template="chatml", backend="bytes", *, source=None, adds_bos=False, **tokens):
        own, bos, eos = TEMPLATES.get(template, (None, "<s>", "</s>"))
        tokens = {"bos_token": bos, "eos_token": eos, **tokens}
        raw = Tokenizer.from_str(saved[backend])
        if adds_bos:
            bos_id = raw.token_to_id(tokens["bos_token"])
            raw.post_processor = processors.TemplateProcessing(
                single=f"{tokens['bos_token']} $A", special_tokens=[(tokens["bos_token"], bos_id)]
            )
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **tokens)
        tokenizer.chat_template = source or own
        return tokenizer

    return make


@pytest.fixture(params=list(TEMPLATES))
def template_name(request):
    return request.param


@pytest.fixture(params=list(_BACKENDS))
def backend(request):
    return request.param


@pytest.fixture
def write_jsonl(tmp_path):
    def write(rows, name="data.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return path

    return write
