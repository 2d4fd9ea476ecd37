"""What a program finds in its environment so that it uses the proxy, and trusts it. Pure.

Every client has names of its own for the same two things. One that heeds none of them gets no
connection in a sandbox; elsewhere it goes around the proxy, without secrets.

Source: the manuals of curl (ENVIRONMENT), git (http.sslCAInfo), Node (NODE_EXTRA_CA_CERTS,
NODE_USE_ENV_PROXY), Python's `requests` and `ssl`, pip, the AWS command line, Deno and Cargo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.vault.types import GATEWAY_HOST

if TYPE_CHECKING:
    from pathlib import PurePath

_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_BUNDLE: Final = (
    "SSL_CERT_FILE",  # OpenSSL: Python's ssl, httpx, Go, Ruby
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
)


def environment(proxy: str, folder: PurePath, node_options: str = "") -> dict[str, str]:
    """Return the variables of a program behind the proxy.

    Args:
        proxy: The proxy's address, `http://...`, with its password where it has one.
        folder: A session's, as the program sees it.
        node_options: What Node is told already.
    """
    found = dict.fromkeys((*_PROXY, *(name.lower() for name in _PROXY)), proxy)
    found |= {"NO_PROXY": "", "no_proxy": ""}
    found |= dict.fromkeys(_BUNDLE, str(folder / "bundle.pem"))
    preload = f'--require "{_quoted(folder / "node.cjs")}"'
    return found | {
        "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem"),
        "NODE_USE_ENV_PROXY": "1",
        "NODE_OPTIONS": f"{node_options} {preload}".strip(),
    }


def gateway_environment() -> dict[str, str]:
    """Return what leads clients of OpenAI's and Anthropic's to the gateway, without a key."""
    address = f"http://{GATEWAY_HOST}"
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "put-in-by-the-proxy",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "put-in-by-the-proxy",
    }


def _quoted(path: PurePath) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
