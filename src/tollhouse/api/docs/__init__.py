"""The page at `/docs`: the OpenAPI document with search, examples, and a form to try operations.

It loads nothing from another host: a self-hosted gateway works where there is no way out, and tells
nobody who reads its documentation. A key that is typed in stays in the page's memory.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILES: Final = {
    "/docs": ("index.html", b"text/html; charset=utf-8"),
    "/docs/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/docs/page.js": ("page.js", b"text/javascript; charset=utf-8"),
}


def docs_files() -> Mapping[str, tuple[bytes, bytes]]:
    """Return the content type and the content of each file of the page, by its path."""
    folder = resources.files(__name__)
    return {
        path: (kind, folder.joinpath(name).read_bytes()) for path, (name, kind) in _FILES.items()
    }
