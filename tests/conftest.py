"""What every test may ask for: a clock and identifiers of its own."""

import pytest
from hypothesis import settings

from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds

# No time limit for an example: a busy machine is no bug.
settings.register_profile("tollhouse", deadline=None)
settings.load_profile("tollhouse")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids() -> SequentialIds:
    return SequentialIds()
