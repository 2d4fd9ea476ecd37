"""The program that measures a workspace, while its programs run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.interns.size import measure
from tollhouse.interns.tree import ANY_NUMBER
from tollhouse.interns.walks.child import serve

if TYPE_CHECKING:
    from tollhouse.interns.size import Held
    from tollhouse.interns.walks.child import Sender


def main(order: dict[str, Any], sender: Sender) -> Held:
    """Return what it holds."""
    return measure(order["folder"], ANY_NUMBER, order["processes"], sender.alive)


if __name__ == "__main__":
    serve(main)
