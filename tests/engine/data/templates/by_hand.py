"""Each chat template written out by hand, turn by turn: pieces of text, and whether they are learned."""

import json

from support.data.chat_templates import MINISTRAL3_SYSTEM, QWEN25_SYSTEM, QWEN35_CALLS

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def dumps(value, **options):
    return json.dumps(value, ensure_ascii=False, **options)


def qwen_system(messages, tools, default):
    system = messages[0]["content"] if messages[0]["role"] == "system" else default
    if tools:
        text = f"{system}\n\n" if system or messages[0]["role"] == "system" else ""
        text += (
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
            "function signatures within <tools></tools> XML tags:\n<tools>"
        )
        text += "".join(f"\n{dumps(tool)}" for tool in tools)
        text += (
            "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
            "<args-json-object>}\n</tool_call>"
        )
        return f"<|im_start|>system\n{text}<|im_end|>\n"
    return f"<|im_start|>system\n{system}<|im_end|>\n" if system or messages[0]["role"] == "system" else ""


def call_block(call):
    function = call["function"]
    head = f'<tool_call>\n{{"name": "{function["name"]}", "arguments": '
    return f"{head}{dumps(function['arguments'])}}}\n</tool_call>"


def tool_turn(messages, index):
    if messages[index - 1]["role"] != "tool":
        yield "<|im_start|>user", False
    yield f"\n<tool_response>\n{messages[index]['content']}\n</tool_response>", False
    if index + 1 == len(messages) or messages[index + 1]["role"] != "tool":
        yield "<|im_end|>\n", False


def chatml(messages, _tools, _bos, _eos):
    for message in messages:
        yield f"<|im_start|>{message['role']}\n", False
        yield f"{message['content']}<|im_end|>", message["role"] == "assistant"
        yield "\n", False


def smollm(messages, tools, bos, eos):
    if messages[0]["role"] != "system":
        said = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        yield f"<|im_start|>system\n{said}<|im_end|>\n", False
    yield from chatml(messages, tools, bos, eos)


def qwen25(messages, tools, _bos, _eos):
    yield qwen_system(messages, tools, QWEN25_SYSTEM), False
    for index, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if message["role"] == "tool":
            yield from tool_turn(messages, index)
            continue
        yield f"<|im_start|>{message['role']}\n", False
        parts = [message["content"]] if message["content"] or "tool_calls" not in message else []
        parts += [call_block(call) for call in message.get("tool_calls", [])]
        yield "\n".join(parts) + "<|im_end|>", message["role"] == "assistant"
        yield "\n", False


def qwen3(messages, tools, _bos, _eos):
    yield qwen_system(messages, tools, ""), False
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "system":
            continue
        if role == "tool":
            yield from tool_turn(messages, index)
            continue
        yield f"<|im_start|>{role}\n", False
        thoughts = message.get("reasoning_content", "")
        if role == "assistant" and not thoughts and "</think>" in content:
            thoughts = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
        written = content
        if role == "assistant" and index > last and (thoughts or index + 1 == len(messages)):
            thoughts = thoughts.strip("\n")
            written = content.lstrip("\n")
            yield f"<think>\n{thoughts}\n</think>\n\n", True
        for number, call in enumerate(message.get("tool_calls", [])):
            written += ("\n" if content or number else "") + call_block(call)
        yield f"{written}<|im_end|>", role == "assistant"
        yield "\n", False


def qwen35(messages, tools, _bos, _eos):
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else ""
    if tools:
        text = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
        text += "".join(f"\n{dumps(tool)}" for tool in tools) + QWEN35_CALLS + (f"\n\n{system}" if system else "")
        yield f"<|im_start|>system\n{text}<|im_end|>\n", False
    elif messages[0]["role"] == "system":
        yield f"<|im_start|>system\n{system}<|im_end|>\n", False
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    for index, message in enumerate(messages):
        role, content = message["role"], (message["content"] or "").strip()
        if role == "system":
            continue
        if role == "tool":
            yield from tool_turn([{**one, "content": (one["content"] or "").strip()} for one in messages], index)
            continue
        yield f"<|im_start|>{role}\n", False
        thoughts = message.get("reasoning_content", "")
        if role == "assistant" and "reasoning_content" not in message and "</think>" in content:
            thoughts = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
        if role == "assistant" and index > last:
            yield "<think>\n", False
            yield f"{thoughts.strip()}\n</think>\n\n", True
        for number, call in enumerate(message.get("tool_calls", [])):
            content += "\n" if number else "\n\n" if content else ""
            content += f"<tool_call>\n<function={call['function']['name']}>\n"
            for name, value in call["function"]["arguments"].items():
                written = dumps(value) if isinstance(value, dict | list) else str(value)
                content += f"<parameter={name}>\n{written}\n</parameter>\n"
            content += "</function>\n</tool_call>"
        yield f"{content}<|im_end|>", role == "assistant"
        yield "\n", False


def llama3(messages, tools, bos, _eos):
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else ""
    turns = messages[1:] if messages[0]["role"] == "system" else messages
    environment = "Environment: ipython\n" if tools else ""
    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    yield f"{bos}<|start_header_id|>system<|end_header_id|>\n\n{environment}{dates}{system}<|eot_id|>", False
    for index, message in enumerate(turns):
        role = {"tool": "ipython"}.get(message["role"], message["role"])
        yield f"<|start_header_id|>{role}<|end_header_id|>\n\n", False
        said = message["content"].strip() if message["content"] else ""
        if message["role"] == "tool":
            said = dumps(message["content"])
        elif "tool_calls" in message:
            function = message["tool_calls"][0]["function"]
            said = f'{{"name": "{function["name"]}", "parameters": {dumps(function["arguments"])}}}'
        elif tools and index == 0:
            yield (
                (
                    "Given the following functions, please respond with a JSON for a function call with its proper "
                    'arguments that best answers the given prompt.\n\nRespond in the format {"name": function name, '
                    '"parameters": '
                    "dictionary of argument name and its value}.Do not use variables.\n\n"
                ),
                False,
            )
            for tool in tools:
                yield f"{dumps(tool, indent=4)}\n\n", False
        yield f"{said}<|eot_id|>", role == "assistant"


def gemma(messages, _tools, bos, _eos):
    yield bos, False
    first = f"{messages[0]['content']}\n\n" if messages[0]["role"] == "system" else ""
    for message in messages[1:] if first or messages[0]["role"] == "system" else messages:
        role = "model" if message["role"] == "assistant" else message["role"]
        yield f"<start_of_turn>{role}\n{first}", False
        first = ""
        yield f"{message['content'].strip()}<end_of_turn>", role == "model"
        yield "\n", False


def phi(messages, _tools, _bos, eos):
    for message in messages:
        if message["role"] == "system" and not message["content"]:
            continue
        yield f"<|{message['role']}|>\n", False
        yield f"{message['content']}<|end|>", message["role"] == "assistant"
        yield "\n", False
    yield eos, False


def mistral(messages, tools, bos, eos):
    yield bos, False
    asked = [message for message in messages if message["role"] == "user"]
    for index, message in enumerate(messages):
        if message["role"] == "user":
            offered = f"[AVAILABLE_TOOLS]{dumps(tools)}[/AVAILABLE_TOOLS]" if tools and message is asked[-1] else ""
            last = index + 1 == len(messages) and messages[0]["role"] == "system"
            system = f"{messages[0]['content']}\n\n" if last else ""
            yield f"{offered}[INST]{system}{message['content']}[/INST]", False
        elif "tool_calls" in message:
            calls = [f'{dumps(call["function"])[:-1]}, "id": "{call["id"]}"}}' for call in message["tool_calls"]]
            yield f"[TOOL_CALLS][{', '.join(calls)}]{eos}", True
        elif message["role"] == "assistant":
            yield f"{message['content']}{eos}", True
        elif message["role"] == "tool":
            told = f'{{"content": {message["content"]}, "call_id": "{message["tool_call_id"]}"}}'
            yield f"[TOOL_RESULTS]{told}[/TOOL_RESULTS]", False


def zephyr(messages, _tools, _bos, eos):
    for message in messages:
        yield f"<|{message['role']}|>\n", False
        yield f"{message['content']}{eos}", message["role"] == "assistant"
        yield "\n", False


def deepseek(messages, _tools, bos, eos):
    yield bos + next((m["content"] for m in messages if m["role"] == "system"), ""), False
    told = False
    for index, message in enumerate(messages):
        if message["role"] == "user":
            yield f"<｜User｜>{message['content']}", False
        elif "tool_calls" in message:
            [call] = message["tool_calls"]
            function = call["function"]
            yield "<｜Assistant｜>", False
            said = f"function<｜tool▁sep｜>{function['name']}\n```json\n{dumps(function['arguments'])}\n```"
            yield f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{said}<｜tool▁call▁end｜>", True
        elif message["role"] == "tool":
            told = True
            yield f"<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>{message['content']}<｜tool▁output▁end｜>", False
            if index + 1 == len(messages):
                yield "<｜tool▁outputs▁end｜>", False
        elif message["role"] == "assistant":
            yield ("<｜tool▁outputs▁end｜>" if told else "<｜Assistant｜>"), False
            yield f"{message['content'] if told else message['content'].split('</think>')[-1]}{eos}", True
            told = False


def granite4(messages, tools, _bos, _eos):
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    turns = messages[1:] if messages[0]["role"] == "system" else messages
    if tools:
        system += "\n\n" if system else ""
        system += (
            "You are a helpful assistant with access to the following tools. You may call one or more tools to assist "
            "with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:"
            "\n<tools>"
        )
        system += "".join(f"\n{dumps(tool)}" for tool in tools)
        system += (
            "\n</tools>\n\nFor each tool call, return a json object with function name and arguments within "
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
            "<args-json-object>}\n</tool_call>. If a tool does not exist in the provided list of tools, notify the "
            "user that you do not have the ability to fulfill the request."
        )
    if system:
        yield f"<|start_of_role|>system<|end_of_role|>{system}<|end_of_text|>\n", False
    for index, message in enumerate(turns):
        if message["role"] == "tool":
            ends = {"<|im_start|>user": "<|start_of_role|>user<|end_of_role|>", "<|im_end|>\n": "<|end_of_text|>\n"}
            yield from ((ends.get(text, text), flag) for text, flag in tool_turn(turns, index))
            continue
        yield f"<|start_of_role|>{message['role']}<|end_of_role|>", False
        parts = [message["content"]] if message["content"] or "tool_calls" not in message else []
        parts += [call_block(call) for call in message.get("tool_calls", [])]
        yield "\n".join(parts) + "<|end_of_text|>", message["role"] == "assistant"
        yield "\n", False


def olmo2(messages, _tools, bos, eos):
    yield bos, False
    for index, message in enumerate(messages):
        replies = message["role"] == "assistant"
        yield f"<|{message['role']}|>\n", False
        yield message["content"] + (eos if replies else ""), replies
        yield "" if replies and index + 1 == len(messages) else "\n", False


def ministral3(messages, tools, bos, eos):
    system = messages[0]["content"] if messages[0]["role"] == "system" else MINISTRAL3_SYSTEM
    yield f"{bos}[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT]", False
    yield f"[AVAILABLE_TOOLS]{dumps(tools)}[/AVAILABLE_TOOLS]" if tools else "", False
    for message in messages[1:] if messages[0]["role"] == "system" else messages:
        if message["role"] == "user":
            yield f"[INST]{message['content']}[/INST]", False
        elif message["role"] == "tool":
            yield f"[TOOL_RESULTS]{message['content']}[/TOOL_RESULTS]", False
        else:
            functions = [call["function"] for call in message.get("tool_calls", [])]
            calls = "".join(f"[TOOL_CALLS]{one['name']}[ARGS]{dumps(one['arguments'])}" for one in functions)
            yield message["content"] + calls + eos, True


def lfm25(messages, _tools, bos, _eos):
    yield bos, False
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    was_cut = False
    for index, message in enumerate(messages):
        content, replies = message["content"], message["role"] == "assistant"
        thinks = replies and "</think>" in content
        if thinks and index != last:
            content = content.split("</think>")[-1].strip()
        # The prompt of a reply ends with the token, unless the reply before it is written otherwise there.
        opened = "<think>" if replies and content.startswith("<think>") and not was_cut else ""
        yield f"<|im_start|>{message['role']}\n{opened}", False
        yield f"{content.removeprefix(opened)}<|im_end|>", replies
        yield "\n", False
        was_cut = thinks if replies else was_cut


REFERENCES = {
    "llama3": llama3, "qwen2.5": qwen25, "qwen3": qwen3, "qwen3.5": qwen35, "gemma": gemma, "phi": phi, "mistral": mistral,
    "smollm": smollm, "chatml": chatml, "zephyr": zephyr, "deepseek": deepseek, "granite4": granite4, "olmo2": olmo2,
    "ministral3": ministral3, "lfm2.5": lfm25,
}  # fmt: skip

SEVERAL_CALLS = ("qwen2.5", "qwen3", "qwen3.5", "mistral", "granite4", "ministral3")
"""Templates that write several calls in one turn."""
