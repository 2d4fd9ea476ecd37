"""The simulated agent: runs the script in a prompt, one tool call in each turn. Pure.

    think: I should look first.
    write: hello.py
      print(6 * 7)
    run: python3 hello.py
    say: It printed what you see above.

`parse_script` parses the steps of a prompt, `next_steps` derives from a conversation which come
next: each tool result since the prompt is a completed step. The model is therefore stateless, and
continues after any interruption of a run. The steps are listed in `docs/guide/simulated-agent.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tollhouse.inference.providers.simulated.request import SimulatedMessage

HELP: Final = (
    "I am a simulated agent: no model is asked, and I understand scripts alone. Send me lines "
    "such as\n\n"
    "write: hello.py\n"
    "  print(6 * 7)\n"
    "run: python3 hello.py\n\n"
    "There are also read, fetch, ask, call, say, think and again. For an agent that understands "
    "you, give the intern another model.\n"
)
_DONE: Final = "I am a simulated agent: no model was asked, I followed your script.\n"
_LONGEST_RESULT: Final = 2_000
"""Characters of a result in the report."""
_STEP: Final = re.compile(
    r"(run with network|run|write|read|fetch|ask|call|say|think|again):[ \t]*(.*)", re.IGNORECASE
)
_OPTIONS: Final = re.compile(r"(.*\S)\s*\(([^()|]*\|[^()]*)\)")
_METHOD: Final = re.compile(r"(GET|HEAD|POST|PUT|PATCH|DELETE)\s+(.*)")


@dataclass(frozen=True, slots=True, repr=False)
class AgentStep:
    """Outputs text or reasoning, or calls a tool."""

    kind: Literal["text", "reasoning", "call"]
    text: str
    """A call's is its arguments: JSON, unless the script has something else."""
    tool: str = ""
    title: str = ""
    """The title of a call in the report."""


@dataclass(frozen=True, slots=True, repr=False)
class AgentScript:
    """The steps of a prompt, in order."""

    steps: Sequence[AgentStep]
    repeats: bool
    """Whether it starts again after the last step, endlessly."""


def parse_script(text: str) -> AgentScript | None:
    """Parse the script in a prompt; None if no line is a step."""
    steps: list[AgentStep] = []
    repeats = False
    for verb, rest, block in _lines(text):
        if verb == "again":
            repeats = True
            break
        steps.append(_READERS[verb](rest, block))
    return AgentScript(steps, repeats) if steps else None


def next_steps(messages: Sequence[SimulatedMessage], tools: Collection[str]) -> Sequence[AgentStep]:
    """Return the next steps of a conversation, up to the tool call that ends the turn, if any."""
    begun = _begun(_turn(messages))
    if begun is None:
        return [AgentStep("text", HELP)]
    plan, since = begun
    results = [message.acknowledged_text for message in since if message.is_result]
    found: list[AgentStep] = []
    for step in plan.steps[_begin(plan, len(results)) :]:
        if step.kind == "call" and step.tool not in tools:
            text = f"I am a simulated agent, and have no tool {step.tool!r} here.\n"
            return [*found, AgentStep("text", text)]
        found.append(step)
        if step.kind == "call":
            return found
    if any(step.kind == "text" for step in found):
        return found
    return [*found, AgentStep("text", _report(plan, results))]


def _begin(plan: AgentScript, done: int) -> int:
    """Return the index of the step after that many calls."""
    calls = [index for index, step in enumerate(plan.steps) if step.kind == "call"]
    if plan.repeats and calls:
        done %= len(calls)
    if not done:
        return 0
    return calls[done - 1] + 1 if done <= len(calls) else len(plan.steps)


def _report(plan: AgentScript, results: Sequence[str]) -> str:
    calls = (step for step in plan.steps if step.kind == "call")
    told = (
        f"\n{number}. {call.title}\n{_short(result)}\n"
        for number, (call, result) in enumerate(zip(calls, results, strict=False), 1)
    )
    return _DONE + "".join(told)


def _short(result: str) -> str:
    text = result.strip()
    return text if len(text) <= _LONGEST_RESULT else f"{text[:_LONGEST_RESULT]} [...]"


def _turn(messages: Sequence[SimulatedMessage]) -> Sequence[SimulatedMessage]:
    """Return the messages since the assistant last spoke without a tool call."""
    ended = [
        index
        for index, message in enumerate(messages)
        if message.role == "assistant" and not message.tool_calls
    ]
    return messages[ended[-1] + 1 :] if ended else messages


def _begun(
    turn: Sequence[SimulatedMessage],
) -> tuple[AgentScript, Sequence[SimulatedMessage]] | None:
    """Return the latest script of a turn, and the messages after it.

    A later message without a script does not interrupt the script that is running.
    """
    for index in range(len(turn) - 1, -1, -1):
        if turn[index].role == "user" and (plan := parse_script(turn[index].text)):
            return plan, turn[index + 1 :]
    return None


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the verb of each step, the rest of its line, and the block that follows it."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        found = _STEP.fullmatch(lines[at])
        at += 1
        if found is None:
            continue
        end = _block_end(lines, at)
        block = dedent("".join(f"{line}\n" for line in lines[at:end]))
        yield found[1].lower(), found[2].strip(), block
        at = end


def _block_end(lines: Sequence[str], at: int) -> int:
    """Return where an indented block ends; blank lines belong to it if it continues."""
    end = at
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t"):
        at += 1
        if lines[at - 1].strip():
            end = at
    return end


def _fetch(rest: str, block: str) -> AgentStep:
    method = _METHOD.fullmatch(rest)
    verb, url = (method[1], method[2]) if method else ("GET", rest)
    pairs = (line.partition(":") for line in block.splitlines() if line.strip())
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    arguments = {"method": verb, "url": url, "headers": headers}
    return _call("http_request", arguments, f"fetch: {rest}")


def _ask(rest: str, _: str) -> AgentStep:
    found = _OPTIONS.fullmatch(rest)
    field: dict[str, object] = {"name": "answer", "type": "string", "required": True}
    if found:
        field["options"] = [option.strip() for option in found[2].split("|")]
    arguments = {"message": found[1] if found else rest, "fields": [field]}
    return _call("ask_user", arguments, f"ask: {rest}")


def _any(rest: str, block: str) -> AgentStep:
    name, _, arguments = rest.partition(" ")
    return AgentStep("call", _joined(arguments.strip(), block) or "{}", name, f"call: {name}")


def _call(tool: str, arguments: Mapping[str, object], title: str) -> AgentStep:
    return AgentStep("call", msgspec.json.encode(arguments).decode(), tool, title)


def _joined(rest: str, block: str) -> str:
    return f"{rest}\n{block}" if rest and block else rest or block


_READERS: Final[dict[str, Callable[[str, str], AgentStep]]] = {
    "run": lambda rest, block: _call("shell", {"command": _joined(rest, block)}, f"run: {rest}"),
    "run with network": lambda rest, block: _call(
        "shell", {"command": _joined(rest, block), "network": True}, f"run with network: {rest}"
    ),
    "write": lambda rest, block: _call(
        "write_file", {"path": rest, "content": block}, f"write: {rest}"
    ),
    "read": lambda rest, _: _call("read_file", {"path": rest}, f"read: {rest}"),
    "fetch": _fetch,
    "ask": _ask,
    "call": _any,
    "say": lambda rest, block: AgentStep("text", f"{_joined(rest, block)}\n"),
    "think": lambda rest, block: AgentStep("reasoning", f"{_joined(rest, block)}\n"),
}
