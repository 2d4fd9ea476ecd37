"""Every setting outside of lists can be set from the environment under its name."""

from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tollhouse.kernel.secret import Secret
from tollhouse.settings.environment import OTHER_NAMES, environment_names, setting_names
from tollhouse.settings.loader import load

NOWHERE = Path("/nonexistent/tollhouse")

_words = st.text("abcxyz", min_size=1, max_size=8)
_names = _words.map(lambda word: f"{word}.example")
_networks = st.ip_addresses().map(str)
_seconds = st.floats(min_value=0.001, max_value=86_400)
_pauses = st.floats(min_value=0, max_value=86_400)
_credits = st.decimals(0, 10**9, places=9)
_bytes = st.integers(min_value=1024, max_value=2**40)
_counts = st.integers(min_value=1, max_value=2**40)


def _listed(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(texts, min_size=1, max_size=4).map(tuple)


STRATEGIES: dict[str, st.SearchStrategy[object]] = {
    "TOLLHOUSE_SERVER__HOST": _words | _networks,
    "TOLLHOUSE_SERVER__PORT": st.integers(min_value=0, max_value=65535),
    "TOLLHOUSE_SERVER__REGIONAL_HOSTNAMES": _listed(_words.map(lambda word: f"{word}.*")),
    "TOLLHOUSE_SERVER__TRUSTED_PROXIES": _listed(_networks),
    "TOLLHOUSE_SERVER__CORS_ORIGINS": _listed(_words.map(lambda word: f"https://{word}")),
    "TOLLHOUSE_SERVER__MAX_CONNECTIONS_PER_ADDRESS": _counts,
    "TOLLHOUSE_SERVER__MAX_REQUESTS_PER_ADDRESS_PER_MINUTE": _counts,
    "TOLLHOUSE_SERVER__BODY_LIMIT_BYTES": _bytes,
    "TOLLHOUSE_SERVER__CONTROL_BODY_LIMIT_BYTES": _bytes,
    "TOLLHOUSE_SERVER__LARGE_BODY_WORKERS": st.integers(min_value=1, max_value=64),
    "TOLLHOUSE_SERVER__LARGE_BODY_MEMORY_BYTES": _bytes,
    "TOLLHOUSE_SERVER__LARGE_BODY_WAIT_SECONDS": _seconds,
    "TOLLHOUSE_SERVER__MIN_BODY_BYTES_PER_SECOND": _counts,
    "TOLLHOUSE_SERVER__SHUTDOWN_SECONDS": _seconds,
    "TOLLHOUSE_SERVER__KEEP_ALIVE_SECONDS": _seconds,
    "TOLLHOUSE_SERVER__DISCOVER_LOCAL_MODELS": st.booleans(),
    "TOLLHOUSE_SERVER__CORE_DUMPS": st.booleans(),
    "TOLLHOUSE_SIMULATED_MODELS": st.booleans(),
    "TOLLHOUSE_ACCOUNTING__INITIAL_GRANT": _credits,
    "TOLLHOUSE_ACCOUNTING__JOURNAL_SYNC": st.sampled_from(["group", "always"]),
    "TOLLHOUSE_ACCOUNTING__VERIFY_SECONDS": _pauses,
    "TOLLHOUSE_LIMITS__IN_FLIGHT_FRACTION": st.decimals(0, 1, places=9),
    "TOLLHOUSE_LIMITS__IN_FLIGHT_CEILING": _credits,
    "TOLLHOUSE_LIMITS__IN_FLIGHT_REQUEST_CAP": _credits,
    "TOLLHOUSE_LIMITS__IN_FLIGHT_THRESHOLD": _credits,
    "TOLLHOUSE_LIMITS__IN_FLIGHT_NEW_ACCOUNTS": st.booleans(),
    "TOLLHOUSE_LIMITS__SETTLEMENT_SECONDS": _pauses,
    "TOLLHOUSE_LIMITS__ADMISSION_WAIT_SECONDS": _pauses,
    "TOLLHOUSE_LIMITS__FREE_REQUESTS_PER_MINUTE": _counts,
    "TOLLHOUSE_LIMITS__FREE_REQUESTS_PER_DAY": _counts,
    "TOLLHOUSE_BYOK__FEE_PERCENT": st.decimals(0, 100, places=9),
    "TOLLHOUSE_BYOK__FREE_REQUESTS_A_MONTH": _counts,
    "TOLLHOUSE_LIMITS__FREE_REQUESTS_PER_DAY_RAISED": _counts,
    "TOLLHOUSE_LIMITS__FREE_RAISED_FROM": _credits,
    "TOLLHOUSE_LIMITS__FREE_RAISED_TOLERANCE": _credits,
    "TOLLHOUSE_LIMITS__LIMIT_SOURCE_PREFIX": _words,
    "TOLLHOUSE_BATCHES__BODY_LIMIT_BYTES": _bytes,
    "TOLLHOUSE_BATCHES__ITEM_LIMIT_BYTES": _bytes,
    "TOLLHOUSE_BATCHES__MAX_ITEMS": _counts,
    "TOLLHOUSE_BATCHES__WINDOW_HOURS": st.integers(min_value=1, max_value=8_760),
    "TOLLHOUSE_BATCHES__RETENTION_DAYS": st.integers(min_value=1, max_value=3_650),
    "TOLLHOUSE_BATCHES__SUBMITS_PER_HOUR": _counts,
    "TOLLHOUSE_BATCHES__MAX_OPEN": _counts,
    "TOLLHOUSE_BATCHES__ASSUMED_OUTPUT_TOKENS": _counts,
    "TOLLHOUSE_BATCHES__REQUESTS_PER_PROVIDER": _counts,
    "TOLLHOUSE_BATCHES__CHUNKS_AT_ONCE": _counts,
    "TOLLHOUSE_BATCHES__PART_SECONDS": _seconds,
    "TOLLHOUSE_BATCHES__LEASE_SECONDS": _seconds,
    "TOLLHOUSE_BATCHES__ROUND_SECONDS": _seconds,
    "TOLLHOUSE_BLOBS__BUCKET": _words,
    "TOLLHOUSE_BLOBS__PREFIX": _words,
    "TOLLHOUSE_BLOBS__ENDPOINT": _words.map(lambda word: f"https://{word}"),
    "TOLLHOUSE_BLOBS__REGION": _words,
    "TOLLHOUSE_BLOBS__ACCESS_KEY_ID": _words,
    "TOLLHOUSE_BLOBS__SECRET_ACCESS_KEY": _words,
    "TOLLHOUSE_VAULT__KEYS": st.sampled_from(["local", "settings", "command"]),
    "TOLLHOUSE_VAULT__KEY": _words,
    "TOLLHOUSE_VAULT__PREVIOUS_KEYS": _listed(_words),
    "TOLLHOUSE_VAULT__COMMAND": _listed(_words),
    "TOLLHOUSE_VAULT__COMMAND_SECONDS": _seconds,
    "TOLLHOUSE_VAULT__RELEASE_UNBOUND": st.booleans(),
    "TOLLHOUSE_OUTBOUND__ALLOW_NETWORKS": _listed(_networks),
    "TOLLHOUSE_OUTBOUND__EXTRA_CA_FILE": _words,
    "TOLLHOUSE_OUTBOUND__ADDRESSES": _listed(_names.map(lambda name: f"{name}=10.0.0.5")),
    "TOLLHOUSE_EGRESS__USER": _words,
    "TOLLHOUSE_EGRESS__TUNNEL_HOSTS": _listed(_names),
    "TOLLHOUSE_EGRESS__ALLOW_PORTS": _listed(_names.map(lambda name: f"{name}:8443")),
    "TOLLHOUSE_EGRESS__MAX_CONNECTIONS": _counts,
    "TOLLHOUSE_EGRESS__IDLE_SECONDS": _seconds,
    "TOLLHOUSE_EGRESS__TOTAL_SECONDS": _seconds,
    "TOLLHOUSE_EGRESS__BYTES_PER_MINUTE": st.integers(min_value=65_536, max_value=2**40),
    "TOLLHOUSE_INTERNS__RUNTIME": st.sampled_from(["bubblewrap", "process"]),
    "TOLLHOUSE_INTERNS__PUBLIC_URL": _words.map(lambda word: f"https://{{intern}}.{word}"),
    "TOLLHOUSE_INTERNS__MAX_PER_CREATOR": _counts,
    "TOLLHOUSE_INTERNS__CHATS_PER_MINUTE": _counts,
    "TOLLHOUSE_INTERNS__INVOKE_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__SLACK_URL": _words.map(lambda word: f"https://{word}/api"),
    "TOLLHOUSE_INTERNS__FIRST_USER": st.integers(min_value=1_000, max_value=2_147_000_000),
    "TOLLHOUSE_INTERNS__MEMORY_BYTES": st.integers(min_value=2**27, max_value=2**40),
    "TOLLHOUSE_INTERNS__PROCESSES": st.integers(min_value=32, max_value=100_000),
    "TOLLHOUSE_INTERNS__CPU_PERCENT": st.integers(min_value=1, max_value=100_000),
    "TOLLHOUSE_INTERNS__DISK_BYTES": st.integers(min_value=2**20, max_value=2**50),
    "TOLLHOUSE_INTERNS__FILES": st.integers(min_value=1_000, max_value=2_000_000),
    "TOLLHOUSE_INTERNS__OPEN_FILES": st.integers(min_value=64, max_value=1_000_000),
    "TOLLHOUSE_INTERNS__BOOT_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__BOOTS_AT_ONCE": _counts,
    "TOLLHOUSE_INTERNS__AWAY_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__SUSPEND_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__DESTROY_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__STOP_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__LEASE_SECONDS": _seconds,
    "TOLLHOUSE_INTERNS__ROUND_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__CONNECT_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__POOL_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__HEAD_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__IDLE_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__TOTAL_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__COOL_DOWN_SECONDS": _seconds,
    "TOLLHOUSE_UPSTREAM__CONNECTIONS_PER_HOST": _counts,
    "TOLLHOUSE_UPSTREAM__MAX_RESPONSE_BYTES": _bytes,
    "TOLLHOUSE_SERVER__INFERENCE_DRIVER": st.sampled_from(["callbacks", "tasks"]),
    "TOLLHOUSE_LOGGING__LEVEL": st.sampled_from(["debug", "info", "warning", "error"]),
    "TOLLHOUSE_LOGGING__FORMAT": st.sampled_from(["json", "console", "auto"]),
    "TOLLHOUSE_LOGGING__FILE_BYTES": _bytes,
    "TOLLHOUSE_DATABASE_URL": _words.map(lambda word: f"postgresql://{word}:pw@h/db"),
    "TOLLHOUSE_DATA_DIR": _words.map(lambda word: NOWHERE / word),
}
AS_JSON = {"TOLLHOUSE_GUARDRAILS", "TOLLHOUSE_PROVIDERS", "TOLLHOUSE_MODELS"}


def test_the_property_below_tries_every_name() -> None:
    assert set(STRATEGIES) | AS_JSON == set(setting_names())


def test_every_name_is_described() -> None:
    described = environment_names()
    assert {name.name for name in described} == {
        *setting_names(),
        *(other.name for other in OTHER_NAMES),
    }
    assert all(name.description and name.type and name.default for name in described)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@hypothesis_settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_setting_can_be_set_under_its_name(name: str, data: st.DataObject) -> None:
    value = data.draw(STRATEGIES[name])
    env = {"TOLLHOUSE_DATA_DIR": str(NOWHERE), name: as_text(value)}
    setting: object = load(config=None, env=env, overrides={})
    for step in setting_names()[name]:
        setting = getattr(setting, str(step))
    assert as_plain(setting) == as_plain(value, networks="PROXIES" in name or "NETWORKS" in name)


def as_text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def as_plain(value: object, *, networks: bool = False) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Decimal):
        return value.copy_abs()
    if isinstance(value, tuple):
        return tuple(ip_network(part) if networks else as_plain(part) for part in value)
    return value
