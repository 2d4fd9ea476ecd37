"""The arithmetic of a statement."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tollhouse.accounting.ledger.types import StatementLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.ledger.types import Movement


def running(opening_nano: int, movements: Sequence[Movement]) -> list[StatementLine]:
    """Return movements with the balance after each.

    Args:
        opening_nano: The balance before the first of them.
        movements: In order.
    """
    changes = (movement.change_nano for movement in movements)
    balances = list(accumulate(changes, initial=opening_nano))[1:]
    return [
        StatementLine(movement, balance)
        for movement, balance in zip(movements, balances, strict=True)
    ]
