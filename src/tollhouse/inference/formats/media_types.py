"""What files in requests are: the names of their types that providers take, and data: URLs.

Source: https://docs.anthropic.com/en/docs/build-with-claude/vision takes image/jpeg, image/png,
image/gif and image/webp alone, by these names; the beginnings of files are those of their formats.
"""

from __future__ import annotations

from typing import Final

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
_URLS: Final = ("data:", "http://", "https://")


def media_type(said: str, data: str) -> str:
    """Return the usual name of a type; of one that says nothing, what the file begins with."""
    name = _NAMES.get(said.lower(), said.lower())
    if name in _UNSAID:
        return next((known for begin, known in _BEGINNINGS if data.startswith(begin)), name)
    return name


def file_url(data: str) -> str:
    """Return a file's URL; bare base64 becomes a data: URL, of a PDF unless it begins otherwise."""
    if data.lower().startswith(_URLS):
        return data
    return f"data:{media_type('', data) or 'application/pdf'};base64,{data}"
