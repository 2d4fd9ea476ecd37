"""What files in requests are: the names of their types that providers take, and data: URLs.

Source: https://docs.anthropic.com/en/docs/build-with-claude/vision takes image/jpeg, image/png,
image/gif and image/webp alone, by these names; the beginnings of files are those of their formats.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical import AudioBlock, DocumentBlock, ImageBlock

if TYPE_CHECKING:
    from msgspec import Raw

_NAMES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "application/x-pdf": "application/pdf",
}
_UNSAID: Final = frozenset({"", "application/octet-stream", "binary/octet-stream", "image/*"})
_BEGINNINGS: Final = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi", "application/pdf"),
)
"""How a file begins, in base64."""
_RECORDINGS: Final = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
"""The subtypes of recordings by which OpenAI's format does not call them."""
_LONGEST_HEAD: Final = 200
_HEAD: Final = re.compile(
    r"(?:data:)?(?P<type>[^;,:]*)(?P<more>(?:;[^;,]*)*?);base64", re.IGNORECASE
)
"""What is before the comma of a data: URL, whose scheme some clients leave out."""
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def _media_type(said: str, data: str) -> str:
    """Return the usual name of a type; of one that says nothing, what the file begins with.

    An image that begins as one of another type has that type: Anthropic refuses the one it is not.
    """
    name = _NAMES.get(said.lower(), said.lower())
    if name in _UNSAID or name.startswith("image/"):
        return next((known for begin, known in _BEGINNINGS if data.startswith(begin)), name)
    return name


def data_url(data: str, said: str = "", otherwise: str = "") -> str:
    """Return a file's URL, of base64 with the type that it is: of bare base64, and of a data: URL.

    `said` is the type that stands beside bare base64, `otherwise` the one of what begins as nothing
    that is known. A text that is neither is returned as it is.
    """
    head, comma, _ = data[:_LONGEST_HEAD].partition(",")
    if comma and (found := _HEAD.fullmatch(head)):
        own = data[len(head) + 1 :]
        return f"data:{_media_type(found['type'], own)}{found['more']};base64,{own}"
    name = "" if _URL.match(data) else _media_type(said, data) or otherwise
    return f"data:{name};base64,{data}" if name else data


def file_block(data: str, name: str | None, cache: Raw | None) -> DocumentBlock | ImageBlock:
    """Return a client's file; bare base64 is a PDF unless it begins otherwise.

    A picture is an image: no provider takes one as a document.
    """
    url = data_url(data, otherwise="application/pdf")
    if url.startswith("data:image/"):
        return ImageBlock(url, cache=cache)
    return DocumentBlock(url=url, name=name, cache=cache)


def recording(data: str, format: str) -> AudioBlock:  # noqa: A002 - the field's name
    """Return a client's recording: bare base64, of the format that its type names."""
    name = format.lower().removeprefix("audio/")
    own = data[data.index(",") + 1 :] if data[:5].lower() == "data:" and "," in data else data
    return AudioBlock(own, _RECORDINGS.get(name, name))
