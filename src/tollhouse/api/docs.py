"""The page at `/docs`: the OpenAPI document as a list of operations.

One file without anything from another host: a self-hosted gateway works where there is no way out,
and tells nobody who reads its documentation.
"""

from __future__ import annotations

from importlib import resources


def render_docs() -> bytes:
    """Return the page; its script reads `/openapi.json`."""
    return resources.files("tollhouse.api").joinpath("docs.html").read_bytes()
