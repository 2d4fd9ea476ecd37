"""Every resource command, through the control socket of a server and remotely.

Without a server a command opens the data itself, and makes the gateway's routes in its own process
each time. What it asks of them is the same; a few tests show it.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.support.server_process import ServerProcess

NOTHING = "00000000-0000-4000-8000-000000000000"


@dataclass
class CliTarget:
    """How commands reach the data: without a server, through the control socket, or remotely."""

    name: str
    runner: CommandRunner
    flags: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *args: str) -> CommandResult:
        return self.runner.run(*args, *self.flags, env=self.env)

    def json(self, *args: str):  # noqa: ANN201 - whatever it prints
        return self.run(*args, "--json").json()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """A data folder without a running server, shared by the tests of this file."""
    return shutil.copytree(template, tmp_path_factory.mktemp("unserved") / "data")


everywhere = pytest.mark.parametrize("target", ["unserved", "socket", "remote"], indirect=True)
"""Of a test that runs without a server, too."""


@pytest.fixture(scope="module", params=["socket", "remote"])
def target(request: pytest.FixtureRequest, runner: CommandRunner) -> CliTarget:
    if request.param == "unserved":
        folder = request.getfixturevalue("folder")
        return CliTarget("unserved", runner, ["--data-dir", str(folder)])
    server: ServerProcess = request.getfixturevalue("server")
    if request.param == "socket":
        return CliTarget("socket", runner, ["--data-dir", str(server.data_dir)])
    env = {"TOLLHOUSE_BASE_URL": server.origin, "TOLLHOUSE_API_KEY": server.management_key}
    return CliTarget("remote", runner, [], env)


@pytest.fixture
def account(target: CliTarget) -> str:
    """An account of the test's own."""
    return target.json("accounts", "create", f"Account of {target.name}")["id"]


@everywhere
def test_accounts(target: CliTarget) -> None:
    made = target.json("accounts", "create", "Acme Ltd")
    assert made["name"] == "Acme Ltd"
    assert made["workspace_id"]
    assert made["id"] in [each["id"] for each in target.json("accounts", "list")]
    changed = target.json("accounts", "set", made["id"], "--name", "Acme Inc")
    assert changed["name"] == "Acme Inc"
    assert target.json("accounts", "show", made["id"]) == changed


def test_an_accounts_type_is_set_and_shown(target: CliTarget) -> None:
    plain = target.json("accounts", "create", "Plain")
    assert (plain["type"], plain["free_limits_exempt"]) == ("prepaid", False)
    made = target.json("accounts", "create", "Big", "--type", "invoice", "--free-limits-exempt")
    assert (made["type"], made["free_limits_exempt"]) == ("invoice", True)
    line = next(x for x in target.run("accounts", "list").out.splitlines() if made["id"] in x)
    assert line.split("\t")[:3] == [made["id"], "Big", "invoice"]
    path = ("accounts", "set", made["id"])
    changed = target.json(*path, "--type", "enterprise")
    assert (changed["type"], changed["free_limits_exempt"]) == ("enterprise", True)
    changed = target.json(*path, "--no-free-limits-exempt")
    assert (changed["type"], changed["free_limits_exempt"]) == ("enterprise", False)
    assert target.json("accounts", "show", made["id"]) == changed
    refused = target.run(*path, "--type", "gold")
    assert (refused.code, "'gold'" in refused.err) == (2, True)


def test_workspaces(target: CliTarget, account: str) -> None:
    of = ("--account", account)
    made = target.json("workspaces", "create", "Data team", "--description", "Numbers", *of)
    assert (made["slug"], made["description"]) == ("data-team", "Numbers")
    listed = target.json("workspaces", "list", *of)
    assert [each["slug"] for each in listed] == ["default", "data-team"]
    changed = target.json(
        "workspaces", "set", "data-team", "--slug", "lab", "--description", "", *of
    )
    assert (changed["slug"], changed["name"], changed["description"]) == ("lab", "Data team", None)
    assert target.json("workspaces", "show", made["id"], *of) == changed
    assert target.json("workspaces", "delete", "lab", *of) == {"deleted": True}
    refused = target.run("workspaces", "show", "lab", *of).error_line(1)
    assert refused == "No such workspace: 'lab'; `tollhouse workspaces list` shows them."


def test_the_default_workspace_is_deleted_only_when_confirmed(target: CliTarget) -> None:
    other = target.json("accounts", "create", "Short-lived")["id"]
    refused = target.run("workspaces", "delete", "default", "--account", other).error_line(1)
    assert "default workspace" in refused
    done = target.json("workspaces", "delete", "default", "--confirm-default", "--account", other)
    assert done == {"deleted": True}


def test_users(target: CliTarget, account: str) -> None:
    of = ("--account", account)
    made = target.json("users", "create", "Ada", "--email", "ada@acme.example", *of)
    assert (made["name"], made["email"]) == ("Ada", "ada@acme.example")
    assert [each["id"] for each in target.json("users", "list", *of)] == [made["id"]]
    assert target.json("users", "set", made["id"], "--name", "Ada L.", *of)["name"] == "Ada L."
    changed = target.json("users", "set", made["id"], "--email", "", *of)
    assert (changed["name"], changed["email"]) == ("Ada L.", None)
    assert target.json("users", "show", made["id"], *of) == changed


def test_budgets(target: CliTarget, account: str) -> None:
    run, of = target.json, ["--account", account]
    run("workspaces", "create", "Budgets", "--slug", "lab-b", *of)
    user = run("users", "create", "Bo", *of)["id"]
    for owner, more in (
        (["workspaces", "budgets"], ["lab-b"]),
        (["workspaces", "budgets"], ["lab-b", "--end-user", "a/b@acme.example"]),
        (["users", "budgets"], [user]),
    ):
        place, options = more[0], [*more[1:], *of]
        made = run(*owner, "set", place, "daily", "2.5", *options)
        assert (made["limit_usd"], made["reset_interval"], made["spend_usd"]) == (2.5, "daily", 0)
        run(*owner, "set", place, "lifetime", "9", "--include-byok", *options)
        refused = target.run(*owner, "set", place, "weekly", "9", *options).error_line(1)
        assert refused == "limit_usd: must be less than the lifetime limit of 9."
        assert [each["include_byok"] for each in run(*owner, "list", place, *options)] == [True] * 2
        assert run(*owner, "remove", place, "daily", *options) == {"deleted": True}
        shown = target.run(*owner, "list", place, *options).out.split("\t")
        assert shown[:4] == ["lifetime", "9", "0", "9"]
    [shown] = run("workspaces", "budgets", "list", "lab-b", "--end-users", *of)
    assert (shown["end_user"], shown["limit_usd"]) == ("a/b@acme.example", 9)


@everywhere
def test_keys(target: CliTarget, account: str) -> None:
    of = ("--account", account)
    target.json("workspaces", "create", "Lab", *of)
    made = target.json("keys", "create", "ci", "--workspace", "lab", "--expires", "30d", *of)
    assert made["key"].startswith("sk-th-v1-")
    assert (made["kind"], made["operator"]) == ("api", False)
    start = made["hash"][:12]
    [listed] = [each for each in target.json("keys", "list", *of) if each["hash"] == made["hash"]]
    assert listed["workspace"] == "lab"
    assert made["key"] not in str(target.run("keys", "show", start, *of))
    changed = target.json("keys", "set", start, "--disabled", "--name", "ci-2", *of)
    assert (changed["disabled"], changed["name"]) == (True, "ci-2")
    assert target.json("keys", "show", made["hash"], *of) == changed
    assert made["hash"] not in [each["hash"] for each in target.json("keys", "list", *of)]
    in_lab = target.json("keys", "list", "--all", "--workspace", "lab", *of)
    assert [each["name"] for each in in_lab] == ["ci-2"]
    assert target.json("keys", "set", start, "--enabled", *of)["disabled"] is False
    assert target.json("keys", "delete", start, *of) == {"deleted": True}
    refused = target.run("keys", "show", start, *of).error_line(1)
    assert refused.startswith(f"No such key: '{start}'")
    assert target.run("keys", "show", made["hash"]).error_line(1).startswith("No such key.")


def test_limits_of_keys(target: CliTarget, account: str) -> None:
    of = ("--account", account)
    limits = ("--limit", "25", "--limit-reset", "monthly", "--include-byok")
    made = target.json("keys", "create", "team", *limits, *of)
    assert limits_in(made) == (25, "monthly", 25, True)
    start = made["hash"][:12]
    found = target.run("keys", "show", start, *of).out.splitlines()
    assert {"limit\t25", "limit_reset\tmonthly", "limit_remaining\t25"} <= set(found)
    [row] = [x for x in target.run("keys", "list", *of).out.splitlines() if made["hash"] in x]
    assert row.split("\t")[6:10] == ["0", "25", "monthly", "25"]

    def changed(*options: str) -> tuple[object, ...]:
        return limits_in(target.json("keys", "set", start, *options, *of))

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
        target.run("keys", "set", start, *wrong, *of).error_line(2)
    assert target.run("keys", "set", start, "--limit-reset", "yearly", *of).code == 2
    assert limits_in(target.json("keys", "show", start, *of)) == (3, None, 3, False)
    assert limits_in(target.json("keys", "create", "free", *of)) == (None, None, None, False)


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


def test_management_keys(target: CliTarget, account: str) -> None:
    options = ("--kind", "management", "--operator", "--account", account)
    made = target.json("keys", "create", "admin", *options)
    assert (made["kind"], made["operator"]) == ("management", True)
    listed = target.run("keys", "list", "--account", account)
    [row] = [line.split("\t") for line in listed.out.splitlines() if "\tadmin\t" in line]
    assert row[:5] == [made["hash"], "admin", "operator", "default", "active"]
    refused = target.run("keys", "create", "odd", "--operator", "--account", account).error_line(1)
    assert "management key" in refused


@everywhere
def test_credits(target: CliTarget) -> None:
    of = ("--account", target.json("accounts", "create", "Payer")["id"])
    bought = ("credits", "add", "2.5", "--idempotency-key", f"invoice-{target.name}", *of)
    first = target.json(*bought)
    assert (first["kind"], first["amount"]) == ("purchase", 2.5)
    assert target.json(*bought) == first
    gift = target.json("credits", "add", "0.000000001", "--grant", "--note", "thanks", *of)
    assert (gift["kind"], gift["note"]) == ("grant", "thanks")
    found = target.run("credits", "show", *of)
    assert found.out.splitlines() == [
        "total_credits\t2.500000001",
        "total_usage\t0",
        "balance\t2.500000001",
    ]
    again = target.run("credits", "add", "3", "--idempotency-key", f"invoice-{target.name}", *of)
    assert "idempotency key" in again.error_line(1)


def test_the_ledger(target: CliTarget) -> None:
    account = target.json("accounts", "create", "Ledger")["id"]
    of = ("--account", account)
    assert target.json("credits", "add", "+10", *of)["amount"] == 10
    assert target.json("credits", "grant", "1", "--note", "a gift", *of)["kind"] == "grant"
    refund = ("credits", "refund", "4", "--idempotency-key", f"back-{target.name}", *of)
    assert target.json(*refund) == target.json(*refund)
    refused = target.run("credits", "refund", "7", *of).error_line(1)
    assert refused == "No more than 6 credits of purchases are left to be refunded."
    taken = target.json("credits", "adjust", "-0.000000001", "--note", "a fee", *of)
    assert (taken["kind"], taken["amount"]) == ("adjustment", -1e-9)
    assert target.json("credits", "adjust", "0.5", "--note", "sorry", *of)["amount"] == 0.5

    statement = target.json("ledger", "statement", *of)
    assert [line["balance"] for line in statement["lines"]] == [
        *("10", "11", "7", "6.999999999", "7.499999999")
    ]
    assert statement["closing_balance"] == "7.499999999"
    assert target.json("credits", "show", *of)["balance"] == 7.499999999
    shown = target.run("ledger", "statement", "--detail", "--limit", "2", *of).out.splitlines()
    assert [line.split("\t")[1:4] for line in shown] == [
        ["opening", "-", "0"],
        ["purchase", "10", "10"],
        ["grant", "1", "11"],
        ["closing", "7.499999999", "7.499999999"],
    ]
    later = target.json("ledger", "statement", "--from", "2999-01-01", *of)
    assert (later["opening_balance"], later["lines"]) == ("7.499999999", [])
    assert "must be a day" in target.run("ledger", "statement", "--to", "soon", *of).error_line(1)

    assert target.json("ledger", "unknown", *of) == []
    assert target.json("activity", *of) == []
    assert "such as 2026-01-31" in target.run("activity", "--date", "1", *of).error_line(1)
    clean = target.json("ledger", "verify")
    assert (clean["clean"], clean["differences"]) == (True, [])
    assert target.run("ledger", "verify").out.startswith("differences\t0\npostings\t")


@pytest.mark.parametrize("target", ["unserved"], indirect=True)
def test_a_total_that_was_changed_in_the_database_is_found(
    target: CliTarget, folder: Path, account: str
) -> None:
    target.json("credits", "grant", "1", "--account", account)
    change = "UPDATE account_totals SET granted_nano = granted_nano + ? WHERE account_id = ?"
    with closing(sqlite3.connect(folder / "tollhouse.db")) as connection, connection:
        connection.execute(change, (5, account))
    expected = ["account_totals.granted_nano", account, "1000000005", "1000000000"]
    found = target.run("ledger", "verify")
    assert (found.code, found.err) == (1, "")
    assert found.out.splitlines() == ["\t".join(expected)]
    found = target.run("ledger", "verify", "--json")
    [difference] = json.loads(found.out)["differences"]
    assert (found.code, list(difference.values())) == (1, expected)
    with closing(sqlite3.connect(folder / "tollhouse.db")) as connection, connection:
        connection.execute(change, (-5, account))


@pytest.mark.parametrize("verb", ["add", "grant", "refund", "adjust"])
def test_an_invalid_amount_is_refused(
    runner: CommandRunner, server: "ServerProcess", verb: str
) -> None:
    for amount in ("0", "-0", "NaN", "-Infinity", "1e400", "0.0000000001", "9" * 30, "ten", "--5"):
        note = ("--note", "n")
        on = ("--data-dir", server.data_dir)
        runner.run("credits", verb, *note, *on, "--", amount).error_line(2)


def test_models(target: CliTarget) -> None:
    models = target.json("models", "list")
    assert "simulated/echo" in [model["id"] for model in models]
    line = next(x for x in target.run("models", "list").out.splitlines() if x.startswith("sim"))
    assert len(line.split("\t")) == 5


@everywhere
def test_where_there_are_several_accounts_one_has_to_be_named(
    target: CliTarget, account: str
) -> None:
    del account
    done = target.run("users", "list")
    if target.name == "remote":  # a key has an account of its own
        assert done.code == 0
    else:
        assert "Add --account NAME" in done.error_line(1)


def test_an_unknown_resource_is_one_line(target: CliTarget, account: str) -> None:
    of = ("--account", account)
    for args in [
        ("accounts", "show", NOTHING),
        ("users", "show", "a/b", *of),
        ("keys", "show", "f" * 64, *of),
        ("workspaces", "show", "nothing", *of),
        ("keys", "list", "--workspace", "nothing", *of),
        ("credits", "show", "--account", NOTHING),
    ]:
        assert target.run(*args).error_line(1).startswith("No such ")


def test_contradictory_options_are_refused_before_anything_changes(
    target: CliTarget, account: str
) -> None:
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
        target.run(*args).error_line(2)
    assert target.json("keys", "list", "--all", *of) == []
