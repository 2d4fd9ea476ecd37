"""Placeholders, and the values that take their place on the way out. Pure.

    Authorization: Bearer {{secret:github_token}}                  in the value of a header
    Authorization: Basic base64("user:{{secret:github_token}}")    inside Basic credentials

Nowhere else: in a URL it is refused, since URLs end up in logs; in a body it is text like any
other. What was put in is not searched again.

Source: RFC 7617, section 2 (Basic credentials); RFC 9110, section 5.5 (values of fields).
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from tollhouse.kernel.errors import Invalid
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.rejections import Rejected
from tollhouse.vault.egress.request_head import Field
from tollhouse.vault.policy import check_name

LARGEST_INJECTED: Final = 4 * 65_536
"""Bytes of a head with its values: many small placeholders may stand for much."""
_OPENING: Final = b"{{secret:"
_PLACEHOLDER: Final = re.compile(rb"\{\{secret:([^{}]*)\}\}")
_BASIC: Final = re.compile(rb"(?i:basic) +([A-Za-z0-9+/]+={0,2})")
_FIELD_VALUE: Final = re.compile(rb"(?![ \t])[^\x00-\x08\x0a-\x1f\x7f]*(?<![ \t])")


def check_target(target: bytes) -> None:
    """Refuse a placeholder in a URL, encoded or not (`Rejected`)."""
    once = unquote_to_bytes(target)
    if _OPENING in target or _OPENING in once or _OPENING in unquote_to_bytes(once):
        raise Rejected(rejections.SECRET_IN_URL)


def names_in(headers: Iterable[Field]) -> list[str]:
    """Return the names that placeholders in the values of headers ask for, each once.

    Raises `Rejected` where one could be no secret's.
    """
    found: dict[str, None] = {}
    for name, value in headers:
        for text in (value, _credentials(name, value)):
            if _OPENING in text:
                found |= dict.fromkeys(
                    each.decode("latin-1") for each in _PLACEHOLDER.findall(text)
                )
    try:
        return [check_name(each) for each in found]
    except Invalid:
        raise Rejected(rejections.UNKNOWN_SECRET) from None


def inject(headers: Sequence[Field], values: Mapping[str, bytes]) -> list[Field]:
    """Return headers with the values of all `names_in` them in place of their placeholders.

    Raises `Rejected` where a value cannot stand in a header, or the head becomes too large.
    """
    size, injected = 0, list[tuple[bytes, bytes]]()
    for name, value in headers:
        put_in = _with_values(name, value, values)
        size += len(name) + len(put_in)
        if size > LARGEST_INJECTED:
            raise Rejected(rejections.HEAD_TOO_LARGE)
        if not _FIELD_VALUE.fullmatch(put_in):
            raise Rejected(rejections.NOT_IN_A_HEADER)
        injected.append((name, put_in))
    return injected


def _with_values(name: bytes, value: bytes, values: Mapping[str, bytes]) -> bytes:
    def put(match: re.Match[bytes]) -> bytes:
        nonlocal size
        found = values[match[1].decode("latin-1")]
        size += len(found)
        if size > LARGEST_INJECTED:
            raise Rejected(rejections.HEAD_TOO_LARGE)
        return found

    size = 0
    credentials = _credentials(name, value)
    if _OPENING in credentials:
        return b"Basic " + base64.b64encode(_PLACEHOLDER.sub(put, credentials))
    return _PLACEHOLDER.sub(put, value) if _OPENING in value else value


def _credentials(name: bytes, value: bytes) -> bytes:
    """Return what Basic credentials hold; nothing where these are none."""
    match = _BASIC.fullmatch(value) if name == b"authorization" else None
    if match is None:
        return b""
    unpadded = match[1].rstrip(b"=")
    try:
        return base64.b64decode(unpadded + b"=" * (-len(unpadded) % 4))
    except binascii.Error:
        return b""
