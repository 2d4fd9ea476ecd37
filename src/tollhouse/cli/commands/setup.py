"""`tollhouse config`, `bootstrap`, `migrate`, `status`, `logs`, `version`: an installation."""

import asyncio
import dataclasses
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, get_args

import typer
from typer import Option

from tollhouse import __version__
from tollhouse.cli.client import data_dir_of, is_listening, load_settings
from tollhouse.cli.control import CommandGroup, examples
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.options import BaseUrl, Config, DatabaseUrl, DataDir, Json
from tollhouse.cli.output import Record, Table, print_result, write
from tollhouse.cli.target import RemoteServer, ServerFlags, choose_server, origin
from tollhouse.cli.values import one_line, parse_object
from tollhouse.kernel.errors import StartError
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from tollhouse.apps.inference import ProviderCheck
    from tollhouse.settings.sections import Settings

config_app = CommandGroup(
    "config", "The configuration: one YAML file and TOLLHOUSE_* in the environment."
)


@config_app.command(
    epilog=examples(
        "tollhouse config check",
        "tollhouse config check --live",
        "tollhouse config check --config tollhouse.yaml",
    )
)
def check(
    config: Config = None,
    data_dir: DataDir = None,
    live: Annotated[
        bool,
        Option(
            "--live", help="Also ask each provider for its list of models, which costs nothing."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say whether a gateway could start with this configuration, or everything that is wrong."""
    try:
        settings = load_settings(data_dir, config)
        found = _found(settings, config, data_dir)
    except StartError as error:
        if not as_json:
            raise
        write(json.dumps({"ok": False, "problems": str(error).splitlines()}))
        raise typer.Exit(error.exit_code) from None
    checks: Mapping[str, ProviderCheck] = {}
    if live:
        from tollhouse.apps.inference import check_providers

        checks = asyncio.run(check_providers(settings))
    ok = all(check.ok for check in checks.values())
    if as_json:
        shown = {slug: check._asdict() for slug, check in checks.items()}
        write(json.dumps({"ok": ok, **found, **({"live": shown} if live else {})}))
    else:
        lines = [
            "the configuration is ok",
            f"file       {found['config'] or 'none; defaults and the environment'}",
            f"data       {found['data_dir']}",
            f"database   {found['database']}",
            f"providers  {', '.join(found['providers'])}",
            f"models     {found['models']}",
            *(f"live       {slug}: {check.message}" for slug, check in checks.items()),
        ]
        write("\n".join(lines))
    if not ok:
        raise typer.Exit(CommandFailed.exit_code)


@config_app.command(epilog=examples("tollhouse config show", "tollhouse config show --json"))
def show(config: Config = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Print every setting in force, as YAML; secrets are masked."""
    settings = load_settings(data_dir, config)
    from tollhouse.settings.description import masked

    shown = masked(settings)
    if as_json:
        write(json.dumps(shown))
        return
    import yaml

    write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())


@config_app.command(epilog=examples("tollhouse config env"))
def env(as_json: Json = False) -> None:
    """List the environment variables that Tollhouse reads."""
    from tollhouse.settings.environment import environment_names

    names = [name._asdict() for name in environment_names()]
    print_result(Table(names, ["name", "type", "default", "description"]), as_json=as_json)


def _found(settings: "Settings", config: Path | None, data_dir: Path | None) -> dict[str, Any]:
    """Return what the settings amount to, once every price is known."""
    from tollhouse.apps.startup import read_catalog
    from tollhouse.kernel.clock import SystemClock
    from tollhouse.settings.loader import config_file, data_folder

    here = Path.cwd()
    file = config_file(config, os.environ, data_folder(os.environ, data_dir, here), here)
    return {
        "config": None if file is None else str(file),
        "data_dir": str(settings.data_dir),
        "database": "sqlite" if settings.database_url is None else "postgresql",
        "providers": [each.slug for each in settings.providers],
        "models": len(read_catalog(settings, SystemClock()).models),
    }


def bootstrap(
    new_keys: Annotated[
        bool, Option("--new-keys", help="If an account exists already, make new keys for it.")
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Make database, account, workspace, credits and keys without starting a server.

    It does what the first start of `tollhouse serve` does, which then shows no keys any more.
    """
    from tollhouse.apps.local import bootstrap_once

    settings = load_settings(data_dir, config, database_url=database_url)
    made = dataclasses.asdict(asyncio.run(bootstrap_once(settings, new_keys=new_keys)))
    if as_json:
        write(json.dumps(made))
        return
    width = max(map(len, made))
    lines = [f"{name.replace('_', ' '):<{width}}  {value}" for name, value in made.items()]
    note = "Keep the keys now: only their hashes are stored, and nobody can show them again."
    write("\n".join([*lines, "", note]))


PENDING = 1


def migrate(
    check: Annotated[
        bool,
        Option("--check", help=f"Change nothing; exit code {PENDING} if migrations are pending."),
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Bring the database to the schema of this program.

    `tollhouse serve` does this itself on SQLite. On PostgreSQL run it before a new release starts.
    """
    from tollhouse.apps import migrate as work

    settings = load_settings(data_dir, config, database_url=database_url)
    current = work.is_current(settings)
    if not (current or check):
        work.migrate(settings)
    up_to_date = current or not check
    if as_json:
        write(json.dumps({"up_to_date": up_to_date, "migrated": up_to_date and not current}))
    elif not up_to_date:
        write("migrations are pending: run `tollhouse migrate`")
    else:
        write("the database was up to date" if current else "the database is up to date now")
    raise typer.Exit(0 if up_to_date else PENDING)


def version(as_json: Json = False) -> None:
    """Print the version of this program."""
    write(json.dumps({"version": __version__}) if as_json else f"tollhouse {__version__}")


SECONDS = 10.0


def status(
    base_url: BaseUrl = None, data_dir: DataDir = None, config: Config = None, as_json: Json = False
) -> None:
    """Say whether a server runs, where, and whether it is ready; it needs no key.

    Ends with exit code 1 where none runs, or it is not ready.
    """
    flags = ServerFlags(base_url=base_url, data_dir=data_dir, config=config)
    target = choose_server(flags, os.environ)
    if isinstance(target, RemoteServer):
        found: dict[str, Any] = {"address": target.base_url.removesuffix("/v1")}
        running = True
    else:
        folder = DataFolder(data_dir_of(target.data_dir, target.config))
        running = is_listening(folder.control_socket)
        owner = folder.owner() if running else None
        found = {
            "data_dir": str(folder.path),
            "address": None if owner is None or owner.address is None else origin(owner.address),
            "pid": None if owner is None else owner.pid,
        }
    address = found["address"] if running else None
    told: dict[str, object] = {} if address is None else asyncio.run(_readiness(address))
    state = told.get("status") or ("not reached" if running else "not running")
    print_result(
        Record({"status": state, **found, "problems": told.get("problems")}), as_json=as_json
    )
    if state != "ready":
        raise typer.Exit(CommandFailed.exit_code)


async def _readiness(address: str) -> dict[str, object]:
    """Return what a server says of itself; nothing where it does not answer as one."""
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            return parse_object((await http.get(f"{address}/readyz")).content)
    except httpx2.RequestError:
        return {}


POLL_SECONDS = 0.25

Severity = Literal["debug", "info", "warning", "error"]


def logs(
    data_dir: DataDir = None,
    config: Config = None,
    lines: Annotated[int, Option("--lines", "-n", min=0, help="How many of the last ones.")] = 100,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Go on with new ones until Ctrl-C.")
    ] = False,
    level: Annotated[Severity, Option(help="Only lines of this severity or more.")] = "debug",
    as_json: Annotated[bool, Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the log of the data folder's server, also after it has ended; it needs no key."""
    from tollhouse.observability.server_log import log_files

    path = DataFolder(data_dir_of(data_dir, config)).server_log
    if not (follow or log_files(path)):
        raise CommandFailed(
            f"there is no log in {path.parent}: `tollhouse serve` writes one there, "
            "unless logging.file_bytes is 0"
        )
    with closing(LogReader(path)) as log:
        read_on = all(map(write, deque(log.shown(level, as_json=as_json), maxlen=lines)))
        while follow and read_on:
            time.sleep(POLL_SECONDS)
            read_on = all(map(write, log.shown(level, as_json=as_json)))


class LogReader:
    """A log that is read to its end, and on from there when it has grown."""

    def __init__(self, path: Path) -> None:
        from tollhouse.observability.server_log import log_files

        self._path = path
        self._older = list(log_files(path))
        self._file: TextIO | None = None
        self._begun = ""
        """A line of which the end is missing yet."""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def shown(self, level: Severity, *, as_json: bool) -> Iterator[str]:
        """Return what is new of it, as it is shown to a person or a program."""
        from tollhouse.observability.server_log import text_line

        severities = (*get_args(Severity), "critical")
        wanted = severities[severities.index(level) :]
        for line in self._lines():
            facts = parse_object(line)
            if facts.get("level") in wanted:
                yield line if as_json else one_line(text_line(facts))

    def _lines(self) -> Iterator[str]:
        while True:
            for piece in self._file or ():
                self._begun += piece
                if self._begun.endswith("\n"):
                    line, self._begun = self._begun, ""
                    yield line.rstrip("\n")
            if not self._open_next():
                return

    def _open_next(self) -> bool:
        """Open the file that follows the one that is read; tell whether there is one."""
        following = self._older.pop(0) if self._older else self._path
        try:
            file = following.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False
        if self._file is not None:
            if os.path.sameopenfile(file.fileno(), self._file.fileno()):
                file.close()
                return False
            self._file.close()
        self._file = file
        return True
