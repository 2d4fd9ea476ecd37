"""The program that digests a workspace, and may have it flushed to the disk before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.interns.walks.child import serve
from tollhouse.interns.workspace import digest, flush

if TYPE_CHECKING:
    from tollhouse.interns.walks.child import Sender


def main(order: dict[str, Any], sender: Sender) -> dict[str, Any]:
    """Return the digest."""
    folder, most = order["folder"], order["most"]
    if order["flush"]:
        flush(folder, most, sender.alive)
    return {"digest": digest(folder, most, sender.alive)}


if __name__ == "__main__":
    serve(main)
