"""What tests use of `tollhouse.accounting`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.accounting",
    {
        "": "budget_rows endpoints leases rights",
        "admission": "accounts rules",
        "admission.controller": "AdmissionController",
        "admission.rules": "AdmissionContext drawn_budgets reservation_limits reservation_refusal",
        "admission.types": (
            "AccountFacts AdmissionPreview AdmissionRefusal AdmissionRequest Admitted "
            "FREE_PER_DAY FREE_PER_MINUTE KeyFacts label_of LABELS LimitLabel OwnerFacts Rate"
        ),
        "ledger.service": "LedgerSampler LedgerService MOST_DIFFERENCES SAMPLED_ACCOUNTS",
        "ledger.types": (
            "Activity ActivityQuery Difference LedgerReport LedgerScope Statement StatementQuery"
        ),
        "limits": "AccountingRules effective_budget key_status resets_at rules_of window_start",
        "owner": "end_user Owner OwnerLimit OwnerUse",
        "policy": (
            "balance_change check_credits credit_posting credits_change "
            "first_day_of_windows free_requests is_same_posting key_usage"
        ),
        "pricing": "charge_for cost estimate estimate_many maximum_cost no_charge rates_for",
        "service": "AccountingService DatabaseAccountLoader",
        "settlement": "books journal recovery settler",
        "settlement.child": (
            "BookCharges Booked BookFile Books NotBooked Open Release SetAside Unreadable"
        ),
        "settlement.books": "BooksProcess ChargesNotBooked",
        "settlement.journal": (
            "GROWTH_BYTES Journal JournalContents JournalPart journals_in parse RECORD_BYTES "
            "SHRINK_BYTES"
        ),
        "settlement.records": "JournalNotes MissingCharges payload_of record_of",
        "settlement.postgresql": "PostgresqlDriver",
        "settlement.recovery": "RecoveredCharges Recovery",
        "settlement.settler": "Flusher Settler",
        "settlement.sqlite": "SqliteDriver",
        "types": (
            "Attempt attempts_json Attribution Budget BudgetScope Charge Cost CostState "
            "Credits FREE FreeRequests GenerationRecord KeyLimit KeyStatus KeyUsage Posting "
            "PostingKind Price Rates Reset Right Spend Tier Usage"
        ),
    },
)
