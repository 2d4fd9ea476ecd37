"""Which tests have to pass every time: those of money, of secrets and of kills.

What they look for may show once in fifty runs, so `gate` does not repeat one that failed. A test
that is in none of these places is marked by itself: `@pytest.mark.exact`.
"""

from typing import Final

EXACT: Final = (
    # Money
    "tests/acceptance/cli/test_resource_commands.py",
    "tests/acceptance/test_batch_faults.py",
    "tests/acceptance/test_batch_runs.py",
    "tests/acceptance/test_costs.py",
    "tests/acceptance/test_intern_chat_spend.py",
    "tests/acceptance/test_intern_payers.py",
    "tests/acceptance/test_journal.py",
    "tests/acceptance/test_keys_in_use.py",
    "tests/acceptance/test_limits.py",
    "tests/acceptance/test_own_keys.py",
    "tests/component/accounting/",
    "tests/component/api/test_credits",
    "tests/component/api/test_ledger.py",
    "tests/simulation/",
    "tests/unit/accounting/",
    "tests/unit/kernel/test_money.py",
    # Secrets
    "tests/acceptance/cli/test_vault",
    "tests/acceptance/test_egress",
    "tests/acceptance/test_intern_chat_secret.py",
    "tests/acceptance/test_intern_life.py",
    "tests/acceptance/test_vault",
    "tests/component/vault/egress/test_attacks.py",
    "tests/component/vault/egress/test_egress_leaks.py",
    "tests/component/vault/egress/test_injection.py",
    "tests/component/vault/test_",
    "tests/unit/kernel/test_redaction.py",
    "tests/unit/kernel/test_secret.py",
    "tests/unit/settings/test_secrets.py",
    "tests/unit/vault/",
    # Kills
    "tests/component/batches/test_ingest_kills.py",
    "tests/component/sandbox/sessions/test_kills.py",
    "tests/component/storage/test_blob_kills.py",
    "tests/faults/",
)
"""How the paths of their files begin."""


def is_exact(name: str) -> bool:
    """Tell whether a test's place says so."""
    return name.startswith(EXACT)
