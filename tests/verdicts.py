"""Verdicts on what all tests of a run have left behind: the last stage of `make test`.

The name does not start with `test_`: only the gate collects this file, once all tests have ended.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.support.canary_watch import leaks_in
from tests.support.gate import FILES, RUN
from tests.support.reply_validation import REPLIES, rejected_replies

pytestmark = pytest.mark.timeout(600)


def test_no_file_that_the_run_wrote_holds_a_secret() -> None:
    stages = (Path(os.environ[RUN]) / FILES).iterdir()
    folders = [each for stage in stages for each in stage.iterdir() if not each.is_symlink()]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        found = zip(folders, processes.map(leaks_in, folders), strict=True)
        assert [f"{folder.name}/{leak}" for folder, leaks in found for leak in leaks] == []


def test_published_clients_accept_every_reply_of_the_run() -> None:
    assert rejected_replies(Path(os.environ[REPLIES])) == []
