"""The first run of an agent, and what the sandbox holds before it, with the agent, and after it.

    client ──> server ──> daemon ──(starts)──> agent ──> egress proxy ──> server (the model)

Everything is real; the model is the simulated one, which takes no time of its own.
"""

from __future__ import annotations

from http.client import HTTPConnection
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench import cpu
from bench.interns.figures import FirstRun
from bench.processes import BenchError

if TYPE_CHECKING:
    from bench.gateway import Gateway
    from bench.interns.figures import InternDose
    from bench.interns.watch import Watch

_PROMPT: Final = "say: Hello."
_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 1.0
_OK: Final = 200
_DATA: Final = b"data: {"
_chunk = msgspec.json.Decoder(dict[str, Any])


def measure(gateway: Gateway, intern: str, watch: Watch, dose: InternDose) -> FirstRun:
    """Measure the first two runs of an intern that has just been provisioned, the only one.

    Raises:
        BenchError: Something was answered wrongly.
    """
    sleep(dose.settle_seconds)
    before = watch.memory(1)
    [sandbox] = watch.sandboxes()
    earlier = cpu.read(sandbox.outer)
    first = _text_seconds(gateway, intern)
    spent = cpu.cpu_time(earlier, cpu.read(sandbox.outer)).seconds
    later = _text_seconds(gateway, intern)
    sleep(dose.settle_seconds)
    return FirstRun(first, spent, later, before.sandbox, watch.memory(1).sandbox)


def ended(watch: Watch, seconds: float) -> float:
    """Wait until the agent of the only intern has ended; return the bytes of its sandbox then.

    Raises:
        BenchError: It has not, in so many seconds.
    """
    deadline = monotonic() + seconds
    with_agent = _processes(watch)
    while _processes(watch) == with_agent:
        if monotonic() > deadline:
            raise BenchError(f"an idle agent has not ended in {seconds:.0f} s")
        sleep(_LOOK_SECONDS)
    return watch.memory(1).sandbox


def _processes(watch: Watch) -> int:
    return sum(len(sandbox.pids) for sandbox in watch.sandboxes())


def _text_seconds(gateway: Gateway, intern: str) -> float:
    """Have an intern say something in a new session; return how long its first text took.

    Raises:
        BenchError: It says nothing, or the run fails.
    """
    body = {"stream": True, "messages": [{"role": "user", "content": _PROMPT}]}
    headers = {"Authorization": f"Bearer {gateway.keys.api_key}"}
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=_SECONDS)
    try:
        began = perf_counter()
        path = f"/v1/interns/{intern}/chat/completions"
        connection.request("POST", path, msgspec.json.encode(body), headers)
        reply = connection.getresponse()
        if reply.status != _OK:
            raise BenchError(f"a chat was answered with {reply.status}: {reply.read()[:300]!r}")
        seconds, finish = None, None
        for line in reply:
            if not line.startswith(_DATA):
                continue
            for choice in _chunk.decode(line.removeprefix(b"data: "))["choices"]:
                if seconds is None and choice["delta"].get("content"):
                    seconds = perf_counter() - began
                finish = choice["finish_reason"]
    finally:
        connection.close()
    if seconds is None or finish != "stop":
        raise BenchError(f"a run said nothing, or failed: it ended with {finish}")
    return seconds
