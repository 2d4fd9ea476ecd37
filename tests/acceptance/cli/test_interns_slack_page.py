"""`docs/guide/interns-slack.md`: its commands, before a stand-in for Slack, in a real sandbox."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.acceptance.checked_server import start_checked_server
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment
from tests.support.slack_server import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    USER,
    event,
    press,
    serve_slack,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "interns-slack.md"
CONFIG = """\
providers:
  - {{slug: simulated, kind: simulated}}
interns:
  slack_url: {url}
"""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return the page's commands, and the lines that it shows of what each prints."""
    shown = "".join(re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL))
    for block in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]:
        command, *lines = block.splitlines()
        yield command, [" ".join(line.split()) for line in lines if line != "..."]


@pytest.mark.sandbox
def test_the_page_leads_to_a_conversation(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("i")
    folder.joinpath("tokens.txt").write_text(f"{BOT_TOKEN}\n{APP_TOKEN}\n")
    with (
        serve_slack() as (slack, do),
        start_checked_server(folder, config=CONFIG.format(url=slack.api_url)) as server,
    ):
        there = {"TOLLHOUSE_API_KEY": server.api_key, "TOLLHOUSE_DATA_DIR": str(server.data_dir)}
        environment = clean_environment(there)
        environment["PATH"] = f"{forking_program().parent}:{environment['PATH']}"
        printed = ""
        for command, lines in commands():
            done = subprocess.run(
                ["bash", "-c", command],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr, server.stderr_text())
            told = [" ".join(line.split()) for line in done.stdout.splitlines()]
            assert [line for line in lines if line not in told] == [], (command, done.stdout)
            printed += done.stdout + done.stderr
        (manifest,) = re.findall(r"^manifest\s+(\{.*\})$", printed, re.MULTILINE)
        assert json.loads(manifest)["settings"]["socket_mode_enabled"] is True

        do(slack.until_connected(1))
        prompt = f"<@{BOT_USER}> run with network: echo out"
        do(slack.push("events_api", event("app_mention", prompt)))
        asked = wait_until(
            lambda: [each for each in slack.messages.items() if "May I do this" in each[1]["text"]]
        )[-1]
        do(slack.push("interactive", press(asked, "Allow once")))
        wait_until(lambda: [text for text in slack.texts if "\nout\n" in text])
        assert slack.messages[asked[0]]["text"].endswith(f"<@{USER}>: allow once")

        headers = {"Authorization": f"Bearer {server.api_key}"}
        found = httpx2.get(f"{server.base_url}/interns", headers=headers).json()["data"]
        (intern,) = (each["id"] for each in found if each["name"] == "sam")
        unsigned = httpx2.post(f"{server.base_url}/interns/{intern}/slack/events", json={})
        assert unsigned.status_code == 401
        written = [path.read_bytes() for path in folder.glob("data/**/*") if path.is_file()]
        said = [printed.encode(), server.stderr_text().encode(), *written]
        assert [
            each for each in said if BOT_TOKEN.encode() in each or APP_TOKEN.encode() in each
        ] == []
