"""Two gateways with equal settings, and the one provider that both of them ask.

Conversations take place in lanes, one after the other in each, and a lane of a gateway has
providers and models of its own. So what is asked tells in which conversation it is asked, and
which endpoints failed before does not depend on how fast other conversations are.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import yaml

from tests.support.providers.byte_script import End, Script
from tests.support.providers.upstream_server import ReceivedRequest, serve
from tests.support.server_process import ServerProcess, start_server

SIDES: Final = ("old", "new")
_DAY: Final = 86_400
_MANY: Final = 100_000_000
_SECONDS: Final = 300
"""For a reply, before it counts as none."""
_NAMED_HOSTS: Final = {
    "openai": "api.openai.com",
    "groq": "api.groq.com",
    "mistral": "api.mistral.ai",
    "deepseek": "api.deepseek.com",
    "openrouter": "openrouter.ai",
}
"""Servers of which the gateway knows something; it reaches them through the provider as a proxy."""
_PROVIDERS: Final[dict[str, dict[str, Any]]] = {
    "chat": {"dialects": ["chat", "embeddings"]},
    "strict": {
        "dialects": ["chat"],
        "output_limit": "max_completion_tokens",
        "refuses": ["temperature", "stop", "reasoning_effort", "parallel_tool_calls", "user"],
    },
    "responses": {"dialects": ["responses"]},
    "listed": {
        "dialects": ["responses"],
        "refuses": ["temperature", "metadata", "agent_message", "custom_tool_call", "web_search"],
    },
    "messages": {"kind": "anthropic", "keeps_data": False},
    "narrow": {"kind": "anthropic", "refuses": ["top_k", "thinking", "cache_control"]},
    "text": {"dialects": ["completions"]},
    "every": {"dialects": ["chat", "responses", "messages", "completions", "embeddings"]},
    "again": {"dialects": ["chat"], "idempotent": True},
    **{name: {} for name in _NAMED_HOSTS},
}
_FULL: Final = {
    "prompt": "0.000003",
    "completion": "0.000015",
    "reasoning": "0.00002",
    "input_cache_read": "0.0000003",
    "input_cache_write": "0.00000375",
    "input_cache_write_1h": "0.000006",
    "request": "0.001",
    "image": "0.0048",
    "web_search": "0.01",
    "file_search": "0.0025",
}
_PLAIN: Final = {"prompt": "0.000001", "completion": "0.000002"}
_MODELS: Final[dict[str, dict[str, Any]]] = {
    **{name: {"by": [name]} for name in _PROVIDERS},
    "limited": {"by": ["chat"], "max_completion_tokens": 40, "context_length": 300},
    "chat-first": {"by": ["chat", "messages"]},
    "responses-first": {"by": ["responses", "again", "text"]},
    "messages-first": {"by": ["messages", "responses"]},
    "again-first": {"by": ["again", "narrow", "strict"]},
    "named-first": {"by": ["openai", "deepseek"]},
}
MODELS: Final = (*_MODELS, "responses", "listed", "messages", "narrow", "text")
"""What conversations draw from; some stand twice, since most servers speak chat."""

Answer = Callable[[ReceivedRequest, int], Script]
"""Makes the response to a request, and to which one since the lane's last question."""


@dataclass(slots=True)
class Lane:
    """The place of one gateway's conversation."""

    side: str
    number: int
    answer: Answer = field(init=False)
    asked: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    """What the providers got since this was last emptied."""

    def model(self, name: str) -> str:
        return f"lane{self.number}/{name}"

    def provider(self, name: str) -> str:
        return f"lane{self.number}-{name}"

    def endpoints(self, model: str) -> list[str]:
        """Return the providers of a model, by its whole id; none of one that is not the lane's."""
        name = model.removeprefix(self.model(""))
        return [self.provider(each) for each in _MODELS.get(name, {}).get("by", ())]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client got."""

    status: int
    """0 where none came."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case, in the order of the names."""
    body: bytes = b""
    whole: bool = True
    """Whether the body came to its end."""

    @property
    def generation_id(self) -> str:
        return dict(self.headers).get("x-generation-id", "")


class Gateway:
    """One of the two gateways, and a client of it that keeps connections alive."""

    def __init__(self, server: ServerProcess, session: aiohttp.ClientSession) -> None:
        self.server, self._session = server, session

    async def ask(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Post a body, and return what came."""
        said, head = bytearray(), Reply(0, whole=False)
        known = {"authorization": f"Bearer {self.server.api_key}"}
        given = {name: value for name, value in (known | headers).items() if value}
        try:
            async with self._session.post(
                f"{self.server.base_url}{path}", data=body, headers=given, allow_redirects=False
            ) as response:
                fields = sorted((name.lower(), value) for name, value in response.headers.items())
                head = Reply(response.status, tuple(fields), whole=False)
                async for piece in response.content.iter_any():
                    said += piece
        except (aiohttp.ClientError, TimeoutError):
            return Reply(head.status, head.headers, bytes(said), whole=False)
        return Reply(head.status, head.headers, bytes(said))

    async def settle(self) -> None:
        """Return once every charge so far is in the database: `/key` waits for that."""
        headers = {"authorization": f"Bearer {self.server.api_key}"}
        async with self._session.get(f"{self.server.base_url}/key", headers=headers) as response:
            response.raise_for_status()


@dataclass(frozen=True, slots=True)
class Pair:
    """Both gateways, and the lanes of each."""

    gateways: dict[str, Gateway]
    lanes: dict[str, list[Lane]]
    errors: list[Exception] = field(default_factory=list[Exception])
    """Of the provider itself."""

    def check(self) -> None:
        """Raise the provider's own error, if it had one."""
        if self.errors:
            raise self.errors[0]


@asynccontextmanager
async def start_pair(folder: Path, repos: dict[str, Path], lanes: int) -> AsyncGenerator[Pair]:
    """Run the gateways of two checkouts, by side, and their provider during the block."""
    listed = {side: [Lane(side, number) for number in range(lanes)] for side in SIDES}

    def answer(request: ReceivedRequest) -> Script:
        _, side, number, *_ = urlsplit(request.path).path.split("/")
        lane = listed[side][int(number)]
        lane.asked.append(request)
        try:
            return lane.answer(request, len(lane.asked) - 1)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
            pair.errors.append(error)
            return (End.EOF,)

    pair = Pair({}, listed)
    async with AsyncExitStack() as stack:
        port, _ = await stack.enter_async_context(serve(answer))
        for side in SIDES:
            settings = yaml.dump(_settings(listed[side], port), Dumper=yaml.CSafeDumper)
            server = stack.enter_context(_started(folder / side, repos[side], settings))
            session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0),
                    timeout=aiohttp.ClientTimeout(total=_SECONDS),
                    auto_decompress=False,
                    skip_auto_headers=("accept-encoding", "user-agent", "content-type"),
                )
            )
            pair.gateways[side] = Gateway(server, session)
        yield pair


@contextmanager
def _started(folder: Path, repo: Path, settings: str) -> Generator[ServerProcess]:
    """Start a checkout's gateway; it makes its database itself, which may have another schema."""
    (folder / "data").mkdir(parents=True, mode=0o700)
    with start_server(
        folder,
        config=settings,
        program=(str(python_of(repo)), "-m", "tollhouse"),
        env={"PYTHONPATH": str(repo / "src")},
    ) as server:
        yield server


def python_of(repo: Path) -> Path:
    """Return a checkout's interpreter; it ends the program if there is none."""
    python = repo / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{python} is missing; `make setup` in {repo} makes it")
    return python


def _settings(lanes: list[Lane], port: int) -> dict[str, Any]:
    """Return a gateway's settings.

    Whatever fails cools down to the end of its conversation, however long that takes, and no limit
    of time is met on a machine that is slow for a while.
    """
    return {
        "simulated_models": False,
        "accounting": {"initial_grant": "1000000000", "verify_seconds": 0},
        "server": {
            "max_requests_per_address_per_minute": _MANY,
            "max_connections_per_address": _MANY,
            "keep_alive_seconds": _DAY,
            "large_body_wait_seconds": _DAY,
            "min_body_bytes_per_second": 0,
        },
        "upstream": {
            "cool_down_seconds": _DAY,
            "connections_per_host": _MANY,
            **{f"{phase}_seconds": _DAY for phase in ("connect", "pool", "head", "idle", "total")},
        },
        "logging": {"level": "error", "file_bytes": 0},
        "providers": [_provider(lane, name, port) for lane in lanes for name in _PROVIDERS],
        "models": [_model(lane, name) for lane in lanes for name in _MODELS],
    }


def _provider(lane: Lane, name: str, port: int) -> dict[str, Any]:
    here = f"127.0.0.1:{port}"
    at = f"{lane.side}/{lane.number}/{name}/v1"
    proxied = {"proxy": f"http://{here}"} if name in _NAMED_HOSTS else {}
    return {
        "slug": lane.provider(name),
        "kind": "openai_compatible",
        "name": name.title(),
        "base_url": f"http://{_NAMED_HOSTS.get(name, here)}/{at}",
        "api_key": f"key-of-{name}",
        **proxied,
        **_PROVIDERS[name],
    }


def _model(lane: Lane, name: str) -> dict[str, Any]:
    usual: dict[str, Any] = {"context_length": 2_000_000}
    given = {key: value for key, value in _MODELS[name].items() if key != "by"}
    endpoints = [
        {"provider": lane.provider(each), "model": f"{name}-by-{each}", "pricing": price}
        for each, price in zip(_MODELS[name]["by"], (_FULL, _PLAIN, _FULL), strict=False)
    ]
    return {"id": lane.model(name), **usual, **given, "endpoints": endpoints}
