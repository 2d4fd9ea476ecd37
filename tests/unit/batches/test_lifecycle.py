import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.batches.lifecycle import (
    HAVE_RESULTS,
    NEXT,
    OPEN,
    RUNNING,
    before,
    closing_error,
    ending,
    shown_as,
)
from tollhouse.batches.types import Status
from tollhouse.testing.batches import batch


def reachable(start: Status) -> set[Status]:
    found, waiting = set(), [start]
    while waiting:
        for status in NEXT[waiting.pop()] - found:
            found.add(status)
            waiting.append(status)
    return found


def test_every_status_says_what_follows() -> None:
    assert set(NEXT) == set(Status)


def test_nothing_follows_an_end_and_something_everything_else() -> None:
    assert {status for status in Status if not NEXT[status]} == {
        status for status in Status if status.is_terminal
    }


def test_every_status_is_reached_from_the_first() -> None:
    assert reachable(Status.VALIDATING) == set(Status) - {Status.VALIDATING}


def test_an_end_is_reached_from_every_status_that_is_open() -> None:
    for status in OPEN:
        assert any(each.is_terminal for each in reachable(status))


def test_no_status_is_reached_twice() -> None:
    for status in Status:
        assert status not in reachable(status)


@pytest.mark.parametrize("status", [Status.FINALIZING, Status.CANCELLING])
def test_no_item_is_begun_again_once_a_batch_is_being_closed(status: Status) -> None:
    assert not RUNNING & reachable(status)


@given(st.sampled_from(Status), st.sampled_from(Status))
def test_the_guard_of_a_change_is_the_table_read_backwards(one: Status, other: Status) -> None:
    assert (one in before(other)) == (other in NEXT[one])


def test_a_cancelled_batch_ends_so_however_many_items_failed() -> None:
    assert ending(batch(status=Status.CANCELLING, unrun=10, failed=10)) is Status.CANCELLED


def test_an_expired_batch_ends_so_however_many_items_failed() -> None:
    closing = batch(status=Status.FINALIZING, ending=Status.EXPIRED, unrun=10, failed=10)
    assert ending(closing) is Status.EXPIRED


def test_a_batch_fails_only_where_no_item_could_be_run() -> None:
    running = batch(status=Status.IN_PROGRESS, failed=10, unrun=10)
    assert ending(running) is Status.FAILED


def test_a_batch_whose_items_all_failed_at_a_provider_is_completed() -> None:
    running = batch(status=Status.IN_PROGRESS, failed=10, unrun=9)
    assert ending(running) is Status.COMPLETED


def test_a_list_knows_what_is_closed_as_in_progress() -> None:
    assert shown_as(Status.FINALIZING) is shown_as(Status.CANCELLING) is Status.IN_PROGRESS
    assert shown_as(Status.EXPIRED) is Status.EXPIRED


def test_a_batch_that_failed_as_a_whole_has_no_results() -> None:
    assert {status for status in Status if status.is_terminal} - HAVE_RESULTS == {Status.FAILED}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (Status.VALIDATING, None),
        (Status.IN_PROGRESS, None),
        (Status.FINALIZING, "batch_expired"),
        (Status.CANCELLING, "batch_cancelled"),
    ],
)
def test_items_that_are_not_begun_any_more_are_told_why(status: Status, word: str | None) -> None:
    assert closing_error(batch(status=status)) == word
