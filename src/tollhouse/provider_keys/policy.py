"""The forms of own keys: what a text has to be for its provider, checked at the door. Pure.

Most providers know a key by one text. Those that need more take a JSON object, in the fields that
the public gateway has for them.

Source: https://openrouter.ai/docs/guides/overview/auth/byok, for the fields; for the objects
https://cloud.google.com/iam/docs/keys-create-delete and
https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html (`ABSK`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORTEST: Final = 8
"""Characters: a shorter key could not be taken out of what a provider answers."""
LONGEST: Final = 32_768
_SHOWN: Final = 3
_SHORTEST_SHOWN: Final = 16
_TEXT: Final = re.compile(r"[\x21-\x7e]+")
_KEY: Final = re.compile(r"[\x21-\x7e]{8,}")
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)*-?\d*")


class KeyForm(NamedTuple):
    """What an object has to hold, for one kind of provider."""

    fields: Mapping[str, re.Pattern[str]]
    names_it: str
    """The field whose value is shown, masked."""
    optional: frozenset[str] | None = frozenset()
    """Further fields; None for any."""
    plain: re.Pattern[str] | None = None
    """The text that is taken in place of an object; None for none."""


FORMS: Final[Mapping[str, KeyForm]] = {
    "azure": KeyForm(
        {"api_key": _KEY, "endpoint_url": re.compile(r"https://[\w.-]+(:\d+)?(/\S*)?")},
        "api_key",
        frozenset({"model_slug", "model_id"}),
    ),
    "amazon-bedrock": KeyForm(
        {
            "accessKeyId": re.compile(r"[A-Z0-9]{16,128}"),
            "secretAccessKey": re.compile(r"[\x21-\x7e]{16,}"),
            "region": _REGION,
        },
        "accessKeyId",
        frozenset({"sessionToken"}),
        re.compile(r"ABSK[\x21-\x7e]+"),
    ),
    "google-vertex": KeyForm(
        {
            "type": re.compile("service_account"),
            "project_id": _TEXT,
            "private_key": re.compile(r"(?s)-----BEGIN (RSA )?PRIVATE KEY-----.+"),
            "client_email": re.compile(r"[^@\s]+@[^@\s]+"),
        },
        "client_email",
        None,
    ),
}
"""By the provider's slug, up to a slash. All others: one text."""
_ONE_TEXT: Final = KeyForm({}, "", plain=_TEXT)


def form_of(provider: str) -> KeyForm:
    """Return what keys of a provider have to be."""
    return FORMS.get(provider.partition("/")[0], _ONE_TEXT)


def check_key(provider: str, key: str) -> None:
    """Make sure that a text is a key of a provider; no message repeats any of it.

    Raises:
        Invalid: It is none.
    """
    form = form_of(provider)
    if not SHORTEST <= len(key) <= LONGEST:
        raise Invalid(f"key: must have {SHORTEST} to {LONGEST} characters.")
    found = _object(key)
    if found is not None and "region" in found and "region" not in form.fields:
        takers = ", ".join(name for name, each in FORMS.items() if "region" in each.fields)
        message = (
            f"{provider} is called at one address here, whatever the region; {takers} takes one"
        )
        raise Invalid(f"key.region: {message}.")
    if found is not None and form.fields:
        _check_fields(provider, form, found)
    elif found is not None or form.plain is None or not form.plain.fullmatch(key):
        raise Invalid(f"key: {_wanted(provider, form)}.")


def _check_fields(provider: str, form: KeyForm, found: Mapping[str, object]) -> None:
    for name, pattern in form.fields.items():
        value = found.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            problem = "is missing" if value is None else "is not what the provider takes"
            raise Invalid(f"key.{name}: {problem}; {_wanted(provider, form)}.")
    if form.optional is not None:
        for name in found:
            if name not in form.fields and name not in form.optional:
                allowed = ", ".join((*form.fields, *sorted(form.optional)))
                message = f"has a field that {provider} does not take; it takes {allowed}"
                raise Invalid(f"key: {message}.")


def _wanted(provider: str, form: KeyForm) -> str:
    if not form.fields:
        return "must be one text of printable characters, without spaces"
    fields = f"a JSON object with {', '.join(form.fields)}"
    if form.plain is not None:
        fields = f"an API key without spaces, or {fields}"
    return f"{provider} takes {fields}"


def label_of(provider: str, key: str) -> str:
    """Return a checked key as it may be shown: its first and last characters."""
    form, found = form_of(provider), _object(key)
    shown = str(found[form.names_it]) if found is not None and form.names_it in found else key
    if len(shown) < _SHORTEST_SHOWN:
        return "..."
    return f"{shown[:_SHOWN]}...{shown[-_SHOWN:]}"


def single_text(key: str) -> str | None:
    """Return what a provider is shown as one text; None for a key that is more than that."""
    found = _object(key)
    if found is None:
        return key
    only = found.get("api_key") if set(found) <= {"api_key", "region"} else None
    return only if isinstance(only, str) else None


def _object(key: str) -> Mapping[str, object] | None:
    try:
        found: object = msgspec.json.decode(key)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None
