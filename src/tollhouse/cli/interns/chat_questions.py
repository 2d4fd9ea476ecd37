"""What an intern asks in the middle of a run, and what may be answered. Pure.

    permission     may I? one of the offered options, or `cancel`
    elicitation    a form: its fields as JSON, or that it is declined or cancelled

After any of these answers the run goes on, without the operation where it was not allowed.

Source: the public gateway's chat of interns; the fields that published clients parse.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

ALLOW_ONCE: Final = "allow_once"
REJECT_ONCE: Final = "reject_once"
CANCEL: Final = "cancel"
_YES: Final = frozenset({"y", "yes", "true", "1", "on"})
_NO: Final = frozenset({"n", "no", "false", "0", "off"})
INTEGER: Final = frozenset({"integer", "int"})
NUMBER: Final = frozenset({"number", "float"})
BOOLEAN: Final = frozenset({"boolean", "bool"})
LIST: Final = frozenset({"array", "list", "multiselect", "multi_select"})
"""What the type of a field is called."""


class Unfit(ValueError):
    """An answer that its question does not take. Its text says what it takes."""


class Permission(Struct, frozen=True, tag_field="kind", tag="permission"):
    """May the intern do something?"""

    options: list[str]
    """Some of `allow_once`, `allow_always`, `reject_once`, `reject_always`."""
    operation: str | None = None
    """What it wants to do, in its own words."""


class Field(Struct, frozen=True):
    """One field of a form."""

    name: str
    type: str = "string"
    required: bool = False
    options: list[str | int | float | bool] | None = None


class Elicitation(Struct, frozen=True, tag_field="kind", tag="elicitation"):
    """A form to fill in."""

    message: str
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run waits for."""

    call_id: str
    name: str
    """Of the function that the wire makes of it."""
    arguments: str
    """As they came: the answer repeats them."""
    asks: Permission | Elicitation

    def answered(self, content: str) -> list[dict[str, Any]]:
        """Return the messages that carry an answer.

        Args:
            content: What `chosen`, `accepted`, `declined` or `refused` returned.
        """
        function = {"name": self.name, "arguments": self.arguments}
        call = {"id": self.call_id, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": self.call_id, "content": content},
        ]


def chosen(permission: Permission, option: str) -> str:
    """Return the answer that names an option, or `cancel`.

    Raises:
        Unfit: It was not offered.
    """
    if option != CANCEL and option not in permission.options:
        message = f"choose one of {', '.join([*permission.options, CANCEL])}"
        raise Unfit(message)
    return option


def accepted(values: dict[str, Any]) -> str:
    """Return the answer that fills in a form."""
    return json.dumps({"action": "accept", "content": values})


def declined() -> str:
    """Return the answer of who does not want to fill in a form."""
    return json.dumps({"action": "decline"})


def cancelled(question: Question) -> str:
    """Return the answer of who has left."""
    if isinstance(question.asks, Permission):
        return CANCEL
    return json.dumps({"action": "cancel"})


def refused(question: Question) -> str:
    """Return the answer where nobody can be asked: the safe one."""
    if isinstance(question.asks, Elicitation):
        return declined()
    return REJECT_ONCE if REJECT_ONCE in question.asks.options else CANCEL


def consented(question: Question) -> str | None:
    """Return the answer of who allows everything once; None for a form."""
    asks = question.asks
    return ALLOW_ONCE if isinstance(asks, Permission) and ALLOW_ONCE in asks.options else None


def label_of(field: Field) -> str:
    """Return a field as people see it: its name, and what goes into it."""
    kind = ", ".join(map(str, field.options)) if field.options else field.type
    return f"{field.name} ({kind}{', required' if field.required else ''})"


def read_answer(question: Question, text: str) -> str:
    """Return the answer that a text means: an option, a form's values, `decline` or `cancel`.

    Raises:
        Unfit: It means none.
    """
    if isinstance(question.asks, Permission):
        return read_option(question.asks, text)
    word = text.strip().strip("`").lower()
    if word == "decline":
        return declined()
    return cancelled(question) if word == CANCEL else accepted(read_form(question.asks, text))


def read_option(permission: Permission, text: str) -> str:
    """Return the option that somebody typed: its number, its name, `y`, `n` or `c`.

    Raises:
        Unfit: There is no such option.
    """
    word = text.strip().lower().replace(" ", "_").replace("-", "_")
    short = {"y": ALLOW_ONCE, "n": REJECT_ONCE, "c": CANCEL}.get(word, word)
    if word.isdecimal() and 1 <= int(word) <= len(permission.options):
        short = permission.options[int(word) - 1]
    return chosen(permission, short)


def read_form(form: Elicitation, text: str) -> dict[str, Any]:
    """Return the values of a form from one text: the only field's value, or a JSON object.

    Lines like `name: value` do as well.

    Raises:
        Unfit: A field is missing, unknown, or has the wrong type.
    """
    stated = _stated(form, text)
    known = {field.name for field in form.fields}
    if unknown := [name for name in stated if name not in known]:
        message = f"there is no field {unknown[0]}; the fields are {', '.join(sorted(known))}"
        raise Unfit(message)
    values: dict[str, Any] = {}
    for field in form.fields:
        value = read_field(field, stated.get(field.name, ""))
        if value is not None:
            values[field.name] = value
    return values


def read_field(field: Field, text: str) -> Any:  # noqa: ANN401 - JSON is anything
    """Return the value that somebody typed into a field; None where it is left out.

    Raises:
        Unfit: It is required, or the text is no value of its type.
    """
    text = text.strip()
    if not text:
        if field.required:
            message = f"{field.name} is required"
            raise Unfit(message)
        return None
    kind = field.type.lower()
    if kind in LIST:
        return [_option(field, each.strip()) for each in text.split(",") if each.strip()]
    return _option(field, text) if field.options else _value(field, kind, text)


def _stated(form: Elicitation, text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError:
            message = "that is no JSON object"
            raise Unfit(message) from None
        return {str(name): _as_text(value) for name, value in values.items()}
    if len(form.fields) == 1:
        name = form.fields[0].name
        return {name: text.strip().removeprefix(f"{name}:")}
    stated: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon:
            message = "write a line `name: value` for each field"
            raise Unfit(message)
        stated[name.strip()] = value
    return stated


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_as_text, value))  # pyright: ignore[reportUnknownArgumentType]
    return "" if value is None else str(value)


def _option(field: Field, text: str) -> str | int | float | bool:
    options = field.options or []
    if not options:
        return text
    for option in options:
        if text.casefold() == str(option).casefold():
            return option
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    message = f"{field.name}: choose one of {', '.join(map(str, options))}"
    raise Unfit(message)


def _value(field: Field, kind: str, text: str) -> str | int | float | bool:
    if kind in BOOLEAN:
        if text.lower() not in _YES | _NO:
            message = f"{field.name}: yes or no"
            raise Unfit(message)
        return text.lower() in _YES
    if kind not in INTEGER | NUMBER:
        return text
    try:
        number = int(text) if kind in INTEGER else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        message = f"{field.name}: a {'whole ' if kind in INTEGER else ''}number"
        raise Unfit(message)
    return number
