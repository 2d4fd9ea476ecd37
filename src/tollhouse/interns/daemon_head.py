"""The head of a request to a daemon, as everybody here writes it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.kernel.secret import Secret


def head(asked: str, token: Secret, *fields: str) -> bytes:
    """Return a head, up to the empty line that ends it; its connection carries no other request.

    Args:
        asked: The method and the path.
        token: The daemon's.
        fields: Further ones.
    """
    lines = (
        f"{asked} HTTP/1.1",
        "Host: daemon",
        f"Authorization: Bearer {token.reveal()}",
        *fields,
        "Connection: close",
        "",
    )
    return "".join(f"{line}\r\n" for line in lines).encode()
