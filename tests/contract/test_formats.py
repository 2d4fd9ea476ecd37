"""Every format of the published client libraries, on a provider of every dialect.

The libraries' own types have validated all that is seen here; `dialects.CELLS` says what there is.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.clients import conversations as told
from tests.contract.format_matrix import (
    ALL_CELLS,
    ANTHROPIC,
    BEHAVIOURS,
    CELLS,
    CONVERSATIONS,
    ERRORS,
    PRICE_IN,
    PRICE_OUT,
    RULES,
    Cell,
    FormatMatrix,
)

pytestmark = pytest.mark.contract

THOUGHT = "Let me think about it."
REFUSAL = "I cannot help with that."
JSON = '{"city":"city","days":1}'
WEATHER, WEATHER_IN_CHAT = ["weather", {"city": "city", "days": 1}], ["weather", {"city": "Paris"}]
TIME: list[Any] = ["time", {}]
ENDS = {
    "chat": {"stop": "stop", "length": "length", "tools": "tool_calls", "filter": "content_filter"},
    "completions": {"stop": "stop", "length": "length", "filter": "content_filter"},
    "responses": {
        "stop": "completed",
        "length": "max_output_tokens",
        "tools": "completed",
        "filter": "content_filter",
    },
    "messages": {
        "stop": "end_turn",
        "length": "max_tokens",
        "tools": "tool_use",
        "filter": "refusal",
        "sequence": "stop_sequence",
    },
}
"""Format -> why a reply ended -> the format's word for it."""


def of(features: Container[str]) -> list[Any]:
    """Return the parameters of a test for every cell with one of the features."""
    return [pytest.param(cell, id="-".join(cell)) for cell in CELLS if cell[2] in features]


@dataclass(frozen=True)
class Reply:
    """What a reply says, in no format's words."""

    text: str = ""
    tokens: tuple[int, int] = (3, 3)
    end: str = "stop"
    calls: tuple[Any, ...] = ()
    thought: str = ""
    refusal: str | None = None


# -------------------------------------------------------------------- what the stand-ins answer


PLAIN = {
    "text": Reply(told.TEXT),
    "beta": Reply(told.TEXT),
    "bearer": Reply(told.TEXT),
    "turns": Reply("three four", (6, 2)),
    "image": Reply("[image/png 3 bytes] look", (4, 4)),
    "json": Reply(JSON, (3, 1)),
    "length": Reply(" ".join(told.LONG.split()[: told.LIMIT]), (20, told.LIMIT), "length"),
    "forced tool": Reply(tokens=(3, 1), end="tools", calls=(TIME,)),
}
AFTER = {
    "tool": Reply("cold", (4, 1)),
    "two tools": Reply("cold noon", (5, 2)),
    "forced tool": Reply("cold", (4, 1)),
    "thought and call": Reply("cold", (4, 1)),
}
"""The reply to what the tools returned."""


def first_reply(form: str, dialect: str, feature: str) -> Reply:
    if feature in PLAIN:
        return PLAIN[feature]
    return SPECIAL[feature](form, dialect)


def called(_form: str, dialect: str) -> Reply:
    if dialect == "chat":
        return Reply(tokens=(20, 8), end="tools", calls=(WEATHER_IN_CHAT,))
    return Reply(end="tools", calls=(WEATHER,))


def called_twice(_form: str, dialect: str) -> Reply:
    tokens = (20, 8) if dialect == "chat" else (3, 4)
    return Reply(tokens=tokens, end="tools", calls=(WEATHER, TIME))


def thought(_form: str, _dialect: str) -> Reply:
    return Reply(told.TEXT, (3, 8), thought=THOUGHT)


def thought_and_called(_form: str, _dialect: str) -> Reply:
    return Reply(tokens=(3, 8), end="tools", calls=(WEATHER,), thought=THOUGHT)


def stopped(form: str, dialect: str) -> Reply:
    """Return the reply to a stop sequence, which OpenAI's responses cannot be asked for."""
    if dialect == "responses":
        return Reply(told.TEXT)
    told_which = dialect == "messages" and "messages" in form
    return Reply("one two", (3, 2), "sequence" if told_which else "stop")


def refused(form: str, dialect: str) -> Reply:
    """Return a refusal: a part of its own at OpenAI, a reason to stop at Anthropic."""
    text_only = "messages" in form or "completions" in form
    if dialect == "messages" or "messages" in form:
        return Reply(REFUSAL, (3, 5), "filter")
    return Reply(REFUSAL, (3, 5)) if text_only else Reply("", (3, 5), refusal=REFUSAL)


def went_on(_form: str, dialect: str) -> Reply:
    """Return the reply to a prefill, which only Anthropic goes on from."""
    if dialect == "messages":
        return Reply(f"[after: {told.PREFILL}] {told.TEXT}", (4, 5))
    return Reply(told.TEXT, (4, 3))


def cached(_form: str, dialect: str) -> Reply:
    """Return a reply whose prompt was cached in part; only Anthropic tells what it kept anew."""
    return Reply(told.TEXT, (128 + 1920 + (500 if dialect == "messages" else 0), 300))


SPECIAL: dict[str, Callable[[str, str], Reply]] = {
    "tool": called,
    "two tools": called_twice,
    "reasoning": thought,
    "hidden reasoning": thought,
    "thought and call": thought_and_called,
    "stop": stopped,
    "refusal": refused,
    "prefill": went_on,
    "cached": cached,
}
"""Features whose reply depends on the format and the dialect."""


def next_reply(feature: str) -> Reply:
    if feature in AFTER:
        return AFTER[feature]
    return Reply(told.NEXT, (8, 7), thought=THOUGHT)


def proofs(dialect: str, feature: str) -> list[str]:
    """Return the proofs that come back to the provider which gave them."""
    if feature not in told.THINKING:
        return []
    if dialect == "chat":
        return ["sig"]
    both = ["redacted", "sig"] if feature == "hidden reasoning" else ["sig"]
    return ["enc"] if dialect == "responses" else both


def in_words_of(form: str, reply: Reply) -> dict[str, Any]:
    """Return a reply as a client's script tells it."""
    kind = form.split()[1]
    sequence = told.STOP if reply.end == "sequence" else None
    taken, given = reply.tokens
    return {
        "text": reply.text,
        "reason": ENDS[kind][reply.end],
        "thought": reply.thought,
        "refusal": reply.refusal,
        "calls": list(reply.calls),
        "usage": pytest.approx([taken, given, taken * PRICE_IN + given * PRICE_OUT], rel=1e-9),
    } | ({"stop_sequence": sequence} if kind == "messages" else {})


# ----------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("way", ["whole", "streamed"])
@pytest.mark.parametrize("cell", of((*CONVERSATIONS, "beta", "bearer")))
def test_a_client_gets_what_the_model_said_at_its_price(
    formats: FormatMatrix, cell: Cell, way: str
) -> None:
    seen = formats.seen(cell)
    assert "error" not in seen, seen["error"]
    expected = in_words_of(cell[0], first_reply(*cell))
    if cell[2] in told.GOES_ON:
        expected["then"] = in_words_of(cell[0], next_reply(cell[2]))
        expected["proofs"] = proofs(*cell[1:])
    assert seen[way] == expected


@pytest.mark.parametrize("cell", of({"count"}))
def test_tokens_are_counted_by_a_provider_that_counts_and_estimated_elsewhere(
    formats: FormatMatrix, cell: Cell
) -> None:
    seen = formats.seen(cell)
    assert "error" not in seen, seen["error"]
    if cell[1] == "messages":
        assert seen == {"counted": 5, "longer": 24, "beta": 5}
    assert 0 < seen["counted"] == seen["beta"] < seen["longer"]


@pytest.mark.parametrize("cell", of({"vectors"}))
def test_embeddings_are_the_same_in_base64_and_as_numbers(
    formats: FormatMatrix, cell: Cell
) -> None:
    seen = formats.seen(cell)
    assert "error" not in seen, seen["error"]
    assert seen == {
        "indexes": [0, 1],
        "same": True,
        "filled": True,
        "usage": pytest.approx([3, 3, 3 * PRICE_IN], rel=1e-9),
    }


STATUSES = {
    "no-key": 401,
    "nothing": 404,
    "invalid": 400,
    "status:400": 400,
    "status:401": 502,
    "status:429:retry-7": 429,
    "status:500": 502,
    "status:503": 503,
    "status:529": 503,
    "error-in-stream": 502,
}
"""What goes wrong -> the gateway's status."""
CLASSES = {
    "openai": {
        400: "BadRequestError",
        401: "AuthenticationError",
        404: "NotFoundError",
        429: "RateLimitError",
        502: "InternalServerError",
        503: "InternalServerError",
    },
    "anthropic": {
        400: "BadRequestError",
        401: "AuthenticationError",
        404: "NotFoundError",
        429: "RateLimitError",
        502: "InternalServerError",
        503: "ServiceUnavailableError",
    },
    "openrouter": {
        400: "BadRequestResponseError",
        401: "UnauthorizedResponseError",
        404: "NotFoundResponseError",
        429: "TooManyRequestsResponseError",
        502: "BadGatewayResponseError",
        503: "ServiceUnavailableResponseError",
    },
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
}
"""Status -> Anthropic's word for it."""
ANTHROPIC_SHAPE = ["error", "request_id", "type"]
BEFORE_A_PROVIDER = {"no-key", "nothing"}


def expected_error(cell: Cell) -> dict[str, Any]:
    """Return the exception of the library for an error before the first byte."""
    library = cell[0].split()[0]
    case = cell[2].removeprefix("error ")
    status = STATUSES[case]
    # The openai library makes a text of the code.
    codes = {"openai": str(status), "openrouter": status, "anthropic": TYPES[status]}
    expected = {
        "class": CLASSES[library][status],
        "status": status,
        "code": codes[library],
        "retry after": "7" if status == 429 else None,
    }
    if library == "anthropic":
        request_id = None if case in BEFORE_A_PROVIDER else "gen-"
        expected |= {"shape": ANTHROPIC_SHAPE, "request id": request_id}
    return expected


def expected_failure(cell: Cell) -> dict[str, Any]:
    """Return what a library makes of an error in mid-stream, under the status 200."""
    form, dialect, _ = cell
    # Anthropic's stand-in says in mid-stream that it is overloaded, OpenAI's that it failed.
    status = 503 if dialect == "messages" else 502
    if "responses" in form:
        return {"class": "response.failed", "status": "failed", "code": "server_error"}
    if form == "openrouter chat":
        return {"class": "error chunk", "code": status}
    if form.startswith("openai"):
        return {"class": "APIError", "code": str(status)}
    shape = {"shape": ANTHROPIC_SHAPE, "request id": "gen-", "retry after": None}
    return {"class": "APIStatusError", "status": 200, "code": TYPES[status]} | shape


@pytest.mark.parametrize("cell", of(ERRORS))
def test_an_error_is_the_library_s_own_class(formats: FormatMatrix, cell: Cell) -> None:
    seen = formats.seen(cell)
    assert "error" not in seen, seen["error"]
    assert seen["whole"] == expected_error(cell)


@pytest.mark.parametrize("cell", [each for each in of(ERRORS) if "embeddings" not in each.id])
def test_an_error_of_a_stream_is_the_library_s_own_class(formats: FormatMatrix, cell: Cell) -> None:
    seen = formats.seen(cell)
    assert "error" not in seen, seen["error"]
    mid_stream = cell[2] == "error error-in-stream"
    assert seen["streamed"] == (expected_failure(cell) if mid_stream else expected_error(cell))


def test_every_feature_is_seen_somewhere() -> None:
    assert {feature for _, _, feature in CELLS} == {*CONVERSATIONS, *ERRORS, *ANTHROPIC, "vectors"}


@pytest.mark.parametrize("reason", RULES)
def test_every_rule_leaves_cells_out_that_no_other_rule_does(reason: str) -> None:
    others = [leaves_out for name, leaves_out in RULES.items() if name != reason]
    left = [cell for cell in ALL_CELLS if RULES[reason](*cell)]
    assert [cell for cell in left if not any(leaves_out(*cell) for leaves_out in others)]


@pytest.mark.parametrize("cell", of({"models"}))
def test_anthropics_library_reads_the_catalogue(formats: FormatMatrix, cell: Cell) -> None:
    dialect = cell[1]
    assert formats.seen(cell) == {
        "one": [f"{dialect}/echo", "model", 200_000],
        "page": [5, True],
        "all": len(BEHAVIOURS),
    }
