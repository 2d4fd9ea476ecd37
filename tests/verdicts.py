"""Verdicts on what all tests of a run have left behind: the last stage of `make test`.

The name does not start with `test_`: only the gate collects this file, once all tests have ended.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.canary_watch import leaks_in
from tests.support.gate import FILES, RUN
from tests.support.reply_validation import REPLIES, rejected_replies

pytestmark = pytest.mark.timeout(600)


def test_no_file_that_the_run_wrote_holds_a_secret() -> None:
    assert leaks_in(Path(os.environ[RUN]) / FILES) == []


def test_published_clients_accept_every_reply_of_the_run() -> None:
    assert rejected_replies(Path(os.environ[REPLIES])) == []
