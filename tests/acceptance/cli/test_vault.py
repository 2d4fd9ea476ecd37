"""`tollhouse vault` against a server: values go in, and nothing that is printed holds one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.support.server_process import ServerProcess, start_server
from tests.support.terminal import Terminal
from tests.support.vault_interns import VaultIntern, add_intern

SECONDS = 60
VALUE = "hunter2-and-more"
NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass
class VaultCommands:
    """Runs `tollhouse vault` against a server with a key."""

    server: ServerProcess
    runner: CommandRunner
    files: Path

    @property
    def env(self) -> dict[str, str]:
        return {"TOLLHOUSE_BASE_URL": self.server.origin, "TOLLHOUSE_API_KEY": self.server.api_key}

    def run(self, *args: str) -> CommandResult:
        """Run a command with the API key; nothing that it prints holds a value."""
        return hidden(self.runner.run("vault", *args, env=self.env))

    def json(self, *args: str) -> Any:
        return self.run(*args, "--json").json()

    def set(self, name: str, host: str, *args: str) -> Any:
        return self.json("set", name, "--host", host, "--value-file", self.value(), *args)

    def value(self, text: str = VALUE) -> str:
        file = self.files / "value"
        file.write_text(text)
        return str(file)

    def intern(self, attached: str | None = None) -> VaultIntern:
        return add_intern(self.server, attached=attached)

    def operator(self, *args: str) -> CommandResult:
        return hidden(self.runner.run(*args, "--data-dir", self.server.data_dir))

    def piped(self, text: str, *args: str) -> CommandResult:
        """Run a command with this on its standard input."""
        return hidden(self.runner.run("vault", *args, env=self.env, given=text.encode()))


def hidden(done: CommandResult) -> CommandResult:
    assert VALUE not in done.out + done.err
    return done


@pytest.fixture(scope="module")
def vault_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("vaults")) as server:
        yield server
        assert VALUE not in server.stderr_text()


@pytest.fixture
def vaults(vault_server: ServerProcess, runner: CommandRunner, tmp_path: Path) -> VaultCommands:
    return VaultCommands(vault_server, runner, tmp_path)


def test_a_secret_is_stored_from_a_file(vaults: VaultCommands) -> None:
    made = vaults.set("from_file", "API.example.com")
    assert (made["name"], made["hosts"]) == ("from_file", ["api.example.com"])
    assert made["fingerprint"].startswith("sha256:")
    assert "value" not in made
    assert made in vaults.json("list")


def test_the_end_of_a_files_last_line_is_no_part_of_a_value(vaults: VaultCommands) -> None:
    plain = vaults.set("ended", "a.example")["fingerprint"]
    with_end = ("set", "ended", "--host", "a.example", "--value-file")
    assert vaults.json(*with_end, vaults.value(f"{VALUE}\n"))["fingerprint"] == plain
    refused = vaults.run(*with_end, vaults.value(f"{VALUE}\n\n")).error_line(1)
    assert "line break" in refused


def test_a_secret_is_stored_from_standard_input(vaults: VaultCommands) -> None:
    plain = vaults.set("piped", "a.example")["fingerprint"]
    asked = ("set", "piped", "--host", "a.example", "--json")
    assert vaults.piped(VALUE, *asked).json()["fingerprint"] == plain
    assert vaults.piped(f"{VALUE}\n", *asked, "--value-file", "-").json()["fingerprint"] == plain


def test_what_is_shown_of_a_secret_is_not_its_value(vaults: VaultCommands) -> None:
    vaults.set("shown", "a.example")
    done = vaults.run("set", "shown", "--host", "b.example", "--value-file", vaults.value())
    assert [line.partition("\t")[0] for line in done.out.splitlines()] == [
        *("name", "hosts", "fingerprint", "created_at")
    ]


def test_a_value_is_not_accepted_as_an_argument(vaults: VaultCommands) -> None:
    done = vaults.run("set", "no_arg", VALUE, "--host", "a.example")
    assert (done.code, done.out) == (2, "")
    assert "A value is none" in done.err
    assert "no_arg" not in vaults.run("list").out


def test_an_empty_value_is_not_stored(vaults: VaultCommands) -> None:
    done = vaults.piped("\n", "set", "empty", "--host", "a.example")
    assert done.error_line(2) == "the value is empty: nothing was stored"


def test_a_value_that_is_no_text_is_not_stored(vaults: VaultCommands, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe")
    done = vaults.run("set", "binary", "--host", "a.example", "--value-file", str(file))
    assert done.error_line(2) == f"{file} is no UTF-8 text"


def test_a_host_that_anybody_may_use_is_warned_about(vaults: VaultCommands) -> None:
    args = ("set", "doubtful", "--host", "me.github.io", "--value-file", vaults.value(), "--json")
    done = vaults.run(*args)
    assert done.json()["hosts"] == ["me.github.io"]
    assert done.err.startswith("warning: me.github.io: anybody can put content there")


def test_an_invalid_name_is_refused(vaults: VaultCommands) -> None:
    done = vaults.run("set", "No-Name", "--host", "a.example", "--value-file", vaults.value())
    assert done.error_line(1).startswith("name: must have 1 to 255 characters")


def test_a_secret_is_deleted(vaults: VaultCommands) -> None:
    vaults.set("short_lived", "a.example")
    assert vaults.json("delete", "short_lived") == {"name": "short_lived", "deleted": True}
    assert "short_lived" not in vaults.run("list").out
    refused = vaults.run("delete", "short_lived").error_line(1)
    assert refused.startswith("There is no secret short_lived here. `tollhouse vault list`")


def test_an_intern_has_a_vault_of_its_own(vaults: VaultCommands) -> None:
    intern = vaults.intern()
    made = vaults.set("its_own", "a.example", "--intern", intern.id)
    assert vaults.json("list", "--intern", intern.id) == [made]
    assert "its_own" not in vaults.run("list").out
    assert vaults.json("delete", "its_own", "--intern", intern.id)["deleted"] is True


def test_secrets_are_copied_to_an_intern(vaults: VaultCommands) -> None:
    intern = vaults.intern()
    for name in ("first", "second"):
        vaults.set(name, f"{name}.example")
    copies = vaults.json("copy", intern.id, "second", "first")
    assert [each["name"] for each in copies] == ["second", "first"]
    assert [each["name"] for each in vaults.json("list", "--intern", intern.id)] == [
        *("first", "second")
    ]


def test_all_pages_of_a_vault_are_listed(vaults: VaultCommands) -> None:
    old = vaults.files / "many.json"
    old.write_text(json.dumps({f"many{number:03}": VALUE for number in range(205)}))
    args = ("vault", "import", str(old), "--workspace", "default", "--json")
    assert len(vaults.operator(*args).json()["imported"]) == 205
    intern = vaults.intern()
    for found in (vaults.json("list"), vaults.json("why", intern.id, "a.example")):
        assert len([each for each in found if each["name"].startswith("many")]) == 205


def test_what_an_intern_receives_comes_from_three_vaults(vaults: VaultCommands) -> None:
    lender = vaults.intern()
    intern = vaults.intern(attached=lender.vault_id)
    for name in ("e_own", "e_lent", "e_shared"):
        vaults.set(name, "shared.example")
    for name in ("e_own", "e_lent"):
        vaults.set(name, "lent.example", "--intern", lender.id)
    vaults.set("e_own", "own.example", "--intern", intern.id)
    lines = [line.split("\t")[:3] for line in vaults.run("effective", intern.id).out.splitlines()]
    assert [line for line in lines if line[0].startswith("e_")] == [
        ["e_lent", "attached", "lent.example"],
        ["e_own", "intern", "own.example"],
        ["e_shared", "workspace", "shared.example"],
    ]


def test_why_says_what_a_host_receives(vaults: VaultCommands) -> None:
    lender = vaults.intern()
    intern = vaults.intern(attached=lender.vault_id)
    vaults.set("w_own", "shared.example")
    vaults.set("w_own", "lent.example", "--intern", lender.id)
    vaults.set("w_own", "own.example", "--intern", intern.id)
    vaults.set("w_shared", "shared.example")
    old = vaults.files / "old.env"
    old.write_text(f"w_unbound={VALUE}\n")
    vaults.operator("vault", "import", str(old), "--workspace", "default")
    found = vaults.run("why", intern.id, "shared.example")
    lines = [line.split("\t") for line in found.out.splitlines() if line.startswith("w_")]
    assert lines == [
        [
            *("w_own", "intern", "no", "bound to own.example"),
            "attached (bound to lent.example); workspace's (bound to shared.example)",
        ],
        ["w_shared", "workspace", "yes", "bound to shared.example", "-"],
        ["w_unbound", "workspace", "no", "bound to no host: store it again with --host", "-"],
    ]


def test_an_unknown_intern_is_reported(vaults: VaultCommands) -> None:
    assert vaults.run("effective", NOBODY).error_line(1) == "No such intern in this workspace."


def test_an_import_keeps_what_has_hosts(vaults: VaultCommands) -> None:
    vaults.set("i_bound", "a.example")
    old = vaults.files / "old.json"
    old.write_text(json.dumps({"i_bound": VALUE, "i_old": VALUE}))
    done = vaults.operator("vault", "import", str(old), "--workspace", "default")
    assert done.out.splitlines() == ["i_old\timported", "i_bound\tkept, it has hosts"]


def test_a_file_with_mistakes_is_not_imported(vaults: VaultCommands) -> None:
    old = vaults.files / "wrong.env"
    old.write_text(f"m_good={VALUE}\n{VALUE}\nAPI-{VALUE}=a\n")
    done = vaults.operator("vault", "import", str(old), "--workspace", "default")
    assert (done.code, done.out) == (2, "")
    assert [line.split(" ")[0] for line in done.err.splitlines()] == [f"{old}:2:", f"{old}:3:"]
    assert "m_good" not in vaults.run("list").out


def test_an_import_needs_an_operator(vaults: VaultCommands) -> None:
    old = vaults.files / "old.env"
    old.write_text(f"nobodys={VALUE}\n")
    assert vaults.run("import", str(old), "--workspace", "default").code == 1


def test_secrets_outlive_a_new_key_encryption_key(vaults: VaultCommands) -> None:
    before = vaults.set("outlives", "a.example")["fingerprint"]
    first = vaults.operator("vault", "rotate-kek", "--json").json()
    second = vaults.operator("vault", "rotate-kek", "--json").json()
    assert first["kek_id"] != second["kek_id"]
    assert first["vaults"] == second["vaults"] >= 1
    assert vaults.set("outlives", "a.example")["fingerprint"] == before


def test_an_operator_switches_writes_off(vaults: VaultCommands) -> None:
    account = vaults.server.announced["account_id"]
    switched = vaults.operator("accounts", "set", account, "--vault-writes", "off", "--json")
    assert switched.json()["vault_writes"] is False
    try:
        args = ("set", "off", "--host", "a.example", "--value-file", vaults.value())
        refused = vaults.run(*args).error_line(1)
    finally:
        vaults.operator("accounts", "set", account, "--vault-writes", "on")
    assert refused.startswith("Changes to secrets are switched off here")
    assert "`--vault-writes on`" in refused
    assert vaults.set("off", "a.example")["name"] == "off"


def test_an_operator_switches_the_programme_off(vaults: VaultCommands) -> None:
    switched = vaults.operator("workspaces", "set", "default", "--programme", "off", "--json")
    assert switched.json()["intern_programme"] is False
    try:
        refused = vaults.run("list").error_line(1)
    finally:
        vaults.operator("workspaces", "set", "default", "--programme", "on")
    assert "--programme on" in refused
    assert vaults.run("list").code == 0


def test_a_switch_is_on_or_off(vaults: VaultCommands) -> None:
    assert vaults.operator("workspaces", "set", "default", "--programme", "maybe").code == 2


@contextmanager
def on_terminal(vaults: VaultCommands, *args: str) -> Iterator[Terminal]:
    terminal = Terminal(("vault", *args), vaults.env)
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_prompt_shows_nothing_of_what_is_typed(vaults: VaultCommands) -> None:
    plain = vaults.set("typed", "a.example")["fingerprint"]
    with on_terminal(vaults, "set", "typed", "--host", "a.example", "--json") as terminal:
        terminal.read_until("Value of typed (not shown): ")
        terminal.type(f"{VALUE}\n")
        assert terminal.end() == 0, terminal.text
        assert plain in terminal.text
        assert VALUE not in terminal.text


def test_ctrl_c_ends_a_prompt(vaults: VaultCommands) -> None:
    with on_terminal(vaults, "set", "never_typed", "--host", "a.example") as terminal:
        terminal.read_until("(not shown): ")
        terminal.press(b"\x03")
        while not terminal.has_ended(5):  # one that came just before the read began
            terminal.press(b"\x03")
        assert terminal.end() == 130, terminal.text
    assert "never_typed" not in vaults.run("list").out
