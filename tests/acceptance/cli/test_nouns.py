"""Every noun, on every way to its server: none runs, through its control socket, and remotely."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.cli.command import CommandRunner, Done

if TYPE_CHECKING:
    from tests.acceptance.server_process import ServerProcess

NOTHING = "00000000-0000-4000-8000-000000000000"


@dataclass
class Way:
    """One way from the command line to a server."""

    name: str
    runner: CommandRunner
    flags: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *args: str) -> Done:
        return self.runner.run(*args, *self.flags, env=self.env)

    def json(self, *args: str):  # noqa: ANN201 - whatever it prints
        return self.run(*args, "--json").json()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """A data folder that nobody serves, for all tests of this file."""
    return shutil.copytree(template, tmp_path_factory.mktemp("unserved") / "data")


@pytest.fixture(scope="module", params=["unserved", "socket", "remote"])
def way(request: pytest.FixtureRequest, runner: CommandRunner) -> Way:
    if request.param == "unserved":
        folder = request.getfixturevalue("folder")
        return Way("unserved", runner, ["--data-dir", str(folder)])
    server: ServerProcess = request.getfixturevalue("server")
    if request.param == "socket":
        return Way("socket", runner, ["--data-dir", str(server.data_dir)])
    env = {"TOLLHOUSE_BASE_URL": server.origin, "TOLLHOUSE_API_KEY": server.management_key}
    return Way("remote", runner, [], env)


@pytest.fixture
def account(way: Way) -> str:
    """An account of the test's own."""
    return way.json("accounts", "create", f"Account of {way.name}")["id"]


def test_accounts(way: Way) -> None:
    made = way.json("accounts", "create", "Acme Ltd")
    assert made["name"] == "Acme Ltd"
    assert made["workspace_id"]
    assert made["id"] in [each["id"] for each in way.json("accounts", "list")]
    changed = way.json("accounts", "set", made["id"], "--name", "Acme Inc")
    assert changed["name"] == "Acme Inc"
    assert way.json("accounts", "show", made["id"]) == changed


def test_how_an_account_pays(way: Way) -> None:
    plain = way.json("accounts", "create", "Plain")
    assert (plain["type"], plain["free_limits_exempt"]) == ("prepaid", False)
    made = way.json("accounts", "create", "Big", "--type", "invoice", "--free-limits-exempt")
    assert (made["type"], made["free_limits_exempt"]) == ("invoice", True)
    line = next(x for x in way.run("accounts", "list").out.splitlines() if made["id"] in x)
    assert line.split("\t")[:3] == [made["id"], "Big", "invoice"]
    path = ("accounts", "set", made["id"])
    changed = way.json(*path, "--type", "enterprise")
    assert (changed["type"], changed["free_limits_exempt"]) == ("enterprise", True)
    changed = way.json(*path, "--no-free-limits-exempt")
    assert (changed["type"], changed["free_limits_exempt"]) == ("enterprise", False)
    assert way.json("accounts", "show", made["id"]) == changed
    refused = way.run(*path, "--type", "gold")
    assert (refused.code, "'gold'" in refused.err) == (2, True)


def test_workspaces(way: Way, account: str) -> None:
    of = ("--account", account)
    made = way.json("workspaces", "create", "Data team", "--description", "Numbers", *of)
    assert (made["slug"], made["description"]) == ("data-team", "Numbers")
    listed = way.json("workspaces", "list", *of)
    assert [each["slug"] for each in listed] == ["default", "data-team"]
    changed = way.json("workspaces", "set", "data-team", "--slug", "lab", "--description", "", *of)
    assert (changed["slug"], changed["name"], changed["description"]) == ("lab", "Data team", None)
    assert way.json("workspaces", "show", made["id"], *of) == changed
    assert way.json("workspaces", "delete", "lab", *of) == {"deleted": True}
    refused = way.run("workspaces", "show", "lab", *of).refused(1)
    assert refused == "No such workspace: 'lab'; `tollhouse workspaces list` shows them."


def test_the_default_workspace_goes_only_when_that_is_said(way: Way) -> None:
    other = way.json("accounts", "create", "Short-lived")["id"]
    refused = way.run("workspaces", "delete", "default", "--account", other).refused(1)
    assert "default workspace" in refused
    done = way.json("workspaces", "delete", "default", "--confirm-default", "--account", other)
    assert done == {"deleted": True}


def test_users(way: Way, account: str) -> None:
    of = ("--account", account)
    made = way.json("users", "create", "Ada", "--email", "ada@acme.example", *of)
    assert (made["name"], made["email"]) == ("Ada", "ada@acme.example")
    assert [each["id"] for each in way.json("users", "list", *of)] == [made["id"]]
    assert way.json("users", "set", made["id"], "--name", "Ada L.", *of)["name"] == "Ada L."
    changed = way.json("users", "set", made["id"], "--email", "", *of)
    assert (changed["name"], changed["email"]) == ("Ada L.", None)
    assert way.json("users", "show", made["id"], *of) == changed


def test_keys(way: Way, account: str) -> None:
    of = ("--account", account)
    way.json("workspaces", "create", "Lab", *of)
    made = way.json("keys", "create", "ci", "--workspace", "lab", "--expires", "30d", *of)
    assert made["key"].startswith("sk-th-v1-")
    assert (made["kind"], made["operator"]) == ("api", False)
    start = made["hash"][:12]
    [listed] = [each for each in way.json("keys", "list", *of) if each["hash"] == made["hash"]]
    assert listed["workspace"] == "lab"
    assert made["key"] not in str(way.run("keys", "show", start, *of))
    changed = way.json("keys", "set", start, "--disabled", "--name", "ci-2", *of)
    assert (changed["disabled"], changed["name"]) == (True, "ci-2")
    assert way.json("keys", "show", made["hash"], *of) == changed
    assert made["hash"] not in [each["hash"] for each in way.json("keys", "list", *of)]
    in_lab = way.json("keys", "list", "--all", "--workspace", "lab", *of)
    assert [each["name"] for each in in_lab] == ["ci-2"]
    assert way.json("keys", "set", start, "--enabled", *of)["disabled"] is False
    assert way.json("keys", "delete", start, *of) == {"deleted": True}
    refused = way.run("keys", "show", start, *of).refused(1)
    assert refused.startswith(f"No such key: '{start}'")
    assert way.run("keys", "show", made["hash"]).refused(1).startswith("No such key.")


def test_limits_of_keys(way: Way, account: str) -> None:
    of = ("--account", account)
    limits = ("--limit", "25", "--limit-reset", "monthly", "--include-byok")
    made = way.json("keys", "create", "team", *limits, *of)
    assert limits_in(made) == (25, "monthly", 25, True)
    start = made["hash"][:12]
    found = way.run("keys", "show", start, *of).out.splitlines()
    assert {"limit\t25", "limit_reset\tmonthly", "limit_remaining\t25"} <= set(found)
    [row] = [x for x in way.run("keys", "list", *of).out.splitlines() if made["hash"] in x]
    assert row.split("\t")[6:10] == ["0", "25", "monthly", "25"]

    def changed(*options: str) -> tuple[object, ...]:
        return limits_in(way.json("keys", "set", start, *options, *of))

    assert changed("--limit", "0.000000001") == (1e-9, "monthly", 1e-9, True)
    assert changed("--limit-reset", "weekly") == (1e-9, "weekly", 1e-9, True)
    assert changed("--no-include-byok") == (1e-9, "weekly", 1e-9, False)
    assert changed("--limit", "0") == (0, "weekly", 0, False)
    assert changed("--no-limit") == (None, "weekly", None, False)
    assert changed("--limit", "3", "--no-limit-reset") == (3, None, 3, False)
    for wrong in (
        ["--limit", "-1"],
        ["--limit", "ten"],
        ["--limit", "1e3"],
        ["--limit", "0.0000000001"],
        ["--limit", "9" * 30],
        ["--limit", "1", "--no-limit"],
        ["--limit-reset", "daily", "--no-limit-reset"],
    ):
        way.run("keys", "set", start, *wrong, *of).refused(2)
    assert way.run("keys", "set", start, "--limit-reset", "yearly", *of).code == 2
    assert limits_in(way.json("keys", "show", start, *of)) == (3, None, 3, False)
    assert limits_in(way.json("keys", "create", "free", *of)) == (None, None, None, False)


def limits_in(key: dict[str, object]) -> tuple[object, ...]:
    names = ("limit", "limit_reset", "limit_remaining", "include_byok_in_limit")
    return tuple(key[name] for name in names)


def test_a_key_shows_its_own_limit(server: "ServerProcess", runner: CommandRunner) -> None:
    of = ("--data-dir", str(server.data_dir), "--json")
    account = runner.run("accounts", "create", "Limited", *of).json()["id"]
    limits = ("--limit", "12.5", "--limit-reset", "daily", "--account", account)
    made = runner.run("keys", "create", "own", *limits, *of).json()
    env = {"TOLLHOUSE_BASE_URL": server.origin, "TOLLHOUSE_API_KEY": made["key"]}
    shown = runner.run("key", "show", "--json", env=env).json()
    assert limits_in(shown) == (12.5, "daily", 12.5, False)
    assert [each["scope"] for each in shown["budgets"]] == ["key_limit"]
    assert shown["effective_budget"] == shown["budgets"][0]
    lines = runner.run("key", "show", env=env).out.splitlines()
    assert {"limit\t12.5", "limit_reset\tdaily", "limit_remaining\t12.5"} <= set(lines)


def test_management_keys(way: Way, account: str) -> None:
    options = ("--kind", "management", "--operator", "--account", account)
    made = way.json("keys", "create", "admin", *options)
    assert (made["kind"], made["operator"]) == ("management", True)
    listed = way.run("keys", "list", "--account", account)
    [row] = [line.split("\t") for line in listed.out.splitlines() if "\tadmin\t" in line]
    assert row[:5] == [made["hash"], "admin", "operator", "default", "active"]
    refused = way.run("keys", "create", "odd", "--operator", "--account", account).refused(1)
    assert "management key" in refused


def test_credits(way: Way) -> None:
    of = ("--account", way.json("accounts", "create", "Payer")["id"])
    bought = ("credits", "add", "2.5", "--idempotency-key", f"invoice-{way.name}", *of)
    first = way.json(*bought)
    assert (first["kind"], first["amount"]) == ("purchase", 2.5)
    assert way.json(*bought) == first
    gift = way.json("credits", "add", "0.000000001", "--grant", "--note", "thanks", *of)
    assert (gift["kind"], gift["note"]) == ("grant", "thanks")
    found = way.run("credits", "show", *of)
    assert found.out.splitlines() == [
        "total_credits\t2.500000001",
        "total_usage\t0",
        "balance\t2.500000001",
    ]
    again = way.run("credits", "add", "3", "--idempotency-key", f"invoice-{way.name}", *of)
    assert "idempotency key" in again.refused(1)


def test_the_ledger(way: Way, folder: Path) -> None:
    account = way.json("accounts", "create", "Ledger")["id"]
    of = ("--account", account)
    assert way.json("credits", "add", "+10", *of)["amount"] == 10
    assert way.json("credits", "grant", "1", "--note", "a gift", *of)["kind"] == "grant"
    refund = ("credits", "refund", "4", "--idempotency-key", f"back-{way.name}", *of)
    assert way.json(*refund) == way.json(*refund)
    refused = way.run("credits", "refund", "7", *of).refused(1)
    assert refused == "No more than 6 credits of purchases are left to be refunded."
    taken = way.json("credits", "adjust", "-0.000000001", "--note", "a fee", *of)
    assert (taken["kind"], taken["amount"]) == ("adjustment", -1e-9)
    assert way.json("credits", "adjust", "0.5", "--note", "sorry", *of)["amount"] == 0.5

    statement = way.json("ledger", "statement", *of)
    assert [line["balance"] for line in statement["lines"]] == [
        *("10", "11", "7", "6.999999999", "7.499999999")
    ]
    assert statement["closing_balance"] == "7.499999999"
    assert way.json("credits", "show", *of)["balance"] == 7.499999999
    shown = way.run("ledger", "statement", "--detail", "--limit", "2", *of).out.splitlines()
    assert [line.split("\t")[1:4] for line in shown] == [
        ["opening", "-", "0"],
        ["purchase", "10", "10"],
        ["grant", "1", "11"],
        ["closing", "7.499999999", "7.499999999"],
    ]
    later = way.json("ledger", "statement", "--from", "2999-01-01", *of)
    assert (later["opening_balance"], later["lines"]) == ("7.499999999", [])
    assert "must be a day" in way.run("ledger", "statement", "--to", "soon", *of).refused(1)

    assert way.json("ledger", "unknown", *of) == []
    assert way.json("activity", *of) == []
    assert "such as 2026-01-31" in way.run("activity", "--date", "1", *of).refused(1)
    clean = way.json("ledger", "verify")
    assert (clean["clean"], clean["differences"]) == (True, [])
    assert way.run("ledger", "verify").out.startswith("differences\t0\npostings\t")
    if way.name == "unserved":
        tampered(way, folder, account)


def tampered(way: Way, folder: Path, account: str) -> None:
    """Change a total behind the program's back, and back."""
    change = "UPDATE account_totals SET granted_nano = granted_nano + ? WHERE account_id = ?"
    with closing(sqlite3.connect(folder / "tollhouse.db")) as connection, connection:
        connection.execute(change, (5, account))
    expected = ["account_totals.granted_nano", account, "1000000005", "1000000000"]
    found = way.run("ledger", "verify")
    assert (found.code, found.err) == (1, "")
    assert found.out.splitlines() == ["\t".join(expected)]
    found = way.run("ledger", "verify", "--json")
    [difference] = json.loads(found.out)["differences"]
    assert (found.code, list(difference.values())) == (1, expected)
    with closing(sqlite3.connect(folder / "tollhouse.db")) as connection, connection:
        connection.execute(change, (-5, account))


@pytest.mark.parametrize(
    "amount",
    ["0", "-0", "NaN", "Infinity", "-Infinity", "1e400", "0.0000000001", "9" * 30, "ten", "--5"],
)
@pytest.mark.parametrize("verb", ["add", "grant", "refund", "adjust"])
def test_what_is_no_amount_is_refused(
    runner: CommandRunner, folder: Path, verb: str, amount: str
) -> None:
    note = ("--note", "n")
    runner.run("credits", verb, *note, "--data-dir", folder, "--", amount).refused(2)


def test_models(way: Way) -> None:
    models = way.json("models", "list")
    assert "simulated/echo" in [model["id"] for model in models]
    line = next(x for x in way.run("models", "list").out.splitlines() if x.startswith("sim"))
    assert len(line.split("\t")) == 5


def test_where_there_are_several_accounts_one_has_to_be_named(way: Way, account: str) -> None:
    del account
    done = way.run("users", "list")
    if way.name == "remote":  # a key has an account of its own
        assert done.code == 0
    else:
        assert "Add --account NAME" in done.refused(1)


def test_what_is_not_there_is_one_line(way: Way, account: str) -> None:
    of = ("--account", account)
    for args in [
        ("accounts", "show", NOTHING),
        ("users", "show", "a/b", *of),
        ("keys", "show", "f" * 64, *of),
        ("workspaces", "show", "nothing", *of),
        ("keys", "list", "--workspace", "nothing", *of),
        ("credits", "show", "--account", NOTHING),
    ]:
        assert way.run(*args).refused(1).startswith("No such ")


def test_what_makes_no_sense_is_refused_before_anything_is_changed(way: Way, account: str) -> None:
    of = ("--account", account)
    for args in [
        ("users", "set", NOTHING, *of),
        ("workspaces", "set", "default", *of),
        ("keys", "set", "f" * 64, *of),
        ("accounts", "show", ""),
        ("keys", "show", "", *of),
        ("keys", "create", "x", "--expires", "yesterday", *of),
        ("credits", "add", "ten", *of),
        ("workspaces", "create", "日本", *of),
        ("keys", "create", "\udcff", *of),
    ]:
        way.run(*args).refused(2)
    assert way.json("keys", "list", "--all", *of) == []
