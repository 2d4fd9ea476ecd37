from typing import Any

import msgspec
import pytest

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.chat_completions.wire import parse_usage


def read(*, with_output: bool = True, **counts: Any) -> Usage | None:
    return parse_usage(msgspec.Raw(msgspec.json.encode(counts)), with_output=with_output)


def test_a_usage_without_output_tokens_is_ignored_if_output_is_required() -> None:
    assert read(prompt_tokens=10, total_tokens=30) is None
    assert read(prompt_tokens=10, with_output=False) == Usage(input_tokens=10)


@pytest.mark.parametrize(
    ("completion", "reasoning", "total", "output"),
    [(530, 233, 567, 530), (530, 233, 800, 763), (5, 233, None, 238), (233, 233, 270, 233)],
)
def test_reasoning_tokens_are_part_of_the_output_even_if_reported_separately(
    completion: int, reasoning: int, total: int | None, output: int
) -> None:
    details = {"reasoning_tokens": reasoning}
    usage = read(
        prompt_tokens=37,
        completion_tokens=completion,
        total_tokens=total,
        completion_tokens_details=details,
    )
    assert usage == Usage(input_tokens=37, output_tokens=output, reasoning_tokens=reasoning)
