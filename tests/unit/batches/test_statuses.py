import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import batch
from tollhouse.batches.types import (
    HAVE_RESULTS,
    NEXT,
    OPEN,
    RUNNING,
    BatchStatus,
    closing_reason,
    final_status,
    listed_status,
    statuses_before,
)


def reachable(start: BatchStatus) -> set[BatchStatus]:
    found, waiting = set(), [start]
    while waiting:
        for status in NEXT[waiting.pop()] - found:
            found.add(status)
            waiting.append(status)
    return found


def test_every_status_says_what_follows() -> None:
    assert set(NEXT) == set(BatchStatus)


def test_nothing_follows_an_end_and_something_everything_else() -> None:
    assert {status for status in BatchStatus if not NEXT[status]} == {
        status for status in BatchStatus if status.is_terminal
    }


def test_every_status_is_reached_from_the_first() -> None:
    assert reachable(BatchStatus.VALIDATING) == set(BatchStatus) - {BatchStatus.VALIDATING}


def test_an_end_is_reached_from_every_status_that_is_open() -> None:
    for status in OPEN:
        assert any(each.is_terminal for each in reachable(status))


def test_no_status_is_reached_twice() -> None:
    for status in BatchStatus:
        assert status not in reachable(status)


@pytest.mark.parametrize("status", [BatchStatus.FINALIZING, BatchStatus.CANCELLING])
def test_no_item_is_begun_again_once_a_batch_is_being_closed(status: BatchStatus) -> None:
    assert not RUNNING & reachable(status)


@given(st.sampled_from(BatchStatus), st.sampled_from(BatchStatus))
def test_the_guard_of_a_change_is_the_table_read_backwards(
    one: BatchStatus, other: BatchStatus
) -> None:
    assert (one in statuses_before(other)) == (other in NEXT[one])


def test_a_cancelled_batch_ends_so_however_many_items_failed() -> None:
    assert (
        final_status(batch(status=BatchStatus.CANCELLING, unrun=10, failed=10))
        is BatchStatus.CANCELLED
    )


def test_an_expired_batch_ends_so_however_many_items_failed() -> None:
    closing = batch(status=BatchStatus.FINALIZING, ending=BatchStatus.EXPIRED, unrun=10, failed=10)
    assert final_status(closing) is BatchStatus.EXPIRED


def test_a_batch_fails_only_where_no_item_could_be_run() -> None:
    running = batch(status=BatchStatus.IN_PROGRESS, failed=10, unrun=10)
    assert final_status(running) is BatchStatus.FAILED


def test_a_batch_whose_items_all_failed_at_a_provider_is_completed() -> None:
    running = batch(status=BatchStatus.IN_PROGRESS, failed=10, unrun=9)
    assert final_status(running) is BatchStatus.COMPLETED


def test_a_list_knows_what_is_closed_as_in_progress() -> None:
    assert (
        listed_status(BatchStatus.FINALIZING)
        is listed_status(BatchStatus.CANCELLING)
        is BatchStatus.IN_PROGRESS
    )
    assert listed_status(BatchStatus.EXPIRED) is BatchStatus.EXPIRED


def test_a_batch_that_failed_as_a_whole_has_no_results() -> None:
    assert {status for status in BatchStatus if status.is_terminal} - HAVE_RESULTS == {
        BatchStatus.FAILED
    }


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (BatchStatus.VALIDATING, None),
        (BatchStatus.IN_PROGRESS, None),
        (BatchStatus.FINALIZING, "batch_expired"),
        (BatchStatus.CANCELLING, "batch_cancelled"),
    ],
)
def test_items_that_are_not_begun_any_more_are_told_why(
    status: BatchStatus, word: str | None
) -> None:
    assert closing_reason(batch(status=status)) == word
