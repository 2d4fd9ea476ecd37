"""Several processes on one database, and payers whose budgets suffice for exactly k requests."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.server_process import TOLLHOUSE, ServerProcess, start_server

COST: Final = 0.01
"""Credits that a request holds, and costs."""
TOKENS: Final = 4
PAID: Final = {"prompt": "0", "completion": f"{COST / TOKENS}"}
FREE: Final = {"minute": 20, "day": 50}
"""What an account that has purchased nothing may ask of free models."""
BUDGETS: Final = ("key", "balance", *FREE)
"""Those that there are; `workspace` joins them once budgets of workspaces are enforced."""
WORKERS: Final = 4
"""How many workers tests have `tollhouse serve` start."""


def model(name: str, kind: str, provider: str = "simulated", **more: object) -> dict[str, Any]:
    pricing = "free" if name.endswith(":free") else PAID
    endpoint = {"provider": provider, "model": kind, "pricing": pricing}
    return {"id": f"acme/{name}", "context_length": 8192, "endpoints": [endpoint], **more}


SETTINGS: Final[Mapping[str, Any]] = {
    "accounting": {"initial_grant": 0},
    "server": {"max_requests_per_address_per_minute": 10**8},
    "limits": {
        "in_flight_fraction": "1",
        "settlement_seconds": 0,
        "admission_wait_seconds": 10,  # so that none is refused since the machine is busy
    },
    "providers": [{"slug": "simulated", "kind": "simulated"}],
    "models": [
        *(model("exact", "echo"), model("slow", "slow"), model("minute:free", "echo")),
        model("day:free", "echo", requests_per_minute=10**5),
    ],
}


def body_of(name: str, tokens: int = TOKENS, *, stream: bool = False) -> bytes:
    """Return a request that costs what it holds: the model writes as much as it may."""
    said = [{"role": "user", "content": "word " * (2 * tokens)}]
    body = {"model": f"acme/{name}", "max_tokens": tokens, "messages": said, "stream": stream}
    return json.dumps(body).encode()


@dataclass(frozen=True)
class Payer:
    """A key, the model that uses up its budget, and for how many requests that is."""

    key: str
    key_hash: str
    account: str
    workspace: str
    model: str
    k: int


class Deployment:
    """Several processes on one database: servers with folders of their own, or workers of one."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *,
        servers: int = 4,
        workers: int = 0,
        settings: Mapping[str, Any] = SETTINGS,
    ) -> None:
        self.folder, self.env, self._stack = folder, env, ExitStack()
        self._args = ("--workers", str(workers)) if workers else ()
        blobs = {} if workers else {"blobs": blobs_at(self._stack.enter_context(s3_beside()))}
        self._config = json.dumps({**settings, **blobs})
        self.servers: list[ServerProcess] = []
        for number in range(1 if workers else servers):
            self.start(number)
        self.management_key = self.servers[0].management_key

    def start(self, number: int) -> None:
        """Start a server, on the data folder of the last one with this number."""
        home = self.folder / f"server-{number}"
        home.mkdir(parents=True, exist_ok=True)
        for last in self.servers[number : number + 1]:
            last.kill()
        # Replies are not recorded: thousands that are alike would be checked at the end of a run.
        started = start_server(
            home, config=self._config, env=self.env, args=self._args, program=(str(TOLLHOUSE),)
        )
        self.servers[number : number + 1] = [started]

    def manage(self, method: str, path: str, process: int = 0, **content: Any) -> Any:
        """Send a request with the operator's key through a process; assert that it succeeds."""
        headers = {"authorization": f"Bearer {self.management_key}"}
        url = f"{self.servers[process % len(self.servers)].base_url}{path}"
        sent = httpx2.request(method, url, json=content or None, headers=headers, timeout=60)
        assert sent.status_code in range(200, 300), sent.text
        return sent.json()

    def payer(self, budget: str, k: int, process: int = 0) -> Payer:
        """Make an account and a key with a budget for exactly k requests, through a process."""
        name, workspace, place = f"payer-{random.getrandbits(64):x}", "", dict[str, str]()
        account = self.manage("POST", "/accounts", process, name=name)["data"]["id"]
        if budget not in FREE:
            self.add_credits(account, k if budget == "balance" else 10**5, process)
        if budget == "workspace":
            owner = {"name": name, "slug": name, "account_id": account}
            workspace = self.manage("POST", "/workspaces", process, **owner)["data"]["id"]
            place = {"workspace_id": workspace}
        made = self.manage("POST", "/keys", process, name=name, account_id=account, **place)
        used = f"{budget}:free" if budget in FREE else "exact"
        payer = Payer(made["key"], made["data"]["hash"], account, workspace, used, k)
        if budget in {"key", "workspace"}:
            self.limit(payer, k, process)
        return payer

    def limit(self, payer: Payer, k: int, process: int = 0) -> None:
        """Limit a key, or its workspace, to so many requests."""
        where, limit = f"/workspaces/{payer.workspace}/budgets/daily", round(k * COST, 9)
        if payer.workspace:
            self.manage("PUT", f"{where}?account_id={payer.account}", process, limit_usd=limit)
        else:
            self.manage("PATCH", f"/keys/{payer.key_hash}", process, limit=limit)

    def add_credits(self, account: str, k: int, process: int = 0) -> None:
        granted = {"amount": f"{k * COST:.9f}", "kind": "grant", "account_id": account}
        self.manage("POST", "/credits", process, **granted)

    def used(self, payer: Payer, process: int = 0) -> float:
        """Return for how many requests an account has paid, as a process tells it."""
        found = self.manage("GET", f"/credits?account_id={payer.account}", process)["data"]
        return round(found["total_usage"] / COST, 6)

    def differences(self, process: int = 0) -> list[Any]:
        """Return what `tollhouse ledger verify` finds."""
        transport = httpx2.HTTPTransport(uds=str(self.servers[process].control_socket))
        with httpx2.Client(transport=transport, base_url="http://local/v1", timeout=60) as http:
            return http.get("/ledger/verify").raise_for_status().json()["data"]["differences"]

    def holds_expired(self) -> int:
        """Return how many holds ended that no request ended: a bug that the log names."""
        logs = self.folder.glob("server-*/*.log")
        return sum(log.read_text().count("hold_expired") for log in logs)

    def grants(self) -> Counter[str]:
        """Return the metrics that count grants, summed over the servers."""
        found, headers = Counter[str](), {"authorization": f"Bearer {self.management_key}"}
        for server in self.servers:
            for line in httpx2.get(f"{server.origin}/metrics", headers=headers).text.splitlines():
                name, _, value = line.rpartition(" ")
                found[name] += int(float(value)) if "grant" in name and name[0] != "#" else 0
        return +found

    def close(self) -> None:
        with self._stack:
            for server in self.servers:
                server.stop()
