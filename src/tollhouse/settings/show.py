"""The settings for people: as they are, without secrets; and as they can be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from tollhouse.kernel.secret import Secret
from tollhouse.settings.description import described
from tollhouse.settings.environment import OTHER_NAMES, environment_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tollhouse.settings.sections import Settings

_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):.*@")
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


class EnvironmentName(NamedTuple):
    """One variable that Tollhouse reads."""

    name: str
    type: str
    default: str
    description: str


def masked(settings: Settings) -> dict[str, object]:
    """Return the settings as JSON-able data in which no secret stands.

    API keys and header values are masked whole; of the database's address the password, of a
    proxy's address the user and password.
    """
    shown = cast("dict[str, object]", settings.model_dump(mode="json"))
    if settings.database_url is not None:
        shown["database_url"] = _without_password(settings.database_url)
    providers = cast("list[dict[str, object]]", shown["providers"])
    for entry, provider in zip(providers, settings.providers, strict=True):
        if provider.proxy is not None:
            entry["proxy"] = _without_user(provider.proxy)
    return shown


def flat(settings: Settings) -> dict[str, object]:
    """Return the settings as `masked` does, each value by its name: `limits.kind`, `models.a/b.id`.

    Entries of a list go by their `slug`, `id` or `name`, or by their number.
    """
    return dict(_flat("", masked(settings)))


def environment_names() -> list[EnvironmentName]:
    """Return every variable that may be set, in the order of the sections."""
    settings = [
        EnvironmentName(
            environment_name(setting.location),
            f"{setting.type} in JSON" if setting.type == "list" else setting.type,
            setting.default,
            setting.description,
        )
        for setting in described()
        if setting.in_environment
    ]
    return [*settings, *(EnvironmentName(name, *other) for name, other in OTHER_NAMES.items())]


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        entries = cast("list[object]", value)
        if entries and all(isinstance(each, dict) for each in entries):
            labelled = enumerate(cast("list[dict[str, object]]", entries))
            value = {_label(each, at): each for at, each in labelled}
    if isinstance(value, dict):
        for part, each in cast("dict[str, object]", value).items():
            yield from _flat(f"{name}.{part}" if name else part, each)
    else:
        yield name, value


def _label(entry: dict[str, object], at: int) -> str:
    named = (entry[key] for key in ("slug", "id", "name") if key in entry)
    return str(next(named, at))


def _without_password(url: Secret) -> str:
    # Up to the last @, since an unquoted password may hold one.
    text = _PASSWORD.sub(rf"\1:{Secret.MASK}@", url.reveal())
    return _SECRET_PARAMETER.sub(rf"\1{Secret.MASK}", text)


def _without_user(url: Secret) -> str:
    parts = urlsplit(url.reveal())
    user, found, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{Secret.MASK if user else ''}{found}{host}"
