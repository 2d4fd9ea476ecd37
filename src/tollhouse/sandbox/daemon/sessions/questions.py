"""What is asked, and what an answer says. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

_CANCEL: Final = "cancel"
_ALWAYS: Final = "_always"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class BadAnswer(Exception):
    """The question does not offer this. The text is for the client."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To a question."""

    outcome: str
    """The option, or `accept`, `decline` or `cancel`."""
    order: dict[str, Any] = field(repr=False)
    """What the agent is told, beside the call."""
    verdict: tuple[str, str] | None = None
    """What holds from now on: a scope, and `allow` or `reject`."""


def shown(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients are told of a question."""
    if (asked := body.get("permission")) is not None:
        told = {"operation": asked["operation"], "options": asked["options"]}
        return {"permission": {"kind": "permission", **told}}
    asked = body["elicitation"]
    told = {"message": asked["message"], "fields": asked["fields"]}
    return {"elicitation": {"kind": "elicitation", **told}}


def read_answer(body: Mapping[str, Any], text: str) -> Answer:
    """Return what a client's answer says.

    Raises:
        BadAnswer: It is none that the question offers.
    """
    if (asked := body.get("permission")) is not None:
        return _permission(asked, text.strip())
    return _elicitation(body["elicitation"], text)


def standing_answer(body: Mapping[str, Any], verdicts: Mapping[str, str]) -> Answer | None:
    """Return the answer to a question that was given for always, and before."""
    asked = body.get("permission")
    if asked is None or (verdict := verdicts.get(asked["scope"])) is None:
        return None
    return _permission(asked, f"{verdict}_once")


def _permission(asked: Mapping[str, Any], option: str) -> Answer:
    if option == _CANCEL:
        return Answer(option, {"permission": False})
    if option not in asked["options"]:
        offered = ", ".join(asked["options"])
        raise BadAnswer(f"The answer has to be one of {offered}, or {_CANCEL}.")
    word = option.partition("_")[0]
    verdict = (asked["scope"], word) if option.endswith(_ALWAYS) else None
    return Answer(option, {"permission": word == "allow"}, verdict)


def _elicitation(asked: Mapping[str, Any], text: str) -> Answer:
    try:
        given = json.loads(text)
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadAnswer("The answer has half a character.") from None
    except (ValueError, RecursionError):
        raise BadAnswer("The answer has to be a JSON object, with an action.") from None
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    match fields.get("action"):
        case "accept":
            return Answer("accept", {"content": _content(asked["fields"], fields.get("content"))})
        case "decline" | "cancel" as action:
            return Answer(action, {"content": None})
        case _:
            raise BadAnswer("The answer's action has to be accept, decline or cancel.")


def _content(asked: list[Mapping[str, Any]], given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise BadAnswer("The answer's content has to be an object of fields.")
    content = cast("dict[str, Any]", given)
    known = {field["name"]: field for field in asked}
    if unknown := sorted(content.keys() - known.keys()):
        raise BadAnswer(f"The question has no such fields: {', '.join(unknown)}.")
    for name, wanted in known.items():
        if name in content and content[name] is not None:
            _check(name, wanted, content[name])
        elif wanted["required"]:
            raise BadAnswer(f"The answer lacks the field {name}.")
    return content


def _check(name: str, wanted: Mapping[str, Any], value: object) -> None:
    kinds = _TYPES.get(wanted["type"], ())
    is_flag = isinstance(value, bool)
    if not isinstance(value, kinds) or is_flag is not (bool in kinds):
        raise BadAnswer(f"The field {name} has to be of type {wanted['type']}.")
    options = wanted.get("options")
    if options and value not in options:
        raise BadAnswer(f"The field {name} has to be one of {', '.join(options)}.")
