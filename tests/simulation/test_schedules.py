import random

import pytest

from tests.simulation.schedules import failure, shrunk


def keep_every_promise(seeds: range) -> None:
    for seed in seeds:
        if failure(seed) is not None:
            pytest.fail("\n".join(shrunk(seed)), pytrace=False)


@pytest.mark.parametrize("first", range(0, 3_000, 500))
def test_random_schedules_keep_every_promise(first: int) -> None:
    keep_every_promise(range(first, first + 500))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_random_schedules_keep_every_promise(part: int, soak_factor: int) -> None:
    first = random.randrange(1 << 40) + part * 10_000  # each test draws the same number
    keep_every_promise(range(first, first + 100 * soak_factor))
