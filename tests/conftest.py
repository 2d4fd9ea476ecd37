"""Fixtures of all tests: a clock, identifiers, and a shared PostgreSQL server."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.canary_watch import leaks_in, watch_answers
from tests.support.certificates import share_certificates
from tests.support.clock import FakeClock
from tests.support.exact import is_exact
from tests.support.ids import SequentialIds
from tests.support.postgresql_databases import PostgresqlDatabases
from tests.support.reply_validation import REPLIES, rejected_replies
from tests.support.sandbox_support import (
    pytest_runtest_makereport,
    sandbox_problem,
    sandboxes_required,
)
from tests.support.scheduling import FileScheduling, rank

share_certificates()
__all__ = ["pytest_runtest_makereport"]  # a hook, which pytest finds by its name

# No time limit for an example: a busy machine is no bug. The gate draws the same few examples every
# time, so that it judges a change and not the draw; `make soak` looks for new ones, and for more.
IN_SOAK = "SOAK_DOSE" in os.environ
settings.register_profile(
    "tollhouse", deadline=None, derandomize=not IN_SOAK, max_examples=200 if IN_SOAK else 40
)
settings.load_profile("tollhouse")
# `make mutate` runs a test many times in one process, and compares one run with the next.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


OWN_REPLIES = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the servers of acceptance tests have another database."""
    parser.addoption(
        "--database",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="what the servers of tests/acceptance and tests/contract keep their rows in",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the folder in which `reply_tee` records replies, before other processes start.

    Where one is set, this is a part of a run, whose replies and files are judged after it.
    """
    if REPLIES not in os.environ:
        os.environ[REPLIES] = tempfile.mkdtemp(prefix="tollhouse-replies-")
        config.stash[OWN_REPLIES] = Path(os.environ[REPLIES])


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
    """Report that sandbox tests are left out, where they are."""
    problem = None if sandboxes_required() else sandbox_problem()
    return None if problem is None else f"!!! NO SANDBOX TESTS, none can be made here: {problem}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is exact, and put it in order.

    What this machine cannot run is left out, unless that is a failure.
    """
    for item in items:
        if is_exact(item.nodeid):
            item.add_marker("exact")
    if config.getoption("database") == "postgresql":
        _leave_out(config, items, "sqlite")
    if not sandboxes_required() and sandbox_problem() is not None:
        _leave_out(config, items, "sandbox")
    if os.geteuid() != 0:
        _leave_out(config, items, "root")
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Deal out files with `--dist=loadfile`."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _leave_out(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    marked = [item for item in items if item.get_closest_marker(marker)]
    if marked:
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in marked]


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_shell() -> Iterator[None]:
    """Hide the shell's TOLLHOUSE_* settings from commands and servers of tests.

    `TOLLHOUSE_TEST_*` stay: they are for the tests, and no settings.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in list(os.environ):
            if name.startswith("TOLLHOUSE_") and not name.startswith("TOLLHOUSE_TEST_"):
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


@pytest.hookimpl(trylast=True)  # when everything has ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left a secret in a file or got a reply that an official library refuses.

    `make test` has this in its last stage, `tests/verdicts.py`.
    """
    replies = session.config.stash.get(OWN_REPLIES, None)
    if replies is None:
        return
    del os.environ[REPLIES]
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
    leaks, faults = leaks_in(factory.getbasetemp()), rejected_replies(replies)
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
    # Not above: what SQL takes to load is half of the time of a single test without any.
    from tests.support.postgresql_databases import PostgresqlDatabases  # noqa: PLC0415
    from tests.support.postgresql_server import postgresql_server  # noqa: PLC0415
    from tollhouse.storage.failures import parse_database_url  # noqa: PLC0415

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
