"""Questions of the agent, their answers, and what users have approved; kept in memory. Pure.

The log does not count: whatever runs in the workspace may write there. So a question is shown as
it was asked, an answer counts for that alone, and with each permission the agent gets a digest of
what it was given for. Nothing is known of what an earlier daemon has asked: the log says what it
was, no answer to it holds for always, and the agent asks again before it does anything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tollhouse.sandbox.daemon.sessions.log import PendingQuestion, SessionEvent, SessionRun

_SAFE_MODE: Final = "manual"
"""Of a run whose mode only the log has."""
_FRAME: Final = ("run", "interaction", "expires_at")
"""Fields of an event beside the question."""
_SHOWN: Final = {"permission": ("operation", "options"), "elicitation": ("message", "fields")}
"""Fields of each kind of question that clients see."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class InvalidAnswer(Exception):
    """The question does not offer this answer. The text is for the client."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A client's answer to a question."""

    outcome: str
    """The option, or `accept`, `decline` or `cancel`."""
    order: dict[str, Any] = field(repr=False)
    """What the agent gets beside the call."""
    verdict: tuple[str, str] | None = None
    """What holds for the rest of the session: a scope, and `allow` or `reject`."""


def public_question(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question as clients see it."""
    kind = "elicitation" if body.get("permission") is None else "permission"
    return {kind: {"kind": kind, **{name: body[kind][name] for name in _SHOWN[kind]}}}


def read_answer(body: Mapping[str, Any], text: str) -> ParsedAnswer:
    """Parse a client's answer; raise `InvalidAnswer` if the question does not offer it."""
    if (asked := body.get("permission")) is not None:
        return _permission(asked, text.strip())
    return _elicitation(body["elicitation"], text)


def standing_answer(body: Mapping[str, Any], verdicts: Mapping[str, str]) -> ParsedAnswer | None:
    """Return the answer that an earlier one for always gives to a question."""
    asked = body.get("permission")
    if asked is None or (verdict := verdicts.get(asked["scope"])) is None:
        return None
    return _permission(asked, f"{verdict}_once")


def _permission(asked: Mapping[str, Any], option: str) -> ParsedAnswer:
    if option == "cancel":
        return ParsedAnswer(option, {"permission": False})
    if option not in asked["options"]:
        offered = ", ".join(asked["options"])
        raise InvalidAnswer(f"The answer has to be one of {offered}, or cancel.")
    word = option.partition("_")[0]
    verdict = (asked["scope"], word) if option.endswith("_always") else None
    return ParsedAnswer(option, {"permission": word == "allow"}, verdict)


def _elicitation(asked: Mapping[str, Any], text: str) -> ParsedAnswer:
    try:
        given = json.loads(text)
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidAnswer("The answer has half a character.") from None
    except (ValueError, RecursionError):
        raise InvalidAnswer("The answer has to be a JSON object, with an action.") from None
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    match fields.get("action"):
        case "accept":
            content = _content(asked["fields"], fields.get("content"))
            return ParsedAnswer("accept", {"content": content})
        case "decline" | "cancel" as action:
            return ParsedAnswer(action, {"content": None})
        case _:
            raise InvalidAnswer("The answer's action has to be accept, decline or cancel.")


def _content(asked: list[Mapping[str, Any]], given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidAnswer("The answer's content has to be an object of fields.")
    content = cast("dict[str, Any]", given)
    known = {field["name"]: field for field in asked}
    if unknown := sorted(content.keys() - known.keys()):
        raise InvalidAnswer(f"The question has no such fields: {', '.join(unknown)}.")
    for name, wanted in known.items():
        if name in content and content[name] is not None:
            _check(name, wanted, content[name])
        elif wanted["required"]:
            raise InvalidAnswer(f"The answer lacks the field {name}.")
    return content


def _check(name: str, wanted: Mapping[str, Any], value: object) -> None:
    kinds = _TYPES.get(wanted["type"], ())
    is_flag = isinstance(value, bool)
    if not isinstance(value, kinds) or is_flag is not (bool in kinds):
        raise InvalidAnswer(f"The field {name} has to be of type {wanted['type']}.")
    options = wanted.get("options")
    if options and value not in options:
        raise InvalidAnswer(f"The field {name} has to be one of {', '.join(options)}.")


@dataclass(frozen=True, slots=True)
class _PausedRun:
    """A run that waits, or was continued with answers."""

    mode: str
    questions: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """As the agent asks them, by id."""
    allowed: dict[str, str] = field(default_factory=dict[str, str])
    """Digests of allowed operations, by call."""


class Approvals:
    """Questions and approvals of all runs and sessions."""

    def __init__(self) -> None:
        self._runs: dict[str, _PausedRun] = {}
        self._verdicts: dict[str, dict[str, str]] = {}

    def wait(self, run: SessionRun, questions: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember a run that waits, and its questions as the agent asks them, by id."""
        self._runs[run.id] = _PausedRun(run.mode, dict(questions))

    def forget(self, run: str) -> None:
        """Forget a run that has ended."""
        self._runs.pop(run, None)

    def mode(self, question: PendingQuestion) -> str:
        """Return the mode in which the run of a question continues."""
        asked = self._asked(question.run, question.id)
        return _SAFE_MODE if asked is None else self._runs[question.run].mode

    def body(self, question: PendingQuestion) -> Mapping[str, Any]:
        """Return what a question asks."""
        return self._asked(question.run, question.id) or question.body

    def restore_question(self, event: SessionEvent) -> SessionEvent:
        """Return an event with its question as it was asked; the log may have another by now."""
        if event.kind != "question":
            return event
        try:
            found = cast("dict[str, Any]", json.loads(event.data))
            frame = {name: found[name] for name in _FRAME}
        except (ValueError, TypeError, KeyError, RecursionError):
            return event
        asked = self._asked(frame["run"], frame["interaction"])
        if asked is None:
            return event
        told = {**frame, **public_question(asked)}
        return replace(event, data=json.dumps(told, ensure_ascii=False, separators=(",", ":")))

    def verdicts(self, session: str) -> Mapping[str, str]:
        """Return the answers for always in a session: `allow` or `reject`, by scope."""
        return self._verdicts.get(session, {})

    def verdicts_with(
        self, session: str, question: PendingQuestion, answer: ParsedAnswer
    ) -> Mapping[str, str]:
        """Return what `verdicts` will be once a question has its answer."""
        held = self.verdicts(session)
        if answer.verdict is None or self._asked(question.run, question.id) is None:
            return held
        scope, word = answer.verdict
        return {**held, scope: word}

    def answer(self, session: str, question: PendingQuestion, answer: ParsedAnswer) -> None:
        """Remember an answer."""
        asked = self._asked(question.run, question.id)
        if asked is None:
            return
        self._verdicts[session] = dict(self.verdicts_with(session, question, answer))
        if answer.order.get("permission"):
            self._runs[question.run].allowed[asked["call"]] = asked["permission"]["digest"]

    def with_digests(self, run: str, answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return answers with the digests of what each has allowed, as the agent gets them."""
        allowed = self._runs[run].allowed if run in self._runs else {}
        return [{**each, "digest": allowed.get(str(each.get("call")), "")} for each in answers]

    def _asked(self, run: object, question: object) -> Mapping[str, Any] | None:
        waiting = self._runs.get(str(run))
        return None if waiting is None else waiting.questions.get(str(question))
