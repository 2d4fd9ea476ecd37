"""Has the same conversations in every format of a client library; prints what it saw as JSON.

    CELLS="[[format, dialect, feature], ...]" ─▶ run({format: Format}) ─▶ {"f d x": seen}

`dialects.py` beside this folder says which cells there are. A cell that goes wrong says so and
hides no other one. Environment: CELLS, BASE_URL, API_KEY, UPSTREAM.
"""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterable
from typing import Any, Protocol

TEXT = "one two three"
SYSTEM = "be brief"
TURNS = ("one", "two", "three four")
NEXT = "and then?"
LONG = " ".join(f"w{number}" for number in range(20))
LIMIT = 16
STOP = " three"
PREFILL = "well"
PNG = "AAAA"
RESULTS = ("cold", "noon")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = {"weather": CITY, "time": {"type": "object", "properties": {}}}
FORCED = "time"

CALLING = {"tool", "two tools", "forced tool", "thought and call"}
THINKING = {"reasoning", "hidden reasoning", "thought and call"}
GOES_ON = CALLING | THINKING
"""Features with a second request, which sends the first reply back."""
MODELS = {
    "tool": "tools",
    "two tools": "two-tools",
    "forced tool": "tools",
    "thought and call": "tools",
    "json": "json",
    "refusal": "refusal",
    "hidden reasoning": "redacted",
    "cached": "cached",
}
"""Feature -> the stand-in's behaviour; without one it is an echo."""
REASONING = {"chat": "reasoning-details", "responses": "reasoning", "messages": "thinking"}

USER = {"role": "user", "content": TEXT}
_PLACES = ("system", "user", "assistant", "user")
_SCHEMA = {"name": "forecast", "schema": CITY, "strict": True}
_URL = f"data:image/png;base64,{PNG}"
_TOLD = [
    {"role": role, "content": text} for role, text in zip(_PLACES, (SYSTEM, *TURNS), strict=True)
]
CHAT_FEATURES: dict[str, dict[str, Any]] = {
    "turns": {"messages": _TOLD},
    "forced tool": {"tool_choice": {"type": "function", "function": {"name": FORCED}}},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": _URL}},
                    {"type": "text", "text": "look"},
                ],
            }
        ]
    },
    "json": {"response_format": {"type": "json_schema", "json_schema": _SCHEMA}},
    "stop": {"stop": [STOP]},
    "length": {"max_tokens": LIMIT, "messages": [{"role": "user", "content": LONG}]},
    "prefill": {"messages": [USER, {"role": "assistant", "content": PREFILL}]},
}
"""The fields of chats that show a feature, in OpenAI's format."""
RESPONSES_FEATURES: dict[str, dict[str, Any]] = {
    "turns": {"instructions": SYSTEM, "input": _TOLD[1:]},
    "forced tool": {"tool_choice": {"type": "function", "name": FORCED}},
    "image": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": _URL, "detail": "auto"},
                    {"type": "input_text", "text": "look"},
                ],
            }
        ]
    },
    "json": {"text": {"format": {"type": "json_schema", **_SCHEMA}}},
    "length": {"max_output_tokens": LIMIT, "input": LONG},
}
"""The same of responses."""


class Format(Protocol):
    """One format of a client library. Every reply is validated with the library's own types."""

    def fields(self, model: str, feature: str) -> dict[str, Any]:
        """Return the arguments of the request that shows a feature."""

    def more(self, fields: dict[str, Any], reply: Any) -> dict[str, Any]:
        """Return the next request: the reply, then the results of its calls or `NEXT`."""

    def whole(self, fields: dict[str, Any]) -> Any:
        """Return the whole reply."""

    def streamed(self, fields: dict[str, Any]) -> Any:
        """Return what a stream adds up to."""

    def said(self, reply: Any) -> dict[str, Any]:
        """Return what a reply says, in words that all formats share."""


def said(
    text: str = "",
    *,
    reason: str,
    usage: tuple[int, int, float],
    thought: str = "",
    refusal: str | None = None,
    calls: Iterable[tuple[str, str]] = (),
    **more: object,
) -> dict[str, Any]:
    """Return what a reply says; `usage` is input tokens, output tokens, cost."""
    listed = [[name, json.loads(arguments)] for name, arguments in calls]
    words = {"text": text, "reason": reason, "thought": thought, "refusal": refusal}
    return words | {"calls": listed, "usage": list(usage)} | more


def model_of(dialect: str, feature: str) -> str:
    """Return the model that shows a feature at the provider of a dialect."""
    if feature == "reasoning":
        return f"{dialect}/{REASONING[dialect]}"
    behaviour = feature.removeprefix("error ") if feature.startswith("error ") else "echo"
    return f"{dialect}/{MODELS.get(feature, behaviour)}"


def converse(spoken: Format, dialect: str, feature: str) -> dict[str, Any]:
    """Return what was seen of a feature, whole and streamed."""
    seen: dict[str, Any] = {}
    fields = spoken.fields(model_of(dialect, feature), feature)
    for way, ask in (("whole", spoken.whole), ("streamed", spoken.streamed)):
        reply = ask(fields)
        seen[way] = spoken.said(reply)
        if feature in GOES_ON:
            seen[way]["then"] = spoken.said(ask(spoken.more(fields, reply)))
            seen[way]["proofs"] = proofs()
    return seen


def proofs() -> list[str]:
    """Return the kinds of proofs of reasoning in the last request that reached the provider."""
    with urllib.request.urlopen(os.environ["UPSTREAM"] + "/_seen") as reply:  # noqa: S310 - ours
        body = json.load(reply)["raw_body"]
    return sorted(set(re.findall(r'"(sig|enc|redacted)-[0-9a-f-]+"', body)))


def run(formats: dict[str, Format], special: dict[str, Any]) -> None:
    """Print what each cell saw; `special` has features that are no conversation."""
    found: dict[str, Any] = {}
    for form, dialect, feature in json.loads(os.environ["CELLS"]):
        show = special.get(feature.partition(" ")[0], converse)
        try:
            seen = show(formats.get(form), dialect, feature)
        except Exception as error:  # noqa: BLE001 - whatever a library raises is what was seen
            seen = {"error": f"{type(error).__name__}: {error}"[:3000]}
        found[f"{form} {dialect} {feature}"] = seen
    json.dump(found, sys.stdout)
