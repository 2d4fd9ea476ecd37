"""`tollhouse config`: the settings, without starting anything."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollhouse.cli.client import load_settings
from tollhouse.cli.control import examples, noun
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.options import Config, DataDir, Json
from tollhouse.cli.output import Listing, field, style, write
from tollhouse.cli.output import show as print_shown
from tollhouse.cli.target import Folder
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.apps.provider_check import ProviderCheck
    from tollhouse.settings.sections import Settings

app = noun("config", "The configuration: one YAML file and TOLLHOUSE_* in the environment.")


@app.command(
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
        typer.Option(
            "--live", help="Also ask each provider for its list of models, which costs nothing."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say whether a gateway could start with this configuration, or everything that is wrong."""
    try:
        settings = load_settings(Folder(data_dir, config))
        found = _found(settings, _file(config, data_dir))
    except StartError as error:
        if not as_json:
            raise
        write(json.dumps({"ok": False, "problems": str(error).splitlines()}))
        raise typer.Exit(error.exit_code) from None
    checks: Mapping[str, ProviderCheck] = _ask_providers(settings) if live else {}
    ok = all(check.ok for check in checks.values())
    if as_json:
        shown = {slug: check._asdict() for slug, check in checks.items()}
        write(json.dumps({"ok": ok, **found, **({"live": shown} if live else {})}))
    else:
        told = [f"live       {slug}: {check.message}" for slug, check in checks.items()]
        write("\n".join([*_lines(found), *told]))
    if not ok:
        raise typer.Exit(CommandFailed.exit_code)


def _ask_providers(settings: "Settings") -> "Mapping[str, ProviderCheck]":
    from tollhouse.apps.provider_check import check_providers

    return asyncio.run(check_providers(settings))


def _lines(found: dict[str, Any]) -> list[str]:
    return [
        "the configuration is ok",
        f"file       {found['config'] or 'none; defaults and the environment'}",
        f"data       {found['data_dir']}",
        f"database   {found['database']}",
        f"providers  {', '.join(found['providers'])}",
        f"models     {found['models']}",
    ]


@app.command(epilog=examples("tollhouse config show", "tollhouse config show --json"))
def show(config: Config = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Print every setting in force, as YAML; secrets are masked."""
    settings = load_settings(Folder(data_dir, config))
    from tollhouse.settings.show import masked

    shown = masked(settings)
    if as_json:
        write(json.dumps(shown))
        return
    import yaml

    write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())


@app.command(epilog=examples("tollhouse config env"))
def env(as_json: Json = False) -> None:
    """List the environment variables that Tollhouse reads."""
    from tollhouse.settings.show import environment_names

    names = [name._asdict() for name in environment_names()]
    columns = [field("name"), field("type"), field("default"), field("description")]
    print_shown(Listing(names, columns), style(as_json=as_json))


def _file(config: Path | None, data_dir: Path | None) -> Path | None:
    from tollhouse.settings.loader import config_file, data_folder

    here = Path.cwd()
    return config_file(config, os.environ, data_folder(os.environ, data_dir, here), here)


def _found(settings: "Settings", file: Path | None) -> dict[str, Any]:
    """Return what the settings amount to, once every price is known."""
    from tollhouse.apps.ground import read_catalog
    from tollhouse.kernel.clock import SystemClock

    catalog = read_catalog(settings, SystemClock())
    return {
        "config": None if file is None else str(file),
        "data_dir": str(settings.data_dir),
        "database": "sqlite" if settings.database_url is None else "postgresql",
        "providers": [each.slug for each in settings.providers],
        "models": len(catalog.models),
    }
