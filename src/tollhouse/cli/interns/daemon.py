"""An intern's daemon: its address and token, and its replies, which are not trusted.

The agent in the sandbox can put itself in the daemon's place. So nothing of a reply is used before
its size, its types and its names were checked here; CommandFailed is raised for what is malformed.

`docs/reference/daemon-api.md` is the protocol.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2

from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.references import intern_path
from tollhouse.cli.values import object_fields, parse_object
from tollhouse.kernel.secret import Secret

FolderEntry = dict[str, Any]
"""Of a folder: `name`, `type`, `size`, `mode`, `modified_at`."""
RenewAccess = Callable[[], Awaitable["DaemonCredentials"]]
"""Asks the gateway once more: a token is changed whenever an intern is provisioned."""

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
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(:[0-9]{1,5})?")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,1000}")


@dataclass(frozen=True, slots=True)
class FileHead:
    """What is told of a file's content before it comes."""

    tag: str
    """Stays the same for as long as the content does."""
    size: int
    """Bytes that come."""
    mode: int
    """Permissions, of user, group and others."""

    def is_rest_of(self, whole: "FileHead", at: int) -> bool:
        """Tell whether it is what follows of a file from a position on."""
        return self.tag == whole.tag and at + self.size == whole.size


def unexpected_answer(what: str = "") -> CommandFailed:
    """Return the error for a reply that breaks the protocol."""
    detail = f" ({what})" if what else ""
    return CommandFailed(f"the intern said what cannot be understood{detail}")


def parse_number(value: object, largest: int = LARGEST_NUMBER) -> int:
    """Return a count, a position or a code."""
    if type(value) is not int or not 0 <= value <= largest:
        raise unexpected_answer()
    return value


async def read_body(response: httpx2.Response) -> bytes:
    """Return the body of an answer that is no file."""
    body = await read_start(response, LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise unexpected_answer("its answer does not end")
    return body


async def read_start(response: httpx2.Response, size: int = LARGEST_REFUSAL) -> bytes:
    """Return the first bytes of a body, as they come: little that is compressed may be much."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= size:
            break
    return bytes(body[:size])


def parse_page(body: bytes, after: str) -> tuple[list[FolderEntry], bool]:
    """Return the entries of a part of a folder, and whether there are more.

    All its names come after the last one of the part before, so that no list goes round in circles.
    """
    told = parse_object(body)
    data, has_more = told.get("data"), told.get("has_more")
    if not isinstance(data, list) or not isinstance(has_more, bool):
        raise unexpected_answer()
    listed = cast("list[object]", data)
    if len(listed) > PAGE:
        raise unexpected_answer("more names than were asked for")
    entries = [_checked_entry(object_fields(each)) for each in listed]
    names = [after, *(each["name"] for each in entries)]
    if any(later <= earlier for earlier, later in pairwise(names)):
        raise unexpected_answer("names out of their order")
    return entries, has_more


def parse_entry(body: bytes) -> FolderEntry:
    """Return what is told of a file."""
    return _checked_entry(parse_object(body))


def parse_file_head(headers: Mapping[str, str]) -> FileHead | None:
    """Return what is told of a file; None where it is a folder."""
    tag = headers.get("ETag")
    if tag is None:
        return None
    size, mode = headers.get("Content-Length", ""), headers.get("File-Mode", "644")
    if not _TAG.fullmatch(tag):
        raise unexpected_answer("ETag")
    # A body without a length, or one that chunks overrule, may have no end.
    if "Transfer-Encoding" in headers or not _SIZE.fullmatch(size):
        raise unexpected_answer("Content-Length")
    if not _MODE.fullmatch(mode):
        raise unexpected_answer("File-Mode")
    return FileHead(tag, int(size), int(mode, 8) & 0o777)


def _checked_entry(told: Mapping[str, object]) -> FolderEntry:
    words = [told.get(name) for name in ("name", "type", "mode", "modified_at")]
    match words:
        case [str(name), str(kind), str(mode), str(modified_at)] if _is_name(name):
            size = parse_number(told.get("size"))
        case _:
            raise unexpected_answer()
    if max(map(len, (kind, mode, modified_at))) > _LONGEST_NAME:
        raise unexpected_answer()
    return {"name": name, "type": kind, "size": size, "mode": mode, "modified_at": modified_at}


def _is_name(text: str) -> bool:
    """Tell whether a text names what is in a folder itself."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return size <= _LONGEST_NAME and text not in _NO_NAMES and not set("/\0") & set(text)


def refusal_text(body: bytes) -> str:
    """Return the words of a refusal, without those that would steer a terminal; or nothing."""
    said = object_fields(parse_object(body[:LARGEST_REFUSAL]).get("error")).get("message")
    if not isinstance(said, str):
        return ""
    return "".join(char for char in said if char.isprintable()).rstrip(".")


@dataclass(frozen=True, slots=True)
class DaemonCredentials:
    """Where a daemon is, and the token it requires: the reply to `GET /interns/{id}/daemon`."""

    origin: str
    """`http` or `https`, a host, perhaps a port; no path, no slash at its end."""
    token: Secret = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that every request has to have."""
        return {"Authorization": f"Bearer {self.token.reveal()}"}

    @property
    def is_near(self) -> bool:
        """Tell whether it is on this machine, where a proxy of the environment has no part."""
        host = urlsplit(self.origin).hostname or ""
        return host in {"127.0.0.1", "::1", "localhost"} or host.endswith(".localhost")


async def fetch_access(server: Server, intern: dict[str, Any]) -> DaemonCredentials:
    """Ask the gateway where an intern's daemon is."""
    return parse_access(await server.get(f"{intern_path(intern)}/daemon"))


def parse_access(reply: object) -> DaemonCredentials:
    """Return the gateway's reply: an origin without path and user, and a token of one word."""
    told = object_fields(reply)
    match told.get("origin"), told.get("token"):
        case str(origin), str(token) if _is_origin(origin) and _TOKEN.fullmatch(token):
            return DaemonCredentials(origin, Secret(token))
        case _:
            raise CommandFailed("the gateway gave no address of the intern")


def daemon_refusal(status: int, body: bytes) -> CommandFailed:
    """Return the error for a refusal by the daemon, or by a proxy before it."""
    if status == HTTPStatus.UNAUTHORIZED:
        return CommandFailed(
            "the intern refused the token: it was provisioned again meanwhile, try once more",
            retryable=True,
        )
    text = f"the intern refused: {refusal_text(body) or f'status {status}'}"
    return CommandFailed(text, retryable=status >= HTTPStatus.INTERNAL_SERVER_ERROR)


def _is_origin(text: str) -> bool:
    if not _ORIGIN.fullmatch(text):
        return False
    try:
        urlsplit(text).port  # noqa: B018 - it looks at the number only when it is asked
    except ValueError:
        return False
    return True
