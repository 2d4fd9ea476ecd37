"""What Slack is sent and what it sends: the app's manifest, texts, questions, answers. Pure.

Source: https://docs.slack.dev/reference/app-manifest, /messaging/formatting-message-text,
/reference/block-kit/blocks, /reference/interaction-payloads/block_actions-payload,
/reference/methods/chat.postMessage (texts of at most 4,000 characters are advised, and cut at
40,000).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.interns.chat.events import ElicitationField, ElicitationRequest, QuestionEvent

LONGEST_TEXT: Final = 3_500
"""Characters of one message, escaped: well below what is shown of one without being folded."""
MOST_FIELDS: Final = 10
"""Of a form in a message."""
MOST_OPTIONS: Final = 100
_LONGEST_SECTION: Final = 2_900
_MOST_SECTIONS: Final = 30
"""Of a question; a message has at most 50 blocks."""
_LONGEST_LABEL: Final = 75
ANSWER: Final = "intern_answer"
"""What the ids of the actions of a question begin with; a word for the answer follows."""
WAKE: Final = "intern_wake"
SUBMIT: Final = "submit"
_DECLINE: Final = "decline"
_LABELS: Final = {
    "allow_once": "Allow once",
    "allow_always": "Allow always",
    "reject_once": "Reject",
    "reject_always": "Reject always",
    SUBMIT: "Send",
    _DECLINE: "Decline",
}
_SCOPES: Final = (
    *("app_mentions:read", "channels:history", "chat:write", "files:read", "groups:history"),
    *("im:history", "im:read", "im:write", "users:read"),
)
_EVENTS: Final = ("app_mention", "message.im")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_UNESCAPED: Final = {escaped: plain for plain, escaped in _ESCAPES.items()}
_ESCAPED: Final = re.compile("|".join(_UNESCAPED))
_NO_MEMBERS: Final = (
    *("deleted", "is_bot", "is_workflow_bot", "is_stranger", "is_restricted"),
    "is_ultra_restricted",
)
"""What a user object says of bots, guests and people of other workspaces."""
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and signs that show nothing."""
_LAST_OF_FOUR: Final = 0xFFFF
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


def manifest(name: str, events_url: str | None = None) -> dict[str, Any]:
    """Return the manifest of an intern's app.

    It uses Socket Mode; with a URL, Slack sends signed requests there instead.
    """
    settings: dict[str, Any] = {
        "event_subscriptions": {"bot_events": list(_EVENTS)},
        "interactivity": {"is_enabled": True},
        "org_deploy_enabled": False,
        "socket_mode_enabled": events_url is None,
        "token_rotation_enabled": False,
    }
    if events_url is not None:
        settings["event_subscriptions"]["request_url"] = events_url
        settings["interactivity"]["request_url"] = events_url
    return {
        "display_information": {"name": name},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": name, "always_online": True},
        },
        "oauth_config": {"scopes": {"bot": list(_SCOPES)}},
        "settings": settings,
    }


def is_member(user: Mapping[str, Any], team: str) -> bool:
    """Tell whether a user object is that of a full member of a workspace."""
    whole = cast("Mapping[str, list[str]]", user.get("enterprise_user") or {})
    teams = {user.get("team_id"), *whole.get("teams", ())}
    return team in teams and not any(user.get(each) for each in _NO_MEMBERS)


def visible(text: str) -> str:
    """Return a text in which every character shows: a command reads as it runs.

    Others than printable ones, which reorder, hide or overwrite what stands beside them, are
    written by their numbers.
    """
    return "".join(each if _shows(each) else _numbered(each) for each in text)


def _shows(each: str) -> bool:
    is_selector = "\ufe00" <= each <= "\ufe0f" or "\U000e0100" <= each <= "\U000e01ef"
    is_shown = each.isprintable() and each not in _BLANK and not is_selector
    return is_shown or each in "\n\t"


def _numbered(each: str) -> str:
    number = ord(each)
    return f"\\U{number:08x}" if number > _LAST_OF_FOUR else f"\\u{number:04x}"


def escaped(text: str) -> str:
    """Return a text so that it neither links nor mentions anybody."""
    return "".join(_ESCAPES.get(each, each) for each in text)


def unescaped(text: str) -> str:
    """Return what somebody has typed."""
    return _ESCAPED.sub(lambda found: _UNESCAPED[found[0]], text)


def first_message(text: str) -> tuple[str, str]:
    """Return what of an escaped text fits into one message, and the rest."""
    if len(text) <= LONGEST_TEXT:
        return text, ""
    cut = text.rfind("\n", LONGEST_TEXT // 2, LONGEST_TEXT) + 1 or LONGEST_TEXT
    if (begun := text.rfind("&", cut - 4, cut)) > 0 and ";" not in text[begun:cut]:
        cut = begun  # never within an escape
    return text[:cut], text[cut:]


def wake_blocks(text: str) -> list[dict[str, Any]]:
    """Return a message that offers to wake an intern."""
    return [_section(text), _actions([_button(WAKE, "Wake it", "wake", primary=True)])]


def question_text(question: QuestionEvent) -> str:
    """Return what an intern asks, in one text; the beginning of a long one."""
    if question.permission is not None:
        asked = f"May I do this?\n{question.permission.operation or ''}"
    else:
        asked = "" if question.elicitation is None else question.elicitation.message
    text, rest = first_message(escaped(visible(asked)))
    return f"{text}..." if rest else text


def question_blocks(question: QuestionEvent) -> list[dict[str, Any]]:
    """Return a message that asks what an intern asks; what is not shown whole cannot be allowed."""
    asked = question.elicitation
    if asked is None:
        operation, options = "", list[str]()
        if question.permission is not None:
            operation, options = question.permission.operation or "", [*question.permission.options]
        shown, is_whole = _sections(operation.replace("```", "` ` `"), "```")
        options = [each for each in options if is_whole or not each.startswith("allow")]
        buttons = _actions([_answer(question, each) for each in options or ["cancel"]])
        return [_section("May I do this?"), *shown, buttons]
    shown, is_whole = _sections(asked.message)
    if not _fits(asked) or not is_whole:
        note = _section("This form does not fit into a message; I can only go on without it.")
        return [*shown, note, _actions([_answer(question, _DECLINE)])]
    inputs = [_input(place, each) for place, each in enumerate(asked.fields)]
    kinds = {each.name: each.type for each in asked.fields}
    sent = _answer(question, SUBMIT, json.dumps([question.interaction, kinds]))
    return [*shown, *inputs, _actions([sent, _answer(question, _DECLINE)])]


def _sections(text: str, around: str = "") -> tuple[list[dict[str, Any]], bool]:
    """Return the blocks of a text, and whether they are all of it."""
    # An escape of one character is five at most.
    size, text = _LONGEST_SECTION // 5, visible(text)
    pieces = [text[at : at + size] for at in range(0, len(text), size)] or [" "]
    shown = [_section(f"{around}{escaped(each)}{around}") for each in pieces[:_MOST_SECTIONS]]
    return shown, len(pieces) <= _MOST_SECTIONS


def _fits(asked: ElicitationRequest) -> bool:
    kinds = sum(len(each.name) + len(each.type) for each in asked.fields)
    return (
        len(asked.fields) <= MOST_FIELDS
        and kinds <= _LONGEST_SECTION // 2
        and all(len(_options(each)) <= MOST_OPTIONS for each in asked.fields)
        and all(visible(each.name) == each.name for each in asked.fields)
        and all(
            len(option) <= _LONGEST_LABEL and visible(option) == option
            for each in asked.fields
            for option in _options(each)
        )
    )


def _options(field: ElicitationField) -> Sequence[str]:
    if field.type == "boolean":
        return ("yes", "no")
    return field.options if isinstance(field.options, list) else ()


def _input(place: int, field: ElicitationField) -> dict[str, Any]:
    options = _options(field)
    action = f"field_{place}"
    element: dict[str, Any] = {"type": "plain_text_input", "action_id": action}
    if options:
        listed = [{"text": _plain(each), "value": str(at)} for at, each in enumerate(options)]
        element = {"type": "static_select", "action_id": action, "options": listed}
    return {
        "type": "input",
        "block_id": field.name[:255],
        "label": _plain(field.name),
        "element": element,
        "optional": not field.required,
    }


def _answer(question: QuestionEvent, word: str, value: str | None = None) -> dict[str, Any]:
    style = word in {"allow_once", SUBMIT}
    return _button(
        f"{ANSWER}:{word}",
        _LABELS.get(word, "Cancel"),
        question.interaction if value is None else value,
        primary=style,
    )


def _button(action: str, label: str, value: str, *, primary: bool = False) -> dict[str, Any]:
    button = {"type": "button", "action_id": action, "text": _plain(label), "value": value}
    return {**button, "style": "primary"} if primary else button


def _actions(buttons: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "actions", "elements": buttons}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_LONGEST_SECTION] or " "}}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text[:_LONGEST_LABEL] or "-"}


class Pressed(NamedTuple):
    """An answer that somebody has given with a button."""

    interaction: str
    content: str
    """As an intern wants it."""
    told: str
    """What it was, for people."""


class FieldInvalid(ValueError):
    """A field of a form holds something else than it may; the text is for whoever filled it in."""


def pressed(action: Mapping[str, Any], state: Mapping[str, Any]) -> Pressed:
    """Return the answer of a pressed button; raises `FieldInvalid`.

    `state` has the fields of the message that it stands in, by their block and their action.
    """
    word = str(action["action_id"]).partition(":")[2]
    value = str(action["value"])
    if word == _DECLINE:
        return Pressed(value, '{"action":"decline"}', "declined")
    if word != SUBMIT:
        return Pressed(value, word, _LABELS.get(word, "Cancel").lower())
    interaction, kinds = json.loads(value)
    content: dict[str, Any] = {}
    for name, kind in cast("dict[str, str]", kinds).items():
        fields = cast("Mapping[str, Mapping[str, Any]]", state.get(name[:255]) or {})
        for element in fields.values():
            if (given := _given(element)) is not None:
                content[name] = _typed(name, kind, given)
    return Pressed(
        interaction, json.dumps({"action": "accept", "content": content}), "filled in and sent"
    )


def _given(element: Mapping[str, Any]) -> str | None:
    """Return what an element of a form holds; the text of the option where it has options."""
    selected = element.get("selected_option")
    if isinstance(selected, dict):
        text = cast("Mapping[str, Any]", selected).get("text")
        return cast("Mapping[str, str]", text)["text"] if isinstance(text, dict) else None
    value = element.get("value")
    return value if isinstance(value, str) else None


def _typed(name: str, kind: str, given: str) -> str | float | bool:
    if kind == "boolean":
        return given == "yes"
    if kind not in {"integer", "number"}:
        return given
    if not _NUMBER.fullmatch(given.strip()):
        raise FieldInvalid(f"{name}: has to be a number.")
    number = float(given)
    if kind == "integer" and number != int(number):
        raise FieldInvalid(f"{name}: has to be a whole number.")
    return int(number) if kind == "integer" else number
