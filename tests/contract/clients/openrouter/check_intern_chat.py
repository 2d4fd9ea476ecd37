"""Talks to an intern with `openrouter` 1.3.30; prints JSON.

Environment: BASE_URL, INTERN (one that runs), KEYS, among them `api`, and STEPS, the names of what
its daemon answers next, in turn; what is said to it follows from the name. All that comes after
them is refused before the daemon is asked.
"""

import json
import os

from caller import client, shown
from openrouter import errors


def said(interns, intern: str, messages: list, **more: str) -> dict:
    """Return what the library makes of an answer: its chunks, or whatever else came."""
    try:
        reply = interns.chat(intern_id=intern, messages=messages, **more).result
        if hasattr(reply, "status"):
            return {"class": type(reply).__name__, **shown(reply)}
        with reply as stream:
            chunks = list(stream)
    except errors.OpenRouterError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "told": json.loads(error.body)["error"],
            "retry_after": error.headers.get("retry-after"),
        }
    (kind,) = {type(chunk).__name__ for chunk in chunks}
    return {"class": kind, "chunks": [shown(chunk) for chunk in chunks]}


def prompt(text: str) -> list:
    return [{"role": "user", "content": text}]


def reply_to(asked: dict, content: str) -> list:
    """Return what answers a question: the call that was streamed, and the answer."""
    (call,) = (
        each
        for chunk in asked["chunks"]
        for choice in chunk["choices"]
        for each in choice["delta"].get("tool_calls") or []
    )
    echoed = {"id": call["id"], "type": "function", "function": call["function"]}
    return [
        *prompt("Clean up."),
        {"role": "assistant", "content": None, "tool_calls": [echoed]},
        {"role": "tool", "tool_call_id": call["id"], "content": content},
    ]


keys = json.loads(os.environ["KEYS"])
interns = client(keys.pop("api")).interns
intern = os.environ["INTERN"]
seen = {}
asked: dict = {}
for step in json.loads(os.environ["STEPS"]):
    kind, _, rest = step.partition(": ")
    if kind == "answer":
        session = asked["chunks"][-1]["session_id"]
        seen[step] = said(interns, intern, reply_to(asked, rest), session_id=session)
    elif kind == "steer":
        seen[step] = said(interns, intern, prompt("Faster."), session_id="mine")
    else:
        asked = seen[step] = said(interns, intern, prompt("Clean up."), approval_mode="manual")
late = [{"role": "tool", "tool_call_id": "x", "content": "cancel"}]
seen["without a session"] = said(interns, intern, late)
seen["unknown"] = said(interns, "nobody", prompt("Hello"))
seen["unknown mode"] = said(interns, intern, prompt("Hello"), approval_mode="auto")
seen["too long"] = said(interns, intern, prompt("x" * 32_001))
seen["too large"] = said(interns, intern, prompt("x" * 2_000_000))
for name, key in keys.items():
    seen[name] = said(client(key).interns, intern, prompt("Hello"))
print(json.dumps(seen))
