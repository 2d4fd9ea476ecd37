"""A simulated vector identifies its text, and nothing else."""

import json
import math
from typing import Any

import pytest

from tollhouse.inference.providers.simulated.provider import DIMENSIONS, embeddings
from tollhouse.inference.providers.simulated.request import InvalidSimulatedRequest


def made(given: object, **fields: Any) -> dict[str, Any]:
    return dict(embeddings("embedding", json.dumps({"input": given} | fields).encode()))


def vectors(given: object, **fields: Any) -> list[list[float]]:
    return [item["embedding"] for item in made(given, **fields)["data"]]


def test_a_vector_depends_only_on_its_text() -> None:
    assert vectors("a") == vectors("a")
    assert vectors("a") != vectors("b")
    assert vectors(["a", "b", "a"]) == [*vectors("a"), *vectors("b"), *vectors("a")]


def test_a_vector_has_length_one_and_the_requested_dimensions() -> None:
    for size in (1, 3, DIMENSIONS, 1_536):
        [vector] = vectors("hello", dimensions=size)
        assert len(vector) == size
        assert math.hypot(*vector) == pytest.approx(1.0)
    assert len(vectors("hello")[0]) == DIMENSIONS


@pytest.mark.parametrize(
    ("given", "count", "tokens"),
    [
        ("one two", 1, 2),
        (["one two", "three"], 2, 3),
        ([1, 2, 3], 1, 3),
        ([[1, 2], [3]], 2, 3),
        ([{"content": ["x"]}], 1, 1),
    ],
)
def test_every_type_of_input_is_accepted(given: object, count: int, tokens: int) -> None:
    reply = made(given)
    assert [item["index"] for item in reply["data"]] == list(range(count))
    assert reply["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize("dimensions", [0, -1, 4_097])
def test_invalid_dimensions_are_rejected(dimensions: int) -> None:
    with pytest.raises(InvalidSimulatedRequest, match="dimensions"):
        made("a", dimensions=dimensions)


@pytest.mark.parametrize("given", [True, [True], [None], {"a": 1}])
def test_an_invalid_input_is_rejected(given: object) -> None:
    with pytest.raises(InvalidSimulatedRequest, match="input"):
        made(given)
