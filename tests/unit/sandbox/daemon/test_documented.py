"""The reference has the figures that the daemon has."""

import re
from pathlib import Path

import pytest

from tollhouse.sandbox.agent import usage
from tollhouse.sandbox.daemon import app, files, forwarder, http, settings, terminal, terminals
from tollhouse.sandbox.daemon.sessions import active_run, runs
from tollhouse.sandbox.daemon.sessions import endpoints as sessions

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "daemon-api.md").read_text("utf-8")
WORDS = " ".join(PAGE.split())
SOURCE = Path(app.__file__).parent


@pytest.mark.parametrize(
    ("words", "figure"),
    [
        ("API, version {}", app.VERSION),
        ("At most {} terminals run", terminals.MOST_TERMINALS),
        ("for {} hours; then it is hung up", terminals.IDLE_SECONDS // 3600),
        ("are kept for {} minutes", terminals.KEPT_SECONDS // 60),
        ("the last {} KiB are kept", terminal.SCROLLBACK_BYTES // 1024),
        ("once it is {} KiB behind", terminal.MOST_LAG // 1024),
        ("no more than {} KiB of input", terminal.MOST_INPUT // 1024),
        ("pieces of any size up to {} KiB", terminals.LARGEST_MESSAGE // 1024),
        ("after every {} KiB", terminals.ACKNOWLEDGED // 1024),
        ("No pong in {} seconds", app.PONG_SECONDS),
        ("pings come every {}", app.PING_SECONDS),
        ("killed {} seconds later", terminal.GRACE_SECONDS),
        ("kills what is left {} seconds later", app.GRACE_SECONDS),
        ("1 to {}. For one", terminals.LARGEST_SIDE),
        ("| {} | A text message that cannot be understood", terminals.BAD_MESSAGE),
        ("| {} | Another client attached", terminals.TAKEN_OVER),
        ("at most {}) and `after`", files.MOST_LISTED),
        ("find that proxy: {}.", settings.EGRESS_PORT),
        ("At most {} connections at a time", forwarder.MOST_CONNECTIONS),
        ("sent as one file: {}", settings.LARGEST_FILE),
        ("`interaction_seconds` ({})", settings.INTERACTION_SECONDS),
        ("`idle_seconds` ({})", settings.IDLE_SECONDS),
        ("`model_seconds` ({})", settings.MODEL_SECONDS),
        ("within {} minutes ends its run", settings.INTERACTION_SECONDS // 60),
        ("1 to {:,} characters; `manual`", settings.MOST_INPUT),
        ("text of 1 to {} characters without", settings.LONGEST_NAME),
        ("more than {} bytes", sessions.LARGEST_BODY),
        ("(100, at most {}) and `after` (a session)", sessions.MOST_LISTED),
        ("{} may wait at a time", runs.MOST_WAITING),
        ("said within {} ms", active_run.BUFFER_SECONDS * 1000),
        ("up to {} characters. A run", active_run.BUFFER_CHARACTERS),
        ("more than {} times", usage.MOST_REQUESTS),
        ("than {} MiB. A run", usage.MOST_OUTPUT_BYTES // 1024**2),
        ("comes every {} seconds in which", sessions.COMMENT_SECONDS),
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
    assert http.error_from_os(OSError()).status == 500


def test_every_method_of_files_is_in_the_reference() -> None:
    assert [method for method in files.METHODS if f"`{method}`" not in PAGE] == []
