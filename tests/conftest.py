"""Fixtures of all tests: a clock, identifiers, and a shared PostgreSQL server."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, settings

from tests.support.canary_watch import leaks_in, watch_answers
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.postgresql_databases import PostgresqlDatabases
from tests.support.postgresql_server import postgresql_server
from tests.support.reply_validation import rejected_replies
from tests.support.sandbox_support import sandbox_problem, sandboxes_required
from tollhouse.settings.environment import TEST_PREFIX
from tollhouse.storage.failures import parse_database_url

# No time limit for an example: a busy machine is no bug.
settings.register_profile("tollhouse", deadline=None)
settings.load_profile("tollhouse")
# `make mutate` runs a test many times in one process, and compares one run with the next.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


REPLIES = "TOLLHOUSE_TEST_REPLIES"
"""The variable with the folder of this run's recorded replies."""


def pytest_configure() -> None:
    """Set the folder in which `reply_tee` records replies, before other processes start."""
    if REPLIES not in os.environ:
        os.environ[REPLIES] = tempfile.mkdtemp(prefix="tollhouse-replies-")


def pytest_collection_finish() -> None:
    """Record the replies of gateways in this process, if its tests have loaded one.

    What is there once all tests are found lives to the end: no garbage collection looks at it.
    """
    gc.collect()
    gc.freeze()
    if "tollhouse.api.hot_routes" in sys.modules:
        from tests.support.reply_tee import install  # noqa: PLC0415 - it loads a gateway

        install()


def pytest_report_header() -> str | None:
    """Report that sandbox tests are skipped, where they are."""
    problem = None if sandboxes_required() else sandbox_problem()
    return None if problem is None else f"!!! NO SANDBOX TESTS, none can be made here: {problem}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip sandbox tests where no sandbox can be made, unless that is to be a failure."""
    marked = [item for item in items if item.get_closest_marker("sandbox")]
    if marked and not sandboxes_required() and sandbox_problem() is not None:
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in marked]


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_shell() -> Iterator[None]:
    """Hide the shell's TOLLHOUSE_* settings from commands and servers of tests.

    `TOLLHOUSE_TEST_*` stay: they are for the tests, and no settings.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in list(os.environ):
            if name.startswith("TOLLHOUSE_") and not name.startswith(TEST_PREFIX):
                patched.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients load one certificate: all of the system's take each client 25 ms."""
    file = tmp_path_factory.mktemp("authorities") / "nobody.pem"
    trustme.CA().cert_pem.write_to_path(file)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def watched_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record responses that show a provider's key, for the check at the end of the run."""
    with pytest.MonkeyPatch.context() as patched:
        watch_answers(patched, tmp_path_factory.mktemp("answers"))
        yield


LEAKS = pytest.StashKey[list[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn what a process of a run in several found in the files of its tests."""
    node.config.stash.setdefault(LEAKS, []).extend(
        getattr(node, "workeroutput", {}).get("leaks", ())
    )


@pytest.hookimpl(trylast=True)  # when everything has ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left a secret in a file or got a reply that an official library refuses."""
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
    leaks = session.config.stash.get(LEAKS, None)
    if leaks is None:
        leaks = leaks_in(factory.getbasetemp())
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["leaks"] = leaks  # type: ignore[attr-defined]
        return
    replies = Path(os.environ.pop(REPLIES))
    faults = rejected_replies(replies)
    shutil.rmtree(replies)
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    for problem, found in (
        ("values of secrets were written to:", leaks),
        ("published clients refuse replies:", faults),
    ):
        if found:
            reporter.write_line("\n  ".join([f"\n{problem}", *found]))
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids() -> SequentialIds:
    return SequentialIds()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlDatabases]:
    """Databases on a PostgreSQL server."""
    given = os.environ.get("TOLLHOUSE_TEST_DATABASE_URL")
    if given:
        databases = PostgresqlDatabases(parse_database_url(given))
        yield databases
        databases.close()
        return
    with postgresql_server() as url:
        yield PostgresqlDatabases(url)


@pytest.fixture
def soak_factor() -> int:
    """Return the factor by which `DOSE=full` does more."""
    return 10 if os.environ.get("SOAK_DOSE") == "full" else 1
