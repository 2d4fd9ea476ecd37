from math import inf

import pytest

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.chat import BusyRetry


def busy(retry_after: float | None = None, reason: str = "busy") -> CommandFailed:
    return CommandFailed("No.", status=409, reason=reason, retry_after_seconds=retry_after)


@pytest.mark.parametrize("reason", ["busy", "rate_limited"])
def test_it_waits_as_long_as_the_server_says(reason: str) -> None:
    assert BusyRetry(inf).seconds(busy(7.0, reason), 1000.0) == 7.0


def test_without_a_word_of_the_server_it_waits_five_seconds() -> None:
    assert BusyRetry(inf).seconds(busy(), 0.0) == 5.0


def test_it_never_comes_again_at_once() -> None:
    assert BusyRetry(inf).seconds(busy(0.0), 0.0) > 0


def test_past_its_limit_the_refusal_stands_with_what_else_to_do() -> None:
    waiting = BusyRetry(10.0, hint="Try `--wait`.")
    assert waiting.seconds(busy(5.0), 5.0) == 5.0
    with pytest.raises(CommandFailed, match=r"^No\. Try `--wait`\.$"):
        waiting.seconds(busy(5.0), 5.1)


@pytest.mark.parametrize("reason", ["intern_not_ready", "bad_request", None])
def test_nothing_else_gets_better_by_waiting(reason: str | None) -> None:
    refused = CommandFailed("No.", status=409, reason=reason, retry_after_seconds=1.0)
    with pytest.raises(CommandFailed) as raised:
        BusyRetry(inf).seconds(refused, 0.0)
    assert raised.value is refused
