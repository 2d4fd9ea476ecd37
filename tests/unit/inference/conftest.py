from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[dict[str, object]]]:
    """Keep the log out of the output: rendering a trace costs more than most tests."""
    with capture_logs() as entries:
        yield entries  # type: ignore[misc]
