"""A sequence of requests shows no value that it was told."""

from typing import Any

from tollhouse.vault.egress.exchange import RequestSequence

NOT_USED: Any = None


def test_values_that_were_sent_are_in_no_repr() -> None:
    sequence = RequestSequence(NOT_USED, NOT_USED, NOT_USED, NOT_USED)
    sequence._values.add("hunter2")  # noqa: SLF001 - what an exchange does
    assert "hunter2" not in repr(sequence)
    assert "hunter2" not in repr(sequence.exchange)
