"""The baseline, "bare" in the figures: the gateway's HTTP client alone sends the same items.

python -m bench.batches.baseline --port N --items N [--concurrency 64]

parent                      baseline
                            makes the bodies
         <── {"ready": true}
"go"     ──>                asks, and reads each reply to its end
         <── {"cpu_seconds": ..., "seconds": ...}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final

import uvloop

from bench.batches.bodies import ITEMS_PATH, provider_body
from tollhouse.inference.upstream.client import HttpUpstream
from tollhouse.inference.upstream.port import UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

CONCURRENCY: Final = 64
"""As many as the gateway has under way at one provider, by default."""
_HEADERS: Final = (
    ("user-agent", "tollhouse-bench"),
    ("content-type", "application/json"),
    ("authorization", "Bearer none"),
    ("accept", "application/json"),
)
_LARGEST: Final = 1_000_000
_OK: Final = 200


async def _ask(upstream: HttpUpstream, url: str, bodies: Iterator[bytes]) -> None:
    for body in bodies:
        response = await upstream.send(UpstreamRequest("POST", url, _HEADERS, body))
        try:
            await response.read(_LARGEST)
        finally:
            await response.close()
        if response.status != _OK:
            raise SystemExit(f"the upstream answered {response.status}")


async def _run(options: argparse.Namespace) -> None:
    bodies = [provider_body(number) for number in range(options.items)]
    url = f"http://127.0.0.1:{options.port}{ITEMS_PATH}"
    upstream = HttpUpstream()
    print(json.dumps({"ready": True}), flush=True)
    # Nothing else runs on this loop now; an empty line is a parent that is gone.
    if not sys.stdin.readline():
        return
    began, used = perf_counter(), process_time()
    left = iter(bodies)
    await asyncio.gather(*(_ask(upstream, url, left) for _ in range(options.concurrency)))
    said = {"cpu_seconds": process_time() - used, "seconds": perf_counter() - began}
    await upstream.close()
    print(json.dumps(said), flush=True)


def main() -> None:
    """Run the loop that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m bench.batches.baseline")
    parser.add_argument("--port", type=int, required=True, help="the upstream's")
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


if __name__ == "__main__":
    main()
