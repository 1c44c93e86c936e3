"""Measures the demo model on held-out prompts: other wordings, operands, words, names, cities and schemas than in
training (data.py asserts it). Greedy, float32, through transformers (or, faster on a CPU, llama.cpp).

    python eval.py scores --work WORK --out DIR     scores.json for float32, Q8_0 and Q4_0 weights
    python eval.py prompts --work WORK --out DIR    eval-prompts.json: the Q8_0 reference's text, ids and margins
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import platform
import random
import re
from pathlib import Path

import torch

import chat
import data
import export
import fresh_wordings
from skills import arithmetic, json_answers, rillm_facts, small_talk, stories, system_prompts, tool_calls, word_work

SEED = "held-out 1"
MAX_NEW_TOKENS = 240
TARGETS = ["arithmetic, two digits", "arithmetic, three digits", "word work", "json", "tool call"]
# skill: (sampler, prompts)
SKILLS = {
    "arithmetic, two digits": (lambda rng: arithmetic.sample(rng, "held_out", digits=2), 500),
    "arithmetic, three digits": (lambda rng: arithmetic.sample(rng, "held_out", digits=3), 500),
    "word work": (lambda rng: word_work.sample(rng, "held_out"), 500),
    "json": (lambda rng: json_answers.sample(rng, "held_out"), 400),
    "tool call": (lambda rng: tool_calls.sample(rng, "held_out"), 400),
    "rillm facts": (lambda rng: rillm_facts.sample(rng, "held_out"), 200),
    "small talk": (lambda rng: small_talk.small_talk(rng, "held_out"), 150),
    "does not know": (lambda rng: small_talk.unknown(rng, "held_out"), 150),
    "system prompt": (lambda rng: system_prompts.sample(rng, "held_out"), 200),
    "story": (lambda rng: stories.sample(rng, "held_out"), 60),
}


@contextlib.contextmanager
def wordings_in_use(bank: dict):
    kept = arithmetic.HELD_OUT, word_work.HELD_OUT, tool_calls.HELD_OUT, json_answers.HELD_OUT_ASK, json_answers.HELD_OUT_SYSTEM
    arithmetic.HELD_OUT, word_work.HELD_OUT, tool_calls.HELD_OUT = bank["arithmetic"], bank["words"], bank["tools"]
    json_answers.HELD_OUT_ASK, json_answers.HELD_OUT_SYSTEM = bank["json"], bank["json_system"]
    try:
        yield
    finally:
        arithmetic.HELD_OUT, word_work.HELD_OUT, tool_calls.HELD_OUT, json_answers.HELD_OUT_ASK, json_answers.HELD_OUT_SYSTEM = kept


def fresh(skill: str, count: int, name: str) -> list:
    """Prompts with one of the further sets of held-out wordings."""
    with wordings_in_use(fresh_wordings.SETS[name]):
        data.assert_no_overlap(100)
        return held_out(skill, count, name)


def held_out(skill: str, count: int, name: str = "") -> list:
    """`count` different prompts of a skill."""
    sampler, _ = SKILLS[skill]
    rng, seen, examples = random.Random(f"{SEED}/{skill}{name}"), set(), []
    for _ in range(count * 50):
        example = sampler(rng)
        key = json.dumps([example.messages[:-1], example.tools])
        if key not in seen:
            seen.add(key)
            examples.append(example)
        if len(examples) == count:
            break
    return examples


def asked(example) -> list:
    """The messages up to and with the user's; what the model has to answer."""
    last = max(at for at, message in enumerate(example.messages) if message["role"] == "user")
    return example.messages[: last + 1]


def judge(text: str, expect: dict, fold: bool = False) -> bool:
    """Whether an answer is right. fold: letters' case does not count (the rule that changed it is judged apart)."""
    kind = expect["type"]
    shape = (lambda part: str(part).lower()) if fold else str
    text = shape(text)
    numbers = re.findall(r"(?:(?<=[\s(])|^)-?\d+|\d+", text)
    if kind == "last_number":
        return bool(numbers) and int(numbers[-1]) == expect["value"]
    if kind == "first_number":
        return bool(numbers) and int(numbers[0]) == expect["value"]
    if kind == "starts_with":
        return re.match(re.escape(shape(expect["value"])) + r"(?!\w)", text) is not None
    if kind == "ends_with":
        return f" {text.rstrip('.')}".endswith(" " + shape(expect["value"]))
    if kind == "contains":
        return any(phrase.lower() in text.lower() for phrase in expect["any"])
    if kind == "contains_all":
        return all(shape(phrase) in text for phrase in expect["all"])
    if kind == "story":
        return all(phrase.lower() in text.lower() for phrase in expect["all"]) and len(text.split()) >= expect["words"]
    if kind == "json":
        try:
            return json.loads(text) == expect["value"]
        except ValueError:
            return False
    if kind == "tool_call":
        match = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text, re.S)
        try:
            return match is not None and json.loads(match[1]) == {"name": expect["name"], "arguments": expect["arguments"]}
        except ValueError:
            return False
    if kind in ("upper", "lower"):
        changed = text.upper() if kind == "upper" else text.lower()
        return text == changed and judge(text, expect["inner"], fold=True)
    raise ValueError(kind)


class Greedy:
    def __init__(self, state, tokenizer, device):
        self.model = export.transformers_model(state).to(device)
        self.tokenizer, self.device = tokenizer, device
        self.end, self.pad = tokenizer.token_to_id(chat.EOS), tokenizer.token_to_id(chat.PAD)

    @torch.inference_mode()
    def texts(self, prompts: list[str], temperature: float = 0.0, batch: int = 256) -> list[str]:
        """Answers in the prompts' order; prompts of like length share a batch, padded on the left."""
        encoded = [self.tokenizer.encode(prompt).ids for prompt in prompts]
        order = sorted(range(len(prompts)), key=lambda at: len(encoded[at]))
        answers = [""] * len(prompts)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            width = max(len(encoded[at]) for at in rows)
            ids = torch.tensor([[self.pad] * (width - len(encoded[at])) + encoded[at] for at in rows], device=self.device)
            mask = torch.tensor([[0] * (width - len(encoded[at])) + [1] * len(encoded[at]) for at in rows], device=self.device)
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
            out = self.model.generate(ids, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS, eos_token_id=self.end, pad_token_id=self.pad, **sampling)
            for at, row in zip(rows, out[:, width:].tolist()):
                row = row[: row.index(self.end)] if self.end in row else row
                answers[at] = self.tokenizer.decode(row)
        return answers

    @torch.inference_mode()
    def walk(self, prompt: str, limit: int = MAX_NEW_TOKENS) -> tuple[str, list, list]:
        """One prompt alone → text, ids (without the end mark), the margin of the best logit at each step (end included)."""
        ids = torch.tensor([self.tokenizer.encode(prompt).ids], device=self.device)
        past, chosen, margins = None, [], []
        for _ in range(limit):
            out = self.model(ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            best = torch.topk(out.logits[0, -1], 2)
            margins.append(round(float(best.values[0] - best.values[1]), 4))
            token = int(best.indices[0])
            if token == self.end:
                break
            chosen.append(token)
            ids = torch.tensor([[token]], device=self.device)
        return self.tokenizer.decode(chosen), chosen, margins


class GreedyLlamaCpp:
    """The same on the CPU by llama.cpp, from an F32 GGUF of the (dequantised) weights: float32 arithmetic too, much faster there."""

    def __init__(self, state, tokenizer, work):
        import llama_cpp

        self.tokenizer, self.end = tokenizer, tokenizer.token_to_id(chat.EOS)
        path = Path(work) / f"f32-{os.getpid()}.gguf"
        export.write_f32(state, work, path)
        self.model = llama_cpp.Llama(str(path), n_ctx=data.CONTEXT, n_threads=1, n_threads_batch=1, logits_all=False, verbose=False, seed=1)
        path.unlink()

    def texts(self, prompts: list[str], temperature: float = 0.0) -> list[str]:
        answers = []
        for seed, prompt in enumerate(prompts, 1):
            ids = self.tokenizer.encode(prompt).ids
            self.model.reset()
            self.model.set_seed(seed)
            answer = []
            for token in self.model.generate(ids, temp=temperature, top_k=0 if temperature else 1, top_p=1.0, min_p=0.0, repeat_penalty=1.0):
                if token == self.end or len(answer) == MAX_NEW_TOKENS:
                    break
                answer.append(token)
            answers.append(self.tokenizer.decode(answer))
        return answers


def percent(results: list) -> float:
    return round(100 * sum(results) / len(results), 2)


def measure(greedy: Greedy) -> tuple[dict, list]:
    """→ scores per skill (with parts), the failures."""
    examples = [(skill, example) for skill, (_, count) in SKILLS.items() for example in held_out(skill, count)]
    examples += [(f"{skill} ({name})", example) for name in fresh_wordings.SETS for skill in TARGETS for example in fresh(skill, 150, name)]
    answers = greedy.texts([chat.render(asked(example), example.tools, True) for _, example in examples])
    results, parts, failures = collections.defaultdict(list), collections.defaultdict(list), []
    second = []
    for (skill, example), text in zip(examples, answers):
        right = judge(text, example.expect)
        results[skill].append(right)
        task = example.expect.get("task") or (example.expect["name"] if skill.startswith("tool call") else None)
        if task:
            parts[skill, task].append(right)
        if skill == "tool call" and right:
            second.append(example)
        if not right:
            failures.append({"skill": skill, "messages": asked(example), "answer": text, "expect": example.expect})
    used = greedy.texts([chat.render(example.messages[:-1], example.tools, True) for example in second])
    for example, text in zip(second, used):
        right = judge(text, {"type": "contains_all", "all": example.expect["answer"]})
        results["tool answer used"].append(right)
        if not right:
            failures.append({"skill": "tool answer used", "messages": example.messages[:-1], "answer": text, "expect": example.expect})
    scores = {}
    for skill, values in results.items():
        scores[skill] = {"right": percent(values), "prompts": len(values)}
        detail = {task: {"right": percent(found), "prompts": len(found)} for (of, task), found in sorted(parts.items()) if of == skill}
        if detail:
            scores[skill]["parts"] = detail
    return scores, failures


def scores(options):
    data.assert_no_overlap()
    known = Path(options.out) / "scores.json"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    tokenizer, state = data.load_tokenizer(options.work), export.load_state(options.work)
    found, failed = {}, {}
    files = [None, "q8_0", "q4_0"] if options.only is None else [None if options.only == "f32" else options.only]
    different = None
    for file in files:
        weights = export.held_state(state, file)
        greedy = GreedyLlamaCpp(weights, tokenizer, options.work) if options.engine == "llama.cpp" else Greedy(weights, tokenizer, device)
        found[file or "f32"], failed[file or "f32"] = measure(greedy)
        if file is None:
            torch.manual_seed(1)
            told = greedy.texts([chat.render([{"role": "user", "content": "Tell me a story."}], None, True)] * 40, temperature=0.8)
            different = len(set(told))
    versions = {"python": platform.python_version()}
    for module in ["torch", "transformers"] if options.engine == "transformers" else ["llama_cpp"]:
        versions[module] = importlib.import_module(module).__version__
    if options.only and known.exists():  # add to what other calls have measured
        earlier = json.loads(known.read_text())
        found = earlier["scores"] | found
        different = earlier["different_stories_of_40_sampled_at_0.8"] if different is None else different
    record = {
        "how": f"greedy, float32 arithmetic by {options.engine}, held-out prompts; q8_0 and q4_0 run on the dequantised weights of the files",
        "scores": found,
        "different_stories_of_40_sampled_at_0.8": different,
        "versions": versions,
        "seed": SEED,
    }
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "scores.json").write_text(json.dumps(record, indent=1) + "\n")
    (Path(options.work) / f"failures{'-' + options.only if options.only else ''}.json").write_text(json.dumps(failed, indent=1, ensure_ascii=False))
    first = found[next(iter(found))]
    for skill in first:
        print(f"{skill:46}" + "".join(f"{name} {found[name][skill]['right']:6.2f}   " for name in found))
        for task, value in first[skill].get("parts", {}).items():
            print(f"    {task:20} {value['right']:6.2f} of {value['prompts']}")


def prompts(options):
    """Twelve to thirteen held-out prompts of each skill with the Q8_0 reference's greedy answer, one at a time on the CPU."""
    torch.set_float32_matmul_precision("highest")
    tokenizer, state = data.load_tokenizer(options.work), export.load_state(options.work)
    greedy = Greedy(export.held_state(state, "q8_0"), tokenizer, "cpu")
    listed = []
    for skill in SKILLS:
        for example in held_out(skill, 12):
            messages = asked(example)
            prompt = chat.render(messages, example.tools, True)
            text, ids, margins = greedy.walk(prompt)
            entry = {"skill": skill, "messages": messages}
            if example.tools:
                entry["tools"] = example.tools
            entry |= {"prompt_tokens": len(tokenizer.encode(prompt).ids), "text": text, "token_ids": ids, "right": judge(text, example.expect), "margins": margins, "smallest_margin": min(margins)}
            listed.append(entry)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in listed)
    (Path(options.out) / "eval-prompts.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(listed)} prompts, {sum(entry['right'] for entry in listed)} right, smallest margin {min(entry['smallest_margin'] for entry in listed)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["scores", "prompts"])
    parser.add_argument("--work", default="/tmp/rillm-demo-model")
    parser.add_argument("--out", default=str(Path(__file__).resolve().parents[2] / "models" / "demo"))
    parser.add_argument("--engine", choices=["transformers", "llama.cpp"], default="transformers", help="llama.cpp is faster on a CPU")
    parser.add_argument("--only", choices=["f32", "q8_0", "q4_0"], help="measure these weights alone and add them to scores.json")
    options = parser.parse_args()
    {"scores": scores, "prompts": prompts}[options.command](options)


if __name__ == "__main__":
    main()
