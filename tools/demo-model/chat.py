"""The chat template (Jinja, stored in the GGUF) and the same in Python with the spans that training learns from."""

import json

EOS, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
SPECIAL_TOKENS = [PAD, START, EOS]

TOOLS_INTRO = "You can call these tools:\n<tools>\n"
TOOLS_OUTRO = '</tools>\nTo call a tool, answer only with:\n<tool_call>\n{"name": the tool, "arguments": an object}\n</tool_call>'

CHAT_TEMPLATE = """{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- 'TOOLS_INTRO' }}
{%- for tool in tools %}
{{- (tool | tojson) + '\\n' }}
{%- endfor %}
{{- 'TOOLS_OUTRO<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.content %}
{{- message.content }}
{%- endif %}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}
{%- if call.function is defined %}
{%- set call = call.function %}
{%- endif %}
{%- if message.content or not loop.first %}
{{- '\\n' }}
{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{%- if call.arguments is string %}
{{- call.arguments }}
{%- else %}
{{- call.arguments | tojson }}
{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>tool\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
""".replace("TOOLS_INTRO", TOOLS_INTRO.replace("\n", "\\n")).replace("TOOLS_OUTRO", TOOLS_OUTRO.replace("\n", "\\n"))


def assistant_text(message: dict) -> str:
    text = message.get("content") or ""
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = json.dumps(function["arguments"], ensure_ascii=False)
        text += ("\n" if text else "") + f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n</tool_call>'
    return text


def spans(messages: list, tools: list | None) -> list[tuple[str, bool]]:
    """The rendered conversation in pieces; True marks what the assistant says (its end mark included)."""
    pieces = []
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    if tools:
        listed = "".join(json.dumps(tool, ensure_ascii=False) + "\n" for tool in tools)
        before = system + "\n\n" if system is not None else ""
        pieces.append((f"{START}system\n{before}{TOOLS_INTRO}{listed}{TOOLS_OUTRO}{EOS}\n", False))
    elif system is not None:
        pieces.append((f"{START}system\n{system}{EOS}\n", False))
    for message in messages[1:] if system is not None else messages:
        if message["role"] == "assistant":
            pieces += [(f"{START}assistant\n", False), (assistant_text(message) + EOS, True), ("\n", False)]
        elif message["role"] == "tool":
            pieces.append((f"{START}tool\n<tool_response>\n{message['content']}\n</tool_response>{EOS}\n", False))
        else:
            pieces.append((f"{START}{message['role']}\n{message['content']}{EOS}\n", False))
    return pieces


def render(messages: list, tools: list | None = None, add_generation_prompt: bool = False) -> str:
    text = "".join(piece for piece, _ in spans(messages, tools))
    return text + (f"{START}assistant\n" if add_generation_prompt else "")


def render_jinja(messages: list, tools: list | None = None, add_generation_prompt: bool = False) -> str:
    """Through the template itself, set up as transformers does."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(CHAT_TEMPLATE)
    return template.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)
