"""Fixtures of tests with a server of their own; each module defines its `server`."""

from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.acceptance.egress_hosts import EgressHosts, serve_hosts
from tests.acceptance.wire import Wire, config
from tests.support import server_process
from tests.support.accounts import Accounts
from tests.support.intern_client import InternClient
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.scripted_providers import ScriptedProviders
from tests.support.server_process import ServerProcess

ON_EACH_DATABASE = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(scope="session", autouse=True)
def databases_of_servers(request: pytest.FixtureRequest) -> Generator[None]:
    """Give each data folder a PostgreSQL database, with `--database=postgresql`."""
    if request.config.getoption("database") == "sqlite":
        yield
        return
    databases: PostgresqlDatabases = request.getfixturevalue("postgresql")

    def new_database() -> str:
        with ThreadPoolExecutor() as pool:  # where a test's loop does not run
            return plain_url(pool.submit(databases.take).result())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server_process, "new_database", new_database)
        yield


@pytest.fixture(scope="module", params=ON_EACH_DATABASE)
def database_env(request: pytest.FixtureRequest) -> Generator[Mapping[str, str]]:
    """Have a module's server run on each of the databases: what its environment has to say."""
    if request.param == "sqlite":
        yield {}
        return
    databases: PostgresqlDatabases = request.getfixturevalue("postgresql")
    url = databases.take()
    yield {server_process.DATABASE_URL: plain_url(url)}
    databases.give_back(url)


@pytest.fixture(scope="module")
def accounts(server: ServerProcess) -> Generator[Accounts]:
    """Accounts and keys on the module's server."""
    with closing(Accounts(server)) as made:
        yield made


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Generator[EgressHosts]:
    """Hosts that the module's server can trust, whichever user runs it."""
    folder = tmp_path_factory.mktemp("hosts")
    folder.chmod(0o755)
    with serve_hosts(folder) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Generator[Wire]:
    """A gateway before providers whose bytes a test gives; in the end its books are right."""
    with ScriptedProviders() as providers:
        settings = config(providers)
        with server_process.start_server(
            tmp_path_factory.mktemp("wire"), config=settings
        ) as server:
            wire = Wire(server, providers)
            yield wire
            assert wire.differences() == []


@pytest.fixture(scope="module")
def interns(server: ServerProcess) -> Generator[InternClient]:
    """The interns of the module's server, deleted after its tests: a boot and an agent are dear.

    `run` finds one that another test has left, with its files and conversations.
    """
    interns = InternClient(server)
    yield interns
    interns.delete_all()
