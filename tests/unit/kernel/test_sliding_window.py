from tollhouse.kernel.sliding_window import SlidingMinute


def test_as_many_as_the_limit_pass_at_once() -> None:
    minute = SlidingMinute()
    for _ in range(20):
        assert minute.wait(20, 100.0) == 0
        minute.take(100.0)
    assert minute.wait(20, 100.0) == 60


def test_no_minute_has_more_than_the_limit() -> None:
    minute, passed = SlidingMinute(), []
    now = 0.0
    while now < 300:
        if not minute.wait(20, now):
            minute.take(now)
            passed.append(now)
        now += 0.5
    assert len(passed) == 20 * 5
    for first in passed:
        assert sum(first <= each < first + 60 for each in passed) <= 20


def test_the_wait_ends_when_the_oldest_of_the_last_minute_is_gone() -> None:
    minute = SlidingMinute()
    for at in (0.0, 10.0, 20.0):
        minute.take(at)
    assert minute.wait(3, 25.0) == 35
    assert minute.wait(3, 59.9) > 0
    assert minute.wait(3, 60.0) == 0


def test_a_limit_that_was_lowered_waits_until_so_few_are_left() -> None:
    minute = SlidingMinute()
    for at in (0.0, 10.0, 20.0):
        minute.take(at)
    assert minute.wait(1, 30.0) == 50


def test_a_limit_of_none_never_lets_one_pass() -> None:
    assert SlidingMinute().wait(0, 5.0) > 0


def test_it_is_idle_a_minute_after_the_last() -> None:
    minute = SlidingMinute()
    assert minute.idle(0.0)
    minute.take(1.0)
    assert not minute.idle(60.9)
    assert minute.idle(61.0)


def test_how_many_there_are_and_when_the_oldest_leaves() -> None:
    minute = SlidingMinute()
    assert minute.current(100.0) == (0, None)
    for now in (100.0, 110.0, 125.0):
        minute.take(now)
    assert minute.current(130.0) == (3, 30.0)
    assert minute.current(159.0) == (3, 1.0)
    assert minute.current(160.0) == (2, 10.0)
    assert minute.current(185.0) == (0, None)
