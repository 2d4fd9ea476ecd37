"""Attacks on the proxy; importing these modules fills the table."""

from tests.integration.vault.egress.attacks import (
    answers,
    destinations,
    exhaustion,
    hosts,
    requests,
)
from tests.integration.vault.egress.attacks.table import ATTACKS

__all__ = ["ATTACKS", "answers", "destinations", "exhaustion", "hosts", "requests"]
