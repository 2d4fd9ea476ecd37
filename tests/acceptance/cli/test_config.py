"""`tollhouse config` and `tollhouse migrate`."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner

CONFIG = """
database_url: postgresql://tollhouse:hunter2@db.example/tollhouse
providers:
  - slug: acme
    kind: openai_compatible
    base_url: https://llm.acme.example/v1
    api_key: ${ACME_KEY}
models:
  - id: acme/large
    context_length: 128000
    endpoints:
      - {provider: acme, model: large-2026, pricing: {prompt: "0.000001", completion: "0.000002"}}
"""
SECRETS = ("sk-acme-key", "hunter2")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tollhouse.yaml"
    path.write_text(CONFIG)
    return path


def test_config_check_says_what_was_found(config: Path, runner: CommandRunner) -> None:
    args = ("config", "check", "--config", config)
    env = {"ACME_KEY": "sk-acme-key"}
    found = runner.run(*args, "--json", env=env).json()
    assert found["ok"] is True
    assert found["config"] == str(config)
    assert found["providers"] == ["acme", "simulated"]
    assert (found["models"] > 1, found["database"]) == (True, "postgresql")
    assert "the configuration is ok" in runner.run(*args, env=env).out


def test_config_check_lists_all_problems(config: Path, runner: CommandRunner) -> None:
    config.write_text(CONFIG + "servr: {}\n")
    done = runner.run("config", "check", "--config", config)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 2
    in_json = runner.run("config", "check", "--config", config, "--json")
    assert (in_json.code, in_json.err) == (2, "")
    assert "ACME_KEY" in in_json.out
    assert "the nearest is 'server'" in in_json.out


def test_config_check_finds_a_model_without_a_price(config: Path, runner: CommandRunner) -> None:
    config.write_text(CONFIG.split(", pricing", maxsplit=1)[0] + "}\n")
    refused = runner.run(
        "config", "check", "--config", config, env={"ACME_KEY": "k" * 8}
    ).error_line(2)
    assert "acme/large" in refused


class _ListOfModels(BaseHTTPRequestHandler):
    """Lists models to who has the key, as providers do."""

    def do_GET(self) -> None:
        known = self.headers["authorization"] == "Bearer sk-acme-key" and self.path == "/v1/models"
        self.send_response(200 if known else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def live_config(config: Path) -> Iterator[Path]:
    """A configuration whose provider is there."""
    with HTTPServer(("127.0.0.1", 0), _ListOfModels) as provider:
        text = CONFIG.replace(
            "https://llm.acme.example", f"http://127.0.0.1:{provider.server_port}"
        )
        config.write_text(text)
        serving = threading.Thread(target=provider.serve_forever, args=(0.01,))
        serving.start()
        yield config
        provider.shutdown()
        serving.join()


def test_a_live_check_asks_each_provider_with_its_key(
    live_config: Path, runner: CommandRunner
) -> None:
    args = ("config", "check", "--live", "--config", live_config)
    done = runner.run(*args, env={"ACME_KEY": "sk-acme-key"})
    assert (done.code, "live       acme: ok" in done.out) == (0, True)
    found = runner.run(*args, "--json", env={"ACME_KEY": "sk-acme-key"}).json()
    assert found["live"] == {"acme": {"ok": True, "message": "ok"}}


def test_a_live_check_says_which_key_is_refused_and_where_it_stands(
    live_config: Path, runner: CommandRunner
) -> None:
    args = ("config", "check", "--live", "--config", live_config)
    done = runner.run(*args, env={"ACME_KEY": "sk-wrong"})
    assert done.code == 1
    assert "acme refused this gateway's key (401): check providers[acme].api_key." in done.out
    assert "sk-wrong" not in done.out
    assert '"ok": false' in runner.run(*args, "--json", env={"ACME_KEY": "sk-wrong"}).out


def test_config_check_creates_no_file(tmp_path: Path, runner: CommandRunner) -> None:
    runner.run("config", "check", "--data-dir", tmp_path / "data", "--json").json()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_config_show_masks_every_secret(
    config: Path, runner: CommandRunner, json: list[str]
) -> None:
    args = ("config", "show", "--config", config, *json)
    done = runner.run(*args, env={"ACME_KEY": "sk-acme-key"})
    assert done.code == 0, done
    assert "large-2026" in done.out
    assert "********" in done.out
    assert not any(secret in done.out for secret in SECRETS)


def test_config_env_lists_the_variables(runner: CommandRunner) -> None:
    names = [each["name"] for each in runner.run("config", "env", "--json").json()]
    assert {"TOLLHOUSE_SERVER__PORT", "TOLLHOUSE_BASE_URL", "TOLLHOUSE_DATA_DIR"} <= set(names)
    assert "TOLLHOUSE_SERVER__PORT\t" in runner.run("config", "env").out


def test_migrate_creates_the_schema_and_says_whether_it_had_to(
    tmp_path: Path, runner: CommandRunner
) -> None:
    folder = tmp_path / "data"
    pending = runner.run("migrate", "--check", "--data-dir", folder, "--json")
    assert (pending.code, pending.out) == (1, '{"up_to_date": false, "migrated": false}\n')
    assert not folder.exists()
    done = runner.run("migrate", "--data-dir", folder, "--json").json()
    assert done == {"up_to_date": True, "migrated": True}
    done = runner.run("migrate", "--data-dir", folder, "--json").json()
    assert done == {"up_to_date": True, "migrated": False}
    assert runner.run("migrate", "--check", "--data-dir", folder).code == 0
    # The schema alone is no account.
    assert "bootstrap" in runner.run("accounts", "list", "--data-dir", folder).error_line(2)


def test_the_readmes_provider_leaves_the_readmes_first_request_its_model(
    config: Path, runner: CommandRunner
) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    example = readme[readme.index("    providers:\n") :].split("\n\n", 1)[0]
    config.write_text("\n".join(line.removeprefix("    ") for line in example.splitlines()))
    args = ("config", "check", "--config", config, "--json")
    found = runner.run(*args, env={"ACME_KEY": "sk-acme-key"}).json()
    assert found["providers"] == ["acme", "simulated"]
