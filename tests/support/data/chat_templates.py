"""Chat templates that render as the public ones of their models do, written compactly, and the tokens they use.

Sources of what they render: meta-llama/Llama-3.2-3B-Instruct, Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-0.6B,
Qwen/Qwen3.5-4B, google/gemma-3-1b-it, microsoft/Phi-3.5-mini-instruct, mistralai/Mistral-Nemo-Instruct-2407,
HuggingFaceTB/SmolLM2-1.7B-Instruct, ChatML as OpenAI published it, HuggingFaceH4/zephyr-7b-beta and
deepseek-ai/DeepSeek-R1-Distill-Qwen-32B. Below them stand those of newer families, from the model cards of
ibm-granite/granite-4.0-1b and allenai/OLMo-2-0425-1B-Instruct and what is published of
mistralai/Ministral-3-3B-Instruct-2512 and LiquidAI/LFM2.5-2.6B.
"""

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

SMOLLM = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, "
    "trained by Hugging Face<|im_end|>\\n' }}{% endif %}" + CHATML
)

_CALL_RULES = (
    "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with "
    "function signatures within <tools></tools> XML tags:\\n<tools>"
)
_CALL_FORM = (
    "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n'
    "</tool_call><|im_end|>\\n"
)
_TOOL_TURN = (
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
)
_CALL = "'<tool_call>\\n{\"name\": \"' + f.name + '\", \"arguments\": ' + (f.arguments | tojson) + '}\\n</tool_call>'"


def _qwen_system(default):
    return (
        "{% if tools %}{{ '<|im_start|>system\\n' }}"
        "{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}"
        + (f"{{% else %}}{{{{ '{default}\\n\\n' }}}}" if default else "")
        + "{% endif %}{{ '"
        + _CALL_RULES
        + "' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}"
        "{{ '" + _CALL_FORM + "' }}"
        "{% elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
        + (f"{{% else %}}{{{{ '<|im_start|>system\\n{default}<|im_end|>\\n' }}}}" if default else "")
        + "{% endif %}"
    )


QWEN25_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

QWEN25 = (
    _qwen_system(QWEN25_SYSTEM) + "{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'system' and not loop.first) "
    "or (m.role == 'assistant' and not m.tool_calls) %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% elif m.role == 'assistant' %}{{ '<|im_start|>assistant' + ('\\n' + m.content if m.content else '') }}"
    "{% for call in m.tool_calls %}{% set f = call.function %}{{ '\\n' + " + _CALL + " }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}" + _TOOL_TURN + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

QWEN3 = (
    _qwen_system("") + "{% set ns = namespace(last=messages | length - 1, found=false) %}"
    "{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' and not "
    "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
    "{% set ns.found = true %}{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% elif m.role == 'assistant' %}"
    "{% set content = m.content %}{% set thoughts = '' %}"
    "{% if m.reasoning_content is defined and m.reasoning_content is not none %}"
    "{% set thoughts = m.reasoning_content %}"
    "{% elif '</think>' in m.content %}"
    "{% set content = m.content.split('</think>')[-1].lstrip('\\n') %}"
    "{% set thoughts = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if loop.index0 > ns.last and (loop.last or thoughts) %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
    "{% else %}{{ '<|im_start|>assistant\\n' + content }}{% endif %}"
    "{% for call in m.tool_calls or [] %}{% if content or not loop.first %}{{ '\\n' }}{% endif %}"
    "{% set f = call.function %}{{ " + _CALL + " }}{% endfor %}{{ '<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}" + _TOOL_TURN + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

QWEN35_CALLS = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the "
    "specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags"
    "\n- Required parameters MUST be specified\n- You may provide optional reasoning for your function call in "
    "natural language BEFORE the function call, but NOT after\n- If there is no function call available, answer the "
    "question like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>"
)
"""Text by which Qwen3.5's template tells the model of tools: the model knows these words."""

QWEN35 = (
    "{% if not messages %}{{ raise_exception('No messages provided.') }}{% endif %}"
    "{% set system = messages[0].content | trim if messages[0].role == 'system' else '' %}"
    "{% if tools %}{{ '<|im_start|>system\\n# Tools\\n\\nYou have access to the following functions:\\n\\n<tools>' }}"
    "{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '" + QWEN35_CALLS.replace("\n", "\\n") + "' }}"
    "{{ ('\\n\\n' + system if system else '') + '<|im_end|>\\n' }}"
    "{% elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}{% endif %}"
    "{% set ns = namespace(last=-1) %}{% for m in messages %}"
    "{% if m.role == 'user' and not ((m.content | trim).startswith('<tool_response>') "
    "and (m.content | trim).endswith('</tool_response>')) %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% if ns.last < 0 %}{{ raise_exception('No user query found in messages.') }}{% endif %}"
    "{% for m in messages %}{% set content = (m.content or '') | trim %}"
    "{% if m.role == 'system' %}{% if not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "{% elif m.role == 'user' %}{{ '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}"
    "{% elif m.role == 'assistant' %}{% set thoughts = '' %}"
    "{% if m.reasoning_content is string %}{% set thoughts = m.reasoning_content %}"
    "{% elif '</think>' in content %}"
    "{% set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ '<|im_start|>assistant\\n' }}"
    "{% if loop.index0 > ns.last %}{{ '<think>\\n' + (thoughts | trim) + '\\n</think>\\n\\n' }}{% endif %}{{ content }}"
    "{% for call in m.tool_calls or [] %}{% set f = call.function %}"
    "{{ ('\\n\\n' if loop.first and content | trim else '' if loop.first else '\\n') }}"
    "{{ '<tool_call>\\n<function=' + f.name + '>\\n' }}"
    "{% for name, value in f.arguments | items %}{{ '<parameter=' + name + '>\\n' }}"
    "{{ value | string if value is string or not (value is mapping or value is sequence) else value | tojson }}"
    "{{ '\\n</parameter>\\n' }}{% endfor %}{{ '</function>\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}"
    "{% if loop.previtem and loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}"
    "{% if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% else %}{{ raise_exception('Unexpected message role.') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{{ '<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '<think>\\n' }}{% endif %}"
)

LLAMA_TOOLS = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    'answers the given prompt.\\n\\nRespond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\\n\\n"
)
_HEADER = "'<|start_header_id|>' + {} + '<|end_header_id|>\\n\\n'"

LLAMA3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{{ " + _HEADER.format("'system'") + " + ('Environment: ipython\\n' if tools else '') + "
    "'Cutting Knowledge Date: December 2023\\nToday Date: ' + strftime_now('%d %b %Y') + '\\n\\n' + system "
    "+ '<|eot_id|>' }}"
    "{% if tools %}{% if not messages %}{{ raise_exception('no first user message') }}{% endif %}"
    "{{ " + _HEADER.format("'user'") + " + '" + LLAMA_TOOLS + "' }}"
    "{% for tool in tools %}{{ (tool | tojson(indent=4)) + '\\n\\n' }}{% endfor %}"
    "{{ (messages[0].content | trim) + '<|eot_id|>' }}{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}"
    "{% if 'tool_calls' in m %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}"
    "{% endif %}{% set f = m.tool_calls[0].function %}"
    "{{ " + _HEADER.format("'assistant'") + ' + \'{"name": "\' + f.name + \'", "parameters": \' + '
    "(f.arguments | tojson) + '}<|eot_id|>' }}"
    "{% elif m.role == 'tool' %}{{ " + _HEADER.format("'ipython'") + " + (m.content | tojson) + '<|eot_id|>' }}"
    "{% else %}{{ " + _HEADER.format("m.role") + " + (m.content | trim) + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ " + _HEADER.format("'assistant'") + " }}{% endif %}"
)

GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set first = '' %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (first if loop.first else '') }}"
    "{{ (m.content | trim) + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)

PHI = (
    "{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' or (m.role == 'system' and m.content) %}"
    "{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)

MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = messages[1:] %}"
    "{% else %}{% set turns = messages %}{% endif %}"
    "{% set asked = turns | selectattr('role', 'equalto', 'user') | list %}{% set ns = namespace(index=0) %}"
    "{% for m in turns %}{% if not (m.role == 'tool' or m.tool_calls) %}"
    "{% if (m.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('After the optional system message, "
    "conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}{{ bos_token }}"
    "{% for m in turns %}{% if m.role == 'user' %}{% if tools and m == asked[-1] %}"
    "{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{{ '[INST]' + (system + '\\n\\n' if loop.last and system is defined else '') + m.content + '[/INST]' }}"
    "{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{% for call in m.tool_calls %}"
    "{% if call.id is not defined or call.id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
    "{{ (call.function | tojson)[:-1] + ', \"id\": \"' + call.id + '\"}' + (']' + eos_token if loop.last else ', ') }}"
    "{% endfor %}"
    "{% elif m.role == 'assistant' %}{{ m.content + eos_token }}"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id is not defined or m.tool_call_id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
    "{{ '[TOOL_RESULTS]{\"content\": ' + m.content + ', \"call_id\": \"' + m.tool_call_id + '\"}[/TOOL_RESULTS]' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}"
)

ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)

DEEPSEEK = (
    "{% set ns = namespace(called=false, answered=false, told=false, system='') %}"
    "{% for m in messages %}{% if m.role == 'system' %}{% set ns.system = m.content %}{% endif %}{% endfor %}"
    "{{ bos_token + ns.system }}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.told = false %}{{ '<｜User｜>' + m.content }}{% endif %}"
    "{% if m.role == 'assistant' and m.content is none %}{% set ns.told = false %}{% for call in m.tool_calls %}"
    "{% set said = '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + "
    "call.function.arguments + '\\n```<｜tool▁call▁end｜>' %}"
    "{% if not ns.called %}{{ '<｜Assistant｜><｜tool▁calls▁begin｜>' + said }}{% set ns.called = true %}"
    "{% else %}{{ '\\n' + said + '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}{% endif %}"
    "{% if m.role == 'assistant' and m.content is not none %}{% if ns.told %}"
    "{{ '<｜tool▁outputs▁end｜>' + m.content + '<｜end▁of▁sentence｜>' }}{% set ns.told = false %}"
    "{% else %}{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{% endif %}"
    "{% endif %}"
    "{% if m.role == 'tool' %}{% set ns.told = true %}"
    "{{ ('\\n' if ns.answered else '<｜tool▁outputs▁begin｜>') + '<｜tool▁output▁begin｜>' + m.content + "
    "'<｜tool▁output▁end｜>' }}{% set ns.answered = true %}{% endif %}{% endfor %}"
    "{% if ns.told %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}"
    "{% if add_generation_prompt and not ns.told %}{{ '<｜Assistant｜>' }}{% endif %}"
)

_GRANITE_RULES = (
    "You are a helpful assistant with access to the following tools. You may call one or more tools to assist with the "
    "user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>"
)
_GRANITE_FORM = (
    "\\n</tools>\\n\\nFor each tool call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n'
    "</tool_call>. If a tool does not exist in the provided list of tools, notify the user that you do not have the "
    "ability to fulfill the request."
)
_GRANITE_TURN = "'<|start_of_role|>' + {} + '<|end_of_role|>'"

GRANITE4 = (
    "{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% if tools %}{% set ns.system = (ns.system + '\\n\\n' if ns.system else '') + '" + _GRANITE_RULES + "' %}"
    "{% for tool in tools %}{% set ns.system = ns.system + '\\n' + (tool | tojson) %}{% endfor %}"
    "{% set ns.system = ns.system + '" + _GRANITE_FORM + "' %}{% endif %}"
    "{% if ns.system %}{{ " + _GRANITE_TURN.format("'system'") + " + ns.system + '<|end_of_text|>\\n' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ " + _GRANITE_TURN.format("'user'") + " }}"
    "{% endif %}{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|end_of_text|>\\n' }}{% endif %}"
    "{% else %}{{ " + _GRANITE_TURN.format("m.role") + " + (m.content or '') }}"
    "{% for call in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\\n' }}{% endif %}"
    "{% set f = call.function %}{{ " + _CALL + " }}{% endfor %}{{ '<|end_of_text|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ " + _GRANITE_TURN.format("'assistant'") + " }}{% endif %}"
)

OLMO2 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token + ('' if loop.last else '\\n') }}{% else %}{{ '\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)

MINISTRAL3_SYSTEM = (
    "You are Ministral-3-3B-Instruct-2512, a Large Language Model (LLM) created by Mistral AI, a French startup "
    "headquartered in Paris."
)
"""First sentence of a longer text."""

MINISTRAL3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '" + MINISTRAL3_SYSTEM + "' %}{% set turns = messages %}"
    "{% endif %}{{ '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}"
    "{% if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{% set ns = namespace(index=0) %}{% for m in turns %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('After the optional system message, "
    "conversation roles must alternate user and assistant roles except for tool calls and results.') }}{% endif %}"
    "{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
    "{% for m in turns %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
    "{% else %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}{% set f = call.function %}"
    "{{ '[TOOL_CALLS]' + f.name + '[ARGS]' + (f.arguments if f.arguments is string else f.arguments | tojson) }}"
    "{% endfor %}{{ eos_token }}{% endif %}{% endfor %}"
)

LFM25_THINKING = (
    "{{- bos_token -}}{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set content = m.content %}"
    "{% if m.role == 'assistant' and loop.index0 != ns.last and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] | trim %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}"
)

TEMPLATES = {
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2.5": (QWEN25, None, "<|im_end|>"),
    "qwen3": (QWEN3, None, "<|im_end|>"),
    "qwen3.5": (QWEN35, None, "<|im_end|>"),
    "gemma": (GEMMA, "<bos>", "<eos>"),
    "phi": (PHI, None, "<|endoftext|>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "smollm": (SMOLLM, "<|im_start|>", "<|im_end|>"),
    "chatml": (CHATML, None, "<|im_end|>"),
    "zephyr": (ZEPHYR, "<s>", "</s>"),
    "deepseek": (DEEPSEEK, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "granite4": (GRANITE4, None, "<|end_of_text|>"),
    "olmo2": (OLMO2, "<|endoftext|>", "<|endoftext|>"),
    "ministral3": (MINISTRAL3, "<s>", "</s>"),
    "lfm2.5": (LFM25_THINKING, "<|startoftext|>", "<|im_end|>"),
}
"""Name to (source, beginning-of-sequence token, end-of-sequence token)."""

WITH_TOOLS = ("llama3", "qwen2.5", "qwen3", "qwen3.5", "mistral", "deepseek", "granite4", "ministral3")

SPECIAL = [
    *("<unk>", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"),
    *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
    *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    *("<|start_of_role|>", "<|end_of_role|>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "<think>", "</think>"),
    "<|startoftext|>",
]
