"""What the policies of an account, a workspace and a key say of a request. Pure.

    objections(policies, model, endpoint)  -> why an endpoint may not be asked; none: it may
    allowed(policies, candidates, named)   -> those that may be asked
    flagged(policies, body)                -> the patterns that a request's texts hold
    texts(fields)                          -> the texts of a request, for guardrails
    excerpt(fields)                        -> the last message, cut, for a refusal that shows it

A pattern is a text that must not occur, in any case; its `*` stands for anything between. It is no
regular expression: nobody's pattern can make the gateway think for minutes. `@email` and the like
are built in.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from msgspec import Raw

from tollhouse.kernel.errors import Forbidden, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tollhouse.identity.types import AccessPolicy
    from tollhouse.inference.types import Endpoint

T = TypeVar("T")
_SAID: Final = ("messages", "input", "prompt")
"""The fields in which the formats hold what is said."""
_LONGEST_EXCERPT: Final = 100
_CUT: Final = "..."
_LARGEST_INNER: Final = 1_000_000
_SHORTEST_IBAN: Final = 15
_CARD_LENGTHS: Final = range(13, 20)


def objections(
    policies: Sequence[AccessPolicy], model_id: str, endpoint: Endpoint
) -> Sequence[str]:
    """Return why an endpoint may not be asked, one sentence each; empty if it may be."""
    return [reason for policy in policies for reason in _objections(policy, model_id, endpoint)]


def allowed(
    policies: Sequence[AccessPolicy],
    candidates: Sequence[T],
    named: Callable[[T], tuple[str, Endpoint]],
    blocked: Callable[[T, Sequence[str]], None] = lambda _candidate, _reasons: None,
) -> list[T]:
    """Return those of at least one candidate that may be asked.

    `named` returns a candidate's model, by its id, and its endpoint; `blocked` is called with each
    of the others, and why it may not be asked.

    Raises:
        Forbidden: There is none; the message names the first one's model, the metadata has the
            reasons.
    """
    reasons: dict[str, None] = {}
    found: list[T] = []
    for candidate in candidates:
        against = objections(policies, *named(candidate))
        reasons |= dict.fromkeys(against)
        if against:
            blocked(candidate, against)
        else:
            found.append(candidate)
    if not found:
        model_id, _ = named(candidates[0])
        own = list(reasons)
        message = f"{model_id} may not be asked: {own[0]}"
        raise Forbidden(message, metadata={"error_type": Forbidden.code, "reasons": own})
    return found


def _objections(policy: AccessPolicy, model_id: str, endpoint: Endpoint) -> Iterator[str]:
    full_name = f"{endpoint.provider}:{endpoint.model}"
    names = (
        ("model", model_id, policy.allowed_models, policy.blocked_models),
        ("provider", endpoint.provider, policy.allowed_providers, policy.blocked_providers),
        ("endpoint", full_name, policy.allowed_endpoints, policy.blocked_endpoints),
    )
    for kind, name, allowed, blocked in names:
        if allowed is not None and not _listed(name, allowed):
            yield f"{policy.whose} does not allow the {kind} {name}."
        if _listed(name, blocked):
            yield f"{policy.whose} blocks the {kind} {name}."
    if policy.data_collection == "deny" and endpoint.keeps_data:
        yield f"{policy.whose} denies data collection; {endpoint.provider} keeps data."


def _listed(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# Texts


def flagged(policies: Sequence[AccessPolicy], body: bytes) -> Sequence[str]:
    """Return the patterns that some text of a request's body holds, in the policies' order.

    The body is valid JSON, whatever the format: every text in it counts.

    Raises:
        Invalid: It holds a number that cannot be read.
    """
    patterns = list(dict.fromkeys(each for policy in policies for each in policy.patterns))
    if not patterns:
        return []
    said = list(_texts(_decoded(body)))
    folded = [_folded(text) for text in said]
    return [pattern for pattern in patterns if _is_held(pattern, said, folded)]


def require_unflagged(policies: Sequence[AccessPolicy], body: bytes) -> None:
    """Raise where some text of a request's body holds what a policy does not let pass.

    Raises:
        Forbidden: Some does; the metadata names the patterns.
        Invalid: It holds a number that cannot be read.
    """
    patterns = flagged(policies, body)
    if patterns:
        raise refused(patterns)


def texts(fields: Mapping[str, Raw]) -> Sequence[str]:
    """Return each text and name in the fields of a request once, in the order of the first.

    Raises:
        Invalid: They hold a number that cannot be read.
    """
    return list(dict.fromkeys(_texts({name: _decoded(value) for name, value in fields.items()})))


def refused(patterns: Sequence[str]) -> Forbidden:
    """Return the refusal of a request that holds what a policy does not let pass."""
    message = "The request holds what a policy does not let pass."
    return Forbidden(message, metadata={"error_type": Forbidden.code, "patterns": list(patterns)})


def _decoded(json: bytes | Raw) -> object:
    try:
        return msgspec.json.decode(json)
    except (msgspec.DecodeError, RecursionError):
        raise Invalid("The body holds a number that cannot be read.") from None


def excerpt(fields: Mapping[str, Raw]) -> str:
    """Return what a request says last, at most 100 characters of it, cut in the middle.

    Source: the public gateway's error reference, `flagged_input`.
    """
    given = next((fields[name] for name in _SAID if name in fields), Raw(b"null"))
    try:
        said: object = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return ""
    items = cast("list[object]", said) if isinstance(said, list) else [said]
    last = items[-1] if items else None
    if isinstance(last, dict):
        message = cast("dict[str, object]", last)
        last = message.get("content", message)
    text = " ".join(_texts(last, with_names=False))
    if len(text) <= _LONGEST_EXCERPT:
        return text
    half = (_LONGEST_EXCERPT - len(_CUT)) // 2
    return f"{text[:half]}{_CUT}{text[-half:]}"


def _texts(value: object, *, with_names: bool = True) -> Iterator[str]:
    """Return every text and name in a JSON value as they stand, without recursion.

    It may be nested deeply. A tool call's arguments are JSON inside a text: what that says counts
    as well.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
            waiting += _inner(each)
        elif isinstance(each, dict):
            for name, field in reversed(cast("dict[str, object]", each).items()):
                waiting += (field, name) if with_names else (field,)
        elif isinstance(each, list):
            waiting += reversed(cast("list[object]", each))


def _inner(text: str) -> list[object]:
    if not text.startswith(("{", "[")) or len(text) > _LARGEST_INNER:
        return []
    try:
        inner: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return []
    return [inner]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _is_held(pattern: str, texts: Sequence[str], folded: Sequence[str]) -> bool:
    if pattern in BUILT_IN:
        return any(map(BUILT_IN[pattern], texts))
    parts = [part for part in _folded(pattern).split("*") if part]
    return any(_holds(text, parts) for text in folded)


def _holds(text: str, parts: Sequence[str]) -> bool:
    """Tell whether a text holds the parts one after the other; takes time as the text is long."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return bool(parts)


_EMAIL: Final = re.compile(r"@(?<=[\w.+-]@)[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
"""It looks for the sign first: a long text without one takes no time."""
_CARD: Final = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")
_GROUPED: Final = re.compile(r"(?<!\d)(?:\d{4}(?:[ -]\d{4}){3}|\d{13,19})(?!\d)")
"""As people write it, whatever number stands beside it."""
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_API_KEY: Final = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,256}|gh[pousr]_[A-Za-z0-9]{20,255}|AKIA[A-Z0-9]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,250})"
)


def _has_card(text: str) -> bool:
    """Tell whether a text holds a card's number: its last digit is a check of the others.

    Source: ISO/IEC 7812-1, annex B.
    """
    found = (each for run in (_CARD, _GROUPED) for each in run.findall(text))
    return any(_is_card(re.sub(r"\D", "", each)) for each in found)


def _is_card(digits: str) -> bool:
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    checksum = sum(number // 10 + number % 10 for number in doubled)
    return len(digits) in _CARD_LENGTHS and checksum % 10 == 0


def _has_iban(text: str) -> bool:
    """Tell whether a text holds an account's number: as a number it leaves 1 when cut by 97.

    Source: ISO 13616-1, clause 6.
    """
    # A word may follow: the first so many groups can be one.
    starts = (
        "".join(groups[:count])
        for groups in map(str.split, _IBAN.findall(text))
        for count in range(1, len(groups) + 1)
    )
    return any(len(start) >= _SHORTEST_IBAN and _is_iban(start) for start in starts)


def _is_iban(text: str) -> bool:
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


BUILT_IN: Final[dict[str, Callable[[str], bool]]] = {
    "@email": lambda text: _EMAIL.search(text) is not None,
    "@credit_card": _has_card,
    "@iban": _has_iban,
    "@api_key": lambda text: _API_KEY.search(text) is not None,
}
"""Patterns that stand for what looks like something."""
