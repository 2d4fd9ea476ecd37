"""The program that makes the archive of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.interns.archive import pack
from tollhouse.interns.walks.child import serve

if TYPE_CHECKING:
    from tollhouse.interns.walks.child import Sender


def main(order: dict[str, Any], sender: Sender) -> None:
    """Send the archive."""
    for piece in pack(order["folder"], sender.alive):
        sender.piece(piece)


if __name__ == "__main__":
    serve(main)
