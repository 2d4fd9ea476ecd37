"""A checkout does what it does: its gateway, compared with itself."""

from pathlib import Path

import pytest

from tests.oracle.http_run import compare


@pytest.mark.soak
def test_a_gateway_is_equal_to_itself(soak_factor: int) -> None:
    result = compare(Path(__file__).parents[2], 20 * soak_factor, {})
    assert result.found == []
    assert result.requests >= 2 * 20 * soak_factor
