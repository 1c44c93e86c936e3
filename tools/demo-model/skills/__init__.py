"""One module per skill. Each has `sample(rng, split) -> Example` with split "train" or "held_out"."""

from dataclasses import dataclass, field


@dataclass
class Example:
    skill: str
    messages: list  # OpenAI-shaped; the last one is the assistant's
    expect: dict  # how eval.py judges the answer: {"type": ..., ...}
    wording: str  # the template the request came from: held-out ones never occur in training
    tools: list | None = None
    facts: dict = field(default_factory=dict)  # what a follow-up question may refer to


def turn(user: str, assistant: str) -> list:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
