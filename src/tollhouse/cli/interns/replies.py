"""What an intern's daemon answers, taken as the word of a stranger.

The agent in the sandbox can put itself in the daemon's place. So nothing of an answer is used that
was not looked at here: how much of it there may be, which type it has, and what a name may hold.

`docs/reference/daemon-api.md` is the protocol.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.json_objects import fields, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    Entry = dict[str, Any]
    """Of a folder: `name`, `type`, `size`, `mode`, `modified_at`."""

PAGE: Final = 1000
"""Entries that are asked for at once."""
LARGEST_ANSWER: Final = 4 << 20
"""Bytes of JSON: a page of the longest names there can be, each character escaped, has half."""
LARGEST_REFUSAL: Final = 1000
"""Bytes that are read of one."""
LARGEST_NUMBER: Final = (1 << 63) - 1
_LONGEST_NAME: Final = 255
"""Bytes of a name, as of Linux."""
_NO_NAMES: Final = frozenset(("", ".", ".."))
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_MODE: Final = re.compile(r"[0-7]{1,4}")
_TAG: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a folder."""

    entries: Sequence[Entry]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What is told of a file's content before it comes."""

    tag: str
    """Stays the same for as long as the content does."""
    size: int
    """Bytes that come."""
    mode: int
    """Permissions, of user, group and others."""

    def is_rest_of(self, whole: Content, at: int) -> bool:
        """Tell whether it is what follows of a file from a position on."""
        return self.tag == whole.tag and at + self.size == whole.size


def unclear(what: str = "") -> CommandFailed:
    """Return what an answer is to a person that is none of the protocol's."""
    detail = f" ({what})" if what else ""
    return CommandFailed(f"the intern said what cannot be understood{detail}")


def number(value: object, largest: int = LARGEST_NUMBER) -> int:
    """Return a count, a position or a code.

    Raises:
        CommandFailed: It is none.
    """
    if type(value) is not int or not 0 <= value <= largest:
        raise unclear()
    return value


async def body_of(response: httpx2.Response) -> bytes:
    """Return the body of an answer that is no file.

    Raises:
        CommandFailed: It is larger than any.
        RequestError: It broke off.
    """
    body = await beginning_of(response, LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise unclear("its answer does not end")
    return body


async def beginning_of(response: httpx2.Response, size: int = LARGEST_REFUSAL) -> bytes:
    """Return the first bytes of a body, as they come: little that is compressed may be much.

    Raises:
        RequestError: It broke off.
    """
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= size:
            break
    return bytes(body[:size])


def page(body: bytes, after: str) -> Page:
    """Return a part of a folder.

    Args:
        body: What was answered.
        after: The last name of the part before. All that follow come after it, so that no list
            goes round in circles.

    Raises:
        CommandFailed: It is none.
    """
    told = parsed(body)
    data, has_more = told.get("data"), told.get("has_more")
    if not isinstance(data, list) or not isinstance(has_more, bool):
        raise unclear()
    listed = cast("list[object]", data)
    if len(listed) > PAGE:
        raise unclear("more names than were asked for")
    entries = [_entry(fields(each)) for each in listed]
    names = [after, *(each["name"] for each in entries)]
    if any(later <= earlier for earlier, later in pairwise(names)):
        raise unclear("names out of their order")
    return Page(entries, has_more)


def entry(body: bytes) -> Entry:
    """Return what is told of a file.

    Raises:
        CommandFailed: It cannot be understood.
    """
    return _entry(parsed(body))


def content(headers: Mapping[str, str]) -> Content | None:
    """Return what is told of a file; None where it is a folder.

    Raises:
        CommandFailed: It cannot be understood.
    """
    tag = headers.get("ETag")
    if tag is None:
        return None
    size, mode = headers.get("Content-Length", ""), headers.get("File-Mode", "644")
    if not _TAG.fullmatch(tag):
        raise unclear("ETag")
    # A body without a length, or one that chunks overrule, may have no end.
    if "Transfer-Encoding" in headers or not _SIZE.fullmatch(size):
        raise unclear("Content-Length")
    if not _MODE.fullmatch(mode):
        raise unclear("File-Mode")
    return Content(tag, int(size), int(mode, 8) & 0o777)


def _entry(told: Mapping[str, object]) -> Entry:
    words = [told.get(name) for name in ("name", "type", "mode", "modified_at")]
    match words:
        case [str(name), str(kind), str(mode), str(modified_at)] if _is_name(name):
            size = number(told.get("size"))
        case _:
            raise unclear()
    if max(map(len, (kind, mode, modified_at))) > _LONGEST_NAME:
        raise unclear()
    return {"name": name, "type": kind, "size": size, "mode": mode, "modified_at": modified_at}


def _is_name(text: str) -> bool:
    """Tell whether a text names what is in a folder itself."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return size <= _LONGEST_NAME and text not in _NO_NAMES and not set("/\0") & set(text)


def message(body: bytes) -> str:
    """Return the words of a refusal, without those that would steer a terminal; or nothing."""
    said = fields(parsed(body[:LARGEST_REFUSAL]).get("error")).get("message")
    if not isinstance(said, str):
        return ""
    return "".join(char for char in said if char.isprintable()).rstrip(".")
