"""Secrets, stored, copied and read with the published `openrouter` library, 1.3.84 and 1.3.30."""

from collections.abc import Generator, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import count, pairwise
from typing import Any

import httpx2
import pytest

from tests.contract.conftest import POSTGRESQL, SIMULATED
from tests.support.client_process import CLIENTS, run_client
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.server_process import ServerProcess, start_server
from tests.support.vault_interns import VaultIntern, add_intern, delete_intern

pytestmark = pytest.mark.contract

LATEST, EARLIER = "openrouter", "openrouter-1-3-30"
ASKED = [
    pytest.param((LATEST, SIMULATED), id=f"{LATEST}-{SIMULATED}"),
    pytest.param((EARLIER, SIMULATED), id=f"{EARLIER}-{SIMULATED}"),
    pytest.param(
        (LATEST, POSTGRESQL),
        id=f"{LATEST}-{POSTGRESQL}",
        marks=[pytest.mark.postgresql, pytest.mark.soak],
    ),
]
"""Which library asks on which database; both are like each other, so the earlier asks on one."""
CONFIG = 'server:\n  regional_hostnames: ["eu.*"]\n'
LEGACY = "legacy"
LEFT_OUT = "left out"
LONG_LISTS = ["workspace", "intern", "effective"]
BOTH_VAULTS = pytest.mark.parametrize("vault", ["workspace", "intern"])


class Workspaces:
    """What a server's operator makes for the programs that ask its vaults."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._numbers = count(1)

    def environment(self, library: str) -> dict[str, str]:
        """Make a workspace with interns, for a script that nobody else disturbs.

        Each call makes another one: tests come in any order, so that a script may run again.
        """
        name = f"{library}-{next(self._numbers)}"
        workspace = self._post("/workspaces", name=name, slug=name)["data"]["id"]
        key = self._post("/keys", name=name, workspace_id=workspace)["key"]
        unbound = [{"name": LEGACY, "value": "value-any"}]
        self._post("/vault-imports", workspace_id=workspace, secrets=unbound)
        add = partial(self._add, key=key)
        intern, lender, gone = add(), add(), add()
        ids = {
            "COPIER": add().id,
            "PAGER": add().id,
            "LENDER": lender.id,
            "BORROWER": add(attached=lender.vault_id).id,
            "GONE": gone.id,
            "ORPHAN": add(attached=gone.vault_id).id,
            "STRANGER": self._add().id,
        }
        delete_intern(self._server, gone.id, key)
        return {
            "BASE_URL": self._server.base_url,
            "MANAGEMENT_KEY": self._server.management_key,
            "API_KEY": key,
            "WORKSPACE": workspace,
            "LEGACY": LEGACY,
            "INTERN": intern.id,
            "INTERN_KEY": intern.key,
            **ids,
        }

    def _add(self, **fields: Any) -> VaultIntern:
        return add_intern(self._server, **fields)

    def _post(self, path: str, **content: Any) -> dict[str, Any]:
        reply = httpx2.post(
            f"{self._server.base_url}{path}",
            headers={"Authorization": f"Bearer {self._server.management_key}"},
            json=content,
            timeout=60,
        )
        assert reply.is_success, reply.text
        return reply.json()


@pytest.fixture(scope="module")
def on_simulated(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workspaces]:
    """Run a gateway whose switches nobody else minds, on SQLite."""
    with start_server(tmp_path_factory.mktemp("vault"), config=CONFIG) as server:
        yield Workspaces(server)


@pytest.fixture(scope="module")
def on_postgresql(
    postgresql: PostgresqlDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Workspaces]:
    """Run another one on PostgreSQL."""
    env = {"TOLLHOUSE_DATABASE_URL": plain_url(postgresql.take())}
    with start_server(tmp_path_factory.mktemp("vault"), config=CONFIG, env=env) as server:
        yield Workspaces(server)


@pytest.fixture(scope="module", params=ASKED)
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    library, database = request.param
    gateway: Workspaces = request.getfixturevalue(f"on_{database}")
    script = CLIENTS / "openrouter" / "check_vault.py"
    return run_client(library, script, env=gateway.environment(library))


def without(secret: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in secret.items() if name not in names}


def refusal(told: dict[str, Any]) -> tuple[str, int]:
    assert told["code"] == told["status"]
    return told["class"], told["status"]


def reasons(told: dict[str, Any]) -> tuple[str, bool]:
    assert set(told["metadata"]) == {"reason", "retryable"}
    return told["metadata"]["reason"], told["metadata"]["retryable"]


def assert_all(tried: dict[str, Any], names: Iterable[str], *expected: Any) -> None:
    """Check that routes were refused, with a class, a status, a reason, and whether to retry."""
    told = {name: (*refusal(tried[name]), *reasons(tried[name])) for name in tried}
    assert told == dict.fromkeys(names, expected)


ROUTES = [
    *("list", "store", "delete", "intern list", "intern store", "intern delete"),
    *("copy", "effective"),
]
OF_INTERN = ROUTES[3:]
NOT_FOUND = ("NotFoundResponseError", 404, "not_found", False)


# Of a workspace, and of an intern


@BOTH_VAULTS
def test_hosts_of_a_stored_secret_are_lower_case_and_each_there_once(
    seen: dict[str, Any], vault: str
) -> None:
    stored = seen[vault]["stored"]
    assert (stored["name"], stored["hosts"]) == ("token", ["api.example.com", "b.example.com"])


@BOTH_VAULTS
def test_the_time_of_a_secret_has_a_time_zone(seen: dict[str, Any], vault: str) -> None:
    created = datetime.fromisoformat(seen[vault]["stored"]["created_at"])
    assert created.utcoffset() == timedelta(0)


@BOTH_VAULTS
def test_equal_values_of_one_vault_have_equal_fingerprints(
    seen: dict[str, Any], vault: str
) -> None:
    of = seen[vault]
    assert of["twin"]["fingerprint"] == of["stored"]["fingerprint"]
    assert of["other"]["fingerprint"] != of["stored"]["fingerprint"]
    assert of["other"]["fingerprint"].startswith("sha256:")


@BOTH_VAULTS
def test_the_longest_value_is_stored(seen: dict[str, Any], vault: str) -> None:
    assert seen[vault]["longest"]["name"] == "longest"


@BOTH_VAULTS
def test_what_is_listed_is_what_was_stored(seen: dict[str, Any], vault: str) -> None:
    of = seen[vault]
    stored = {of[name]["name"]: of[name] for name in ("longest", "other", "stored", "twin")}
    listed = without(of["listed"], LEGACY)
    assert (listed, list(listed)) == (stored, sorted(stored))


@BOTH_VAULTS
def test_a_replaced_secret_keeps_its_time(seen: dict[str, Any], vault: str) -> None:
    of = seen[vault]
    assert of["replaced"]["created_at"] == of["stored"]["created_at"]
    assert of["replaced"]["fingerprint"] != of["stored"]["fingerprint"]
    assert of["replaced"]["hosts"] == ["c.example.com"]
    assert of["left"]["token"] == of["replaced"]


@BOTH_VAULTS
def test_a_value_that_is_stored_again_keeps_its_fingerprint(
    seen: dict[str, Any], vault: str
) -> None:
    assert seen[vault]["rewritten"] == seen[vault]["twin"]


@BOTH_VAULTS
def test_a_deleted_secret_is_gone(seen: dict[str, Any], vault: str) -> None:
    of = seen[vault]
    assert of["deleted"] is None
    assert "other" not in of["left"]
    assert (*refusal(of["again"]), *reasons(of["again"])) == NOT_FOUND


def test_no_reply_holds_a_value(seen: dict[str, Any]) -> None:
    assert seen["replies"] > len(ROUTES)
    assert seen["replies with values"] == []


# Copies


def test_copies_come_in_the_order_that_was_asked_for(seen: dict[str, Any]) -> None:
    assert [each["name"] for each in seen["copies"]["copied"]] == ["beta", "alpha"]


def test_a_copy_has_its_source_s_hosts(seen: dict[str, Any]) -> None:
    of = seen["copies"]
    for copied in of["copied"]:
        assert copied["hosts"] == of["sources"][copied["name"]]["hosts"]


def test_a_copy_has_another_fingerprint_than_its_source(seen: dict[str, Any]) -> None:
    of = seen["copies"]
    for copied in of["copied"]:
        assert copied["fingerprint"].startswith("sha256:")
        assert copied["fingerprint"] != of["sources"][copied["name"]]["fingerprint"]


def test_a_copy_replaces_the_intern_s_own_secret(seen: dict[str, Any]) -> None:
    of = seen["copies"]
    assert of["listed"] == {each["name"]: each for each in of["copied"]}
    assert of["listed"]["alpha"]["fingerprint"] != of["own"]["fingerprint"]
    assert of["listed"]["alpha"]["created_at"] == of["own"]["created_at"]


def test_copying_a_name_that_is_not_there_copies_nothing(seen: dict[str, Any]) -> None:
    of = seen["copies"]
    assert (*refusal(of["absent"]), *reasons(of["absent"])) == NOT_FOUND
    assert of["after refusals"] == of["listed"]


def test_copying_a_secret_that_is_bound_to_no_host_is_a_conflict(seen: dict[str, Any]) -> None:
    told = seen["copies"]["legacy"]
    assert refusal(told) == ("ConflictResponseError", 409)
    assert reasons(told) == ("conflict", False)


def test_deleting_a_source_or_its_copy_leaves_the_other(seen: dict[str, Any]) -> None:
    of = seen["copies"]
    assert of["source deleted"] == ["beta"]
    assert "alpha" in of["copy deleted"]
    assert "beta" not in of["copy deleted"]


# What an intern receives


def test_the_strongest_vault_wins_a_name(seen: dict[str, Any]) -> None:
    of = seen["effective"]
    won = {"everywhere": "intern", "in_two": "attached", "in_one": "workspace"}
    received = {name: of["borrower"][name] for name in won}
    assert received == {
        name: {**of["stored"][f"{name} {scope}"], "scope": scope} for name, scope in won.items()
    }


def test_what_is_received_is_listed_once_by_name(seen: dict[str, Any]) -> None:
    names = list(seen["effective"]["borrower"])
    assert names == sorted(names)
    assert {"everywhere", "in_two", "in_one", LEGACY} <= set(names)


def test_an_attached_vault_is_its_owner_s_own(seen: dict[str, Any]) -> None:
    received = seen["effective"]["lender"]
    scopes = [received[name]["scope"] for name in ("everywhere", "in_two", "in_one")]
    assert scopes == ["intern", "intern", "workspace"]


def test_a_deleted_secret_uncovers_the_next_vault_s(seen: dict[str, Any]) -> None:
    uncovered = seen["effective"]["uncovered"]["everywhere"]
    assert (uncovered["scope"], uncovered["hosts"]) == ("attached", ["attached.example.com"])


def test_an_attached_vault_that_is_gone_is_not_found(seen: dict[str, Any]) -> None:
    of = seen["effective"]
    assert (*refusal(of["orphan"]), *reasons(of["orphan"])) == NOT_FOUND
    assert of["orphan's own"] == {}


def test_an_intern_that_was_deleted_is_not_found(seen: dict[str, Any]) -> None:
    assert_all(seen["effective"]["gone"], OF_INTERN, *NOT_FOUND)


# Bound to no host


def test_a_secret_that_is_bound_to_no_host_has_neither_hosts_nor_fingerprint(
    seen: dict[str, Any],
) -> None:
    listed, received = seen["legacy"]["listed"], seen["legacy"]["effective"]
    assert (listed["hosts"], listed["fingerprint"]) == (None, None)
    assert received == {**listed, "scope": "workspace"}


def test_a_secret_that_is_bound_to_no_host_is_replaced_and_not_deleted(
    seen: dict[str, Any],
) -> None:
    of = seen["legacy"]
    assert (*refusal(of["deleted"]), *reasons(of["deleted"])) == NOT_FOUND
    assert of["replaced"]["hosts"] == ["api.example.com"]
    assert of["listed again"] == of["replaced"]


# Pages


@pytest.mark.parametrize("ask", LONG_LISTS)
@pytest.mark.parametrize("size", ["default", "by 35"])
def test_a_pager_comes_by_every_secret_once_and_by_name(
    seen: dict[str, Any], ask: str, size: str
) -> None:
    found = [name for names, _ in seen["pages"][size][ask] for name in names]
    assert all(one < next_ for one, next_ in pairwise(found))
    assert set(seen["pages"]["names"]) <= set(found)


@pytest.mark.parametrize("ask", LONG_LISTS)
@pytest.mark.parametrize(("size", "length"), [("default", 100), ("by 35", 35)])
def test_every_page_but_the_last_is_full_and_says_that_there_are_more(
    seen: dict[str, Any], ask: str, size: str, length: int
) -> None:
    *first, last = seen["pages"][size][ask]
    assert {(len(names), has_more) for names, has_more in first} == {(length, True)}
    assert 1 <= len(last[0]) <= length
    assert last[1] is False


def test_a_last_page_that_is_full_has_none_behind_it(seen: dict[str, Any]) -> None:
    pages = seen["pages"]["by 35"]["intern"]
    assert [(len(names), has_more) for names, has_more in pages] == [
        (35, True),
        (35, True),
        (35, False),
    ]


def test_a_page_beyond_the_end_is_empty(seen: dict[str, Any]) -> None:
    assert seen["pages"]["beyond"] == [[], False]


# An intern's own key


def test_an_intern_s_own_key_reads_and_changes_its_own_secrets(seen: dict[str, Any]) -> None:
    own = seen["own key"]
    assert own["stored"]["name"] == "taken"
    assert own["listed"] == ["given", "taken"]
    assert own["effective"] == "intern"
    assert own["deleted"] is None


@pytest.mark.parametrize(
    ("where", "names"), [("workspace", ROUTES[:3]), ("copy", ["copy"]), ("another", OF_INTERN)]
)
def test_an_intern_s_own_key_finds_nothing_elsewhere(
    seen: dict[str, Any], where: str, names: list[str]
) -> None:
    assert_all(seen["own key"]["refused"][where], names, *NOT_FOUND)


# Refusals


@pytest.mark.parametrize(
    ("case", "says"),
    [
        *((case, "name: ") for case in ("name", "name of an intern's")),
        *((case, "value: ") for case in ("no value", "long value")),
        *((case, "hosts: ") for case in ("no hosts", "many hosts")),
        *((case, "hosts.0: ") for case in ("scheme", "wildcard")),
        *((case, "names: ") for case in ("no names", "names twice")),
        *((case, "limit: ") for case in ("no limit", "large limit")),
        *(("intern id", "internId: "), ("large offset", "offset: ")),
    ],
)
def test_what_is_wrong_with_a_request_is_a_bad_request(
    seen: dict[str, Any], case: str, says: str
) -> None:
    told = seen["refusals"]["invalid"][case]
    assert refusal(told) == ("BadRequestResponseError", 400)
    assert reasons(told) == ("invalid_body", False)
    assert told["message"].startswith(says)


@pytest.mark.parametrize("route", ["store", "intern store", "copy"])
def test_a_body_over_the_limit_is_too_large(seen: dict[str, Any], route: str) -> None:
    told = seen["refusals"]["too large"][route]
    assert refusal(told) == ("PayloadTooLargeResponseError", 413)
    assert reasons(told) == ("payload_too_large", False)
    assert "1048576" in told["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("key", ["management key", "unknown key"])
def test_a_key_that_is_none_for_vaults_is_unauthorized(
    seen: dict[str, Any], key: str, route: str
) -> None:
    told = seen["refusals"][key][route]
    assert refusal(told) == ("UnauthorizedResponseError", 401)
    assert told["metadata"] == LEFT_OUT


def test_an_intern_of_another_workspace_is_not_found(seen: dict[str, Any]) -> None:
    assert_all(seen["refusals"]["stranger"], OF_INTERN, *NOT_FOUND)


@pytest.mark.parametrize("route", ROUTES)
def test_a_regional_host_name_is_forbidden(seen: dict[str, Any], route: str) -> None:
    told = seen["refusals"]["region"][route]
    assert refusal(told) == ("ForbiddenResponseError", 403)
    assert told["metadata"] == LEFT_OUT


# Switches


def test_writes_that_are_switched_off_are_unavailable_and_not_worth_a_retry(
    seen: dict[str, Any],
) -> None:
    writes = ["store", "delete", "intern store", "intern delete", "copy"]
    expected = ("ServiceUnavailableResponseError", 503, "writes_disabled", False)
    assert_all(seen["switched off"]["writes"], writes, *expected)


def test_what_is_stored_is_read_while_writes_are_switched_off(seen: dict[str, Any]) -> None:
    reads = {"class": None}
    assert seen["switched off"]["reads"] == dict.fromkeys(
        ["list", "intern list", "effective"], reads
    )


def test_writes_that_are_switched_on_again_are_carried_out(seen: dict[str, Any]) -> None:
    assert {told["class"] for told in seen["switched off"]["writes again"].values()} == {None}


@pytest.mark.parametrize("route", ROUTES)
def test_outside_the_programme_every_route_is_not_found(seen: dict[str, Any], route: str) -> None:
    assert refusal(seen["switched off"]["programme"][route]) == ("NotFoundResponseError", 404)


# Asynchronous methods


@pytest.mark.parametrize("vault", ["", "intern "])
def test_an_asynchronous_client_stores_lists_and_deletes(seen: dict[str, Any], vault: str) -> None:
    of = seen["async"]
    assert of[f"{vault}store"]["hosts"] == ["api.example.com"]
    assert of[f"{vault}list"]["later"] == of[f"{vault}store"]
    assert of[f"{vault}delete"] is None


def test_an_asynchronous_client_copies(seen: dict[str, Any]) -> None:
    of = seen["async"]
    (copied,) = of["copy"]
    assert copied["name"] == "later"
    assert copied["fingerprint"] != of["store"]["fingerprint"]


def test_an_asynchronous_client_reads_what_is_received(seen: dict[str, Any]) -> None:
    of = seen["async"]
    assert of["effective"]["later"] == {**of["intern store"], "scope": "intern"}


def test_an_asynchronous_client_gets_the_same_errors(seen: dict[str, Any]) -> None:
    told = seen["async"]["refused"]
    assert (*refusal(told), *reasons(told)) == NOT_FOUND
