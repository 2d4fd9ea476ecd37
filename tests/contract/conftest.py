"""Running gateways for the published clients: simulated, and before separate providers."""

from collections.abc import Generator, Sequence

import httpx2
import pytest

from tests.contract.format_matrix import FormatMatrix, config
from tests.support.client_process import run_client
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import start_upstream


class Gateway:
    """A running gateway, and the models that the clients ask it for."""

    def __init__(self, server: ServerProcess, provider: str, models: Sequence[str]) -> None:
        self.server = server
        self.provider = provider
        self.model, self.embedding_model, self.slow_model = models
        """Models: an echo, one for embeddings, and a slow echo."""

    def run(self, client: str, script: str = "check_chat.py", **env: str) -> dict:
        """Return what a client's script saw of this gateway, with a key that nobody else uses."""
        made = self._make_key(client)
        return run_client(
            client,
            script,
            env={
                "BASE_URL": self.server.base_url,
                "API_KEY": made["key"],
                "KEY_HASH": made["data"]["hash"],
                "MANAGEMENT_KEY": self.server.management_key,
                "MODEL": self.model,
                "EMBEDDING_MODEL": self.embedding_model,
                "SLOW_MODEL": self.slow_model,
                **env,
            },
        )

    def _make_key(self, name: str) -> dict:
        reply = httpx2.post(
            f"{self.server.base_url}/keys",
            headers={"Authorization": f"Bearer {self.server.management_key}"},
            json={"name": name},
            timeout=60,
        )
        assert reply.status_code == httpx2.codes.CREATED, reply.text
        return reply.json()


SIMULATED, SEPARATE, POSTGRESQL = "simulated", "separate-provider", "postgresql"


@pytest.fixture(
    scope="session",
    params=[
        SIMULATED,
        SEPARATE,
        pytest.param(POSTGRESQL, marks=[pytest.mark.postgresql, pytest.mark.soak]),
    ],
)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Gateway]:
    """Run a gateway: alone, before a separate provider, and the latter on PostgreSQL."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == SIMULATED:
        names = ("echo", "embedding", "slow")
        with start_server(folder) as server:
            yield Gateway(server, "simulated", [f"simulated/{name}" for name in names])
        return
    with start_upstream() as upstream:
        models = {
            "acme/large": "large-2026",
            "acme/embedding": "embedding-2026",
            "acme/slow": "slow-head:0.6",
        }
        env: dict[str, str] = {}
        if request.param == POSTGRESQL:
            databases: PostgresqlDatabases = request.getfixturevalue("postgresql")
            env["TOLLHOUSE_DATABASE_URL"] = plain_url(databases.take())
        with start_server(folder, config=upstream.config(models), env=env) as server:
            yield Gateway(server, "cutter", list(models))


@pytest.fixture(scope="session")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Generator[FormatMatrix]:
    """Run a gateway before a provider of each dialect."""
    with (
        start_upstream() as upstream,
        start_server(tmp_path_factory.mktemp("formats"), config=config(upstream.origin)) as server,
    ):
        yield FormatMatrix(server, upstream)
