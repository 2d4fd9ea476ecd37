"""Ask some URLs with `requests`, and with `httpx` at once and asynchronously; print the answers."""

import asyncio
import json
import sys

import httpx
import requests


async def _async(url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        found = await client.get(url, headers=headers)
        return found.status_code, found.text


def main() -> None:
    urls, headers = sys.argv[2:], json.loads(sys.argv[1])
    answers = {}
    for url in urls:
        with_requests = requests.get(url, headers=headers, timeout=20)
        with_httpx = httpx.get(url, headers=headers)
        answers[url] = [
            [with_requests.status_code, with_requests.text],
            [with_httpx.status_code, with_httpx.text],
            list(asyncio.run(_async(url, headers))),
        ]
    print(json.dumps(answers))


main()
