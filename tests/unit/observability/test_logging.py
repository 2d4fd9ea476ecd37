"""What reaches the output: whatever goes in, by whichever logger, in both styles."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
import structlog

from tests.support.tables import tables
from tollhouse.kernel.secret import Secret
from tollhouse.observability.logging import configure_logging

CASES = tables(__file__)

KEY = "sk-th-v1-AbCdEfGh0123456789_-xyz"
Style = Literal["json", "console"]
BOTH = pytest.mark.parametrize("style", ["json", "console"])


class Log:
    """Logging set up as the program does it, into a text."""

    def __init__(self) -> None:
        self._out = io.StringIO()

    def use(
        self, style: Style, level: Literal["debug", "info", "warning", "error"] = "debug"
    ) -> None:
        configure_logging(level, style, self._out)

    @property
    def text(self) -> str:
        return self._out.getvalue()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    root = logging.getLogger()
    before = root.handlers, root.level, logging.raiseExceptions
    yield Log()
    root.handlers, root.level, logging.raiseExceptions = before
    structlog.reset_defaults()


def ours(event: str, **fields: Any) -> None:
    structlog.get_logger("tollhouse.test").info(event, **fields)


def foreign(message: str, *arguments: object) -> None:
    logging.getLogger("some.package").warning(message, *arguments)


CREDENTIALS = CASES["CREDENTIALS"]
SECRETS = ["AbCdEfGh", "0123456789", "abc.def", "hunter2", "ter2"]


def clean(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


class Thing:
    """Something foreign, which shows what it holds."""

    def __init__(self, held: str) -> None:
        self._held = held

    def __repr__(self) -> str:
        return f"<Thing {self._held}>"


SHAPES: dict[str, Callable[[str], object]] = {
    "text": lambda secret: secret,
    "part of a text": lambda secret: f"before {secret} after",
    "quoted": lambda secret: f"'{secret}'",
    "bytes": lambda secret: secret.encode(),
    "list": lambda secret: [secret],
    "deep": lambda secret: (1, {"a": [secret]}),
    "value": lambda secret: {"url": secret},
    "name": lambda secret: {secret: 1},
    "set": lambda secret: {secret},
    "exception": RuntimeError,
    "thing": Thing,
}


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
def test_a_credential_in_any_value_is_masked(log: Log, style: Style, shape: str) -> None:
    log.use(style)
    for credential in CREDENTIALS:
        ours("something_happened", detail=SHAPES[shape](credential))
    assert log.text.count("something_happened") == len(CREDENTIALS)
    assert clean(log.text)


@BOTH
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_a_credential_in_a_message_is_masked(log: Log, style: Style, credential: str) -> None:
    log.use(style)
    ours(f"calling {credential}")
    foreign(f"calling {credential}")
    foreign("calling %s", credential)
    foreign("calling %r", [credential])
    assert log.text.count("calling") == 4
    assert clean(log.text)


@BOTH
@pytest.mark.parametrize("name", CASES["a_field_of_a_telling_name_is_masked_whatever_it_holds"])
def test_a_field_of_a_telling_name_is_masked_whatever_it_holds(
    log: Log, style: Style, name: str
) -> None:
    log.use(style)
    ours("x", **{name: "plain words"})
    ours("x", headers={name: "plain words"}, deep=[{"a": {name: ["plain words"]}}])
    assert "plain words" not in log.text


@BOTH
def test_a_secret_does_not_show(log: Log, style: Style) -> None:
    log.use(style)
    ours("x", value=Secret("plain words"), inside={"value": Secret("plain words")})
    foreign("value %s %r", Secret("plain words"), Secret("plain words"))
    assert "plain words" not in log.text


# Exceptions


def raise_deep() -> None:
    raise RuntimeError("a body with plain words") from KeyError("plain words")


def failed(**how: object) -> None:
    structlog.get_logger("tollhouse.test").error("it_failed", **how)


WAYS: dict[str, Callable[[BaseException], None]] = {
    "ours": lambda _: structlog.get_logger("tollhouse.test").exception("it_failed"),
    "a library's": lambda _: logging.getLogger("some.package").exception("it_failed"),  # noqa: LOG004 - called in one
    "true": lambda _: failed(exc_info=True),
    "exception": lambda error: failed(exc_info=error),
    "tuple": lambda error: failed(exc_info=(type(error), error, error.__traceback__)),
}


@BOTH
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_is_its_type_and_its_places(log: Log, style: Style, way: str) -> None:
    log.use(style)
    try:
        raise_deep()
    except RuntimeError as error:
        WAYS[way](error)
    assert "plain words" not in log.text
    for fact in ("it_failed", "RuntimeError", "test_logging.py", "raise_deep"):
        assert fact in log.text


@BOTH
def test_a_task_that_nobody_asked_about_shows_no_message(log: Log, style: Style) -> None:
    log.use(style)

    async def fail() -> None:
        raise_deep()

    async def run() -> None:
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        # What the loop does when the task is collected.
        asyncio.get_running_loop().call_exception_handler(
            {
                "message": "Task exception was never retrieved",
                "exception": task.exception(),
                "task": task,
            }
        )

    asyncio.run(run())
    assert "never retrieved" in log.text
    assert "RuntimeError" in log.text
    assert "plain words" not in log.text


@BOTH
def test_a_record_that_cannot_be_rendered_is_dropped_not_printed_raw(
    log: Log, style: Style, capsys: pytest.CaptureFixture[str]
) -> None:
    log.use(style)
    foreign("%d", "plain words")
    assert "plain words" not in log.text + "".join(capsys.readouterr())


# The rest of the output


def test_masked_json_is_still_json(log: Log) -> None:
    log.use("json")
    ours("x", a=f'{{"authorization":"Bearer {KEY}","b":1}}', c="postgresql://u:p@h/x", d=2)
    assert log.events[0]["d"] == 2


@BOTH
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_less_severe_records_are_left_out(
    log: Log, style: Style, level: Literal["debug", "info", "warning", "error"]
) -> None:
    log.use(style, level)
    logger, library = structlog.get_logger("tollhouse.test"), logging.getLogger("some.package")
    for each in ("debug", "info", "warning", "error"):
        getattr(logger, each)(f"ours_{each}")
        getattr(library, each)(f"foreign_{each}")
    order = ["debug", "info", "warning", "error"]
    for each in order:
        shown = order.index(each) >= order.index(level)
        assert (f"ours_{each}" in log.text) is shown
        important = order.index(each) >= order.index("warning")
        assert (f"foreign_{each}" in log.text) is (shown and important)


def test_a_library_that_notes_its_statements_is_not_heard_at_debug(log: Log) -> None:
    log.use("json", "debug")
    logging.getLogger("aiosqlite").debug("executing %s", "INSERT INTO secrets VALUES ('x')")
    structlog.get_logger("tollhouse.test").debug("ours")
    assert [event["event"] for event in log.events] == ["ours"]


def test_ordinary_text_is_left_alone(log: Log) -> None:
    log.use("json")
    texts = ["http://acme.example:8080/v1", "mail to a@b.example", "risk-free", "task-12345678"]
    ours("x", texts=texts)
    assert log.events[0]["texts"] == texts
