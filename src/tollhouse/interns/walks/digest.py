"""The program that digests a workspace, and may flush it to the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.interns.walks.child import serve
from tollhouse.interns.workspace import digest

if TYPE_CHECKING:
    from tollhouse.interns.walks.child import Sender


def main(order: dict[str, Any], sender: Sender) -> str:
    """Return the digest."""
    return digest(order["folder"], sender.alive, flush=order["flush"])


if __name__ == "__main__":
    serve(main)
