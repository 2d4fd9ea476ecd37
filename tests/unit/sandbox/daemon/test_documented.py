"""The reference has the figures that the daemon has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tollhouse.sandbox.agent import spending
from tollhouse.sandbox.daemon import app, errors, forwarder, server, settings
from tollhouse.sandbox.daemon.files import endpoints as files
from tollhouse.sandbox.daemon.files import entries
from tollhouse.sandbox.daemon.sessions import endpoints as talk
from tollhouse.sandbox.daemon.sessions import pieces, requests, runs, streams
from tollhouse.sandbox.daemon.terminal import endpoint, messages, replay, session, sessions

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "daemon-api.md").read_text("utf-8")
WORDS = " ".join(PAGE.split())
SOURCE = Path(app.__file__).parent


@pytest.mark.parametrize(
    ("words", "figure"),
    [
        ("API, version {}", app.VERSION),
        ("At most {} terminals run", sessions.MOST),
        ("for {} hours; then it is hung up", sessions.IDLE_SECONDS // 3600),
        ("are kept for {} minutes", sessions.KEPT_SECONDS // 60),
        ("the last {} KiB are kept", replay.LIMIT // 1024),
        ("once it is {} KiB behind", session.LAG // 1024),
        ("no more than {} KiB of input", session.MOST_INPUT // 1024),
        ("pieces of any size up to {} KiB", endpoint.LARGEST_MESSAGE // 1024),
        ("after every {} KiB", endpoint.ACKNOWLEDGED // 1024),
        ("No pong in {} seconds", server.PONG_SECONDS),
        ("pings come every {}", server.PING_SECONDS),
        ("killed {} seconds later", session.GRACE_SECONDS),
        ("kills what is left {} seconds later", server.GRACE_SECONDS),
        ("1 to {}. For one", messages.LARGEST_SIDE),
        ("| {} | A text message that cannot be understood", endpoint.BAD_MESSAGE),
        ("| {} | Another client attached", sessions.TAKEN_OVER),
        ("at most {}) and `after`", entries.MOST_LISTED),
        ("find that proxy: {}.", settings.EGRESS_PORT),
        ("At most {} connections at a time", forwarder.MOST_CONNECTIONS),
        ("sent as one file: {}", settings.LARGEST_FILE),
        ("`interaction_seconds` ({})", settings.INTERACTION_SECONDS),
        ("`idle_seconds` ({})", settings.IDLE_SECONDS),
        ("`model_seconds` ({})", settings.MODEL_SECONDS),
        ("within {} minutes ends its run", settings.INTERACTION_SECONDS // 60),
        ("1 to {:,} characters; `manual`", requests.MOST_INPUT),
        ("text of 1 to {} characters without", requests.LONGEST_NAME),
        ("more than {} bytes", requests.LARGEST_BODY),
        ("(100, at most {}) and `after` (a session)", talk.MOST_LISTED),
        ("{} may wait at a time", runs.MOST_WAITING),
        ("said within {} ms", pieces.PIECE_SECONDS * 1000),
        ("up to {} characters. A run", pieces.PIECE_CHARACTERS),
        ("more than {} times", spending.MOST_REQUESTS),
        ("than {} MiB. A run", spending.MOST_OUTPUT_BYTES // 1024**2),
        ("comes every {} seconds in which", streams.COMMENT_SECONDS),
    ],
)
def test_a_figure_of_the_reference_is_the_daemons(words: str, figure: float) -> None:
    text = words.format(round(figure)) if ":," in words else words.format(f"{figure:.0f}")
    assert text in WORDS


def test_every_status_of_the_daemon_is_in_the_reference() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    answered = {
        int(code) for text in texts for code in re.findall(r"\(\s*(4\d\d|5\d\d), f?\"", text)
    }
    documented = {int(code) for code in re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE)}
    assert answered - {500} == documented - {500}
    assert errors.refusal_of(OSError()).status == 500


def test_every_method_of_files_is_in_the_reference() -> None:
    assert [method for method in files.METHODS if f"`{method}`" not in PAGE] == []
