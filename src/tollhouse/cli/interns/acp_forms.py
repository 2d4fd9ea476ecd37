"""What an intern asks, in the words of the Agent Client Protocol. Pure.

    permission     session/request_permission: the options, one to one
    elicitation    elicitation/create, a form; where the client has none, a text that asks

Source: https://agentclientprotocol.com/protocol/v1, "Requesting Permission" and "Elicitation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    DeclineElicitationResponse,
    ElicitationBooleanPropertySchema,
    ElicitationIntegerPropertySchema,
    ElicitationMultiSelectPropertySchema,
    ElicitationNumberPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    StringMultiSelectItems,
)

from tollhouse.cli.interns.chat_questions import (
    BOOLEAN,
    CANCEL,
    INTEGER,
    LIST,
    NUMBER,
    Elicitation,
    Field,
    Permission,
    Question,
    Unfit,
    accepted,
    cancelled,
    declined,
    label_of,
    read_field,
)

if TYPE_CHECKING:
    from acp.schema import PermissionOptionKind, RequestPermissionResponse

_NAMES: Final = {
    "allow_once": "Allow once",
    "allow_always": "Always allow",
    "reject_once": "Reject",
    "reject_always": "Always reject",
}
"""Of the options; the protocol's kinds are called as the wire's options are."""


def options_of(permission: Permission) -> list[PermissionOption]:
    """Return the options that a client shows."""
    return [
        PermissionOption(
            option_id=option, name=_NAMES[option], kind=cast("PermissionOptionKind", option)
        )
        for option in permission.options
        if option in _NAMES
    ]


def decided(permission: Permission, response: RequestPermissionResponse) -> str:
    """Return the answer that a client's decision means; `cancel` for what was not offered."""
    outcome = response.outcome
    if isinstance(outcome, AllowedOutcome) and outcome.option_id in permission.options:
        return outcome.option_id
    return CANCEL


def schema_of(form: Elicitation) -> ElicitationSchema:
    """Return the form that a client shows."""
    return ElicitationSchema(
        properties={field.name: _property(field) for field in form.fields},
        required=[field.name for field in form.fields if field.required] or None,
    )


def filled_in(question: Question, form: Elicitation, response: object) -> str:
    """Return the answer that a client's reply to a form means."""
    if isinstance(response, DeclineElicitationResponse):
        return declined()
    if not isinstance(response, AcceptElicitationResponse):
        return cancelled(question)
    try:
        return accepted(_values(form, response.content or {}))
    except Unfit:
        return cancelled(question)


def asked_in_words(form: Elicitation) -> str:
    """Return a form as a text; the next prompt answers it."""
    lines = [form.message, ""]
    lines += [f"- {label_of(field)}" for field in form.fields]
    many = len(form.fields) > 1
    lines += ["", f"Answer with {'a line `name: value` for each' if many else 'the value'}, or "]
    lines[-1] += "`decline`. It waits for some minutes."
    return "\n".join(lines)


def _values(form: Elicitation, content: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in form.fields:
        given = content.get(field.name)
        if isinstance(given, str) or given is None:
            # A client's choices are texts, also where the intern's options are numbers.
            given = read_field(field, given or "")
        if given is not None:
            values[field.name] = given
    return values


def _property(field: Field) -> Any:  # noqa: ANN401 - one of the five below
    kind = field.type.lower()
    options = [str(option) for option in field.options or []]
    if kind in LIST and options:
        items = StringMultiSelectItems(type="string", enum=options)
        return ElicitationMultiSelectPropertySchema(type="array", title=field.name, items=items)
    if options:
        return ElicitationStringPropertySchema(type="string", title=field.name, enum=options)
    if kind in INTEGER:
        return ElicitationIntegerPropertySchema(type="integer", title=field.name)
    if kind in NUMBER:
        return ElicitationNumberPropertySchema(type="number", title=field.name)
    if kind in BOOLEAN:
        return ElicitationBooleanPropertySchema(type="boolean", title=field.name)
    return ElicitationStringPropertySchema(type="string", title=field.name)
