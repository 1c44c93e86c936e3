"""Chats whose last message goes on, rendered by transformers, to tests/golden/text/continued.json.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    /tmp/venv/bin/python scripts/golden/continued_messages.py
"""

import json
import pathlib

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "trimming": "{{ bos_token }}{% for m in messages %}[{{ m['role'] | upper }}] {{ m['content'] | trim }} {{ eos_token if m['role'] == 'assistant' }}"
                "{% endfor %}",
    "thinking": "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip() }}"
                "{% else %}{{ m.content }}{% endif %}</{{ m.role }}>{% endfor %}",
    "twice": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% for m in messages %}({{ m.content }}){% endfor %}",
    "dropping": "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
    "shouting": "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
}
LAST = ["The answer is", "The answer is ", "  The answer is\n", "", "a", "Hi", "<think>so</think> It", "{\"a\": ["]

cases = []
for name, template in TEMPLATES.items():
    for last in LAST:
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": last}]
        context = {"bos_token": "<s>", "eos_token": "</s>"}
        case = {"name": name, "template": template, "context": {"messages": messages, "add_generation_prompt": False, **context}}
        try:
            case["expected"] = render_jinja_template([messages], chat_template=template, continue_final_message=True, **context)[0][0]
        except ValueError as error:
            case["error"] = str(error).split("!")[0]
        cases.append(case)
path = pathlib.Path(__file__).parents[2] / "tests/golden/text/continued.json"
path.write_text(json.dumps({"transformers": transformers.__version__, "cases": cases}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
print(f"{path}: {len(cases)} cases, {sum('error' in case for case in cases)} refused")
