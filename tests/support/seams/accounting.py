"""What tests use of `tollhouse.accounting`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.accounting",
    {
        "": "budget_rows endpoints leases rights",
        "admission": "accounts rules",
        "admission.controller": "AdmissionController",
        "admission.budgets": "AdmissionContext claim_of",
        "admission.rules": "limits_shown reservation_refusal",
        "admission.types": (
            "AccountFacts AdmissionPreview AdmissionRefusal AdmissionRequest Admitted "
            "CreditLimit FREE_PER_DAY FREE_PER_MINUTE KeyFacts OwnerFacts Rate"
        ),
        "ledger": (
            "Difference LedgerReport LedgerSampler LedgerScope LedgerService MOST_DIFFERENCES "
            "SAMPLED_ACCOUNTS"
        ),
        "limits": (
            "AccountingRules Budget effective_budget key_status KeyStatus resets_at rules_of "
            "window_start"
        ),
        "owner": "end_user Owner OwnerLimit OwnerUse",
        "policy": (
            "balance_change check_credits credit_posting credits_change "
            "first_day_of_windows free_requests is_same_posting key_usage"
        ),
        "pricing": "charge_for cost estimate estimate_many maximum_cost no_charge rates_for",
        "loader": "DatabaseAccountLoader",
        "service": "AccountingService",
        "settlement": "books journal recovery settler",
        "settlement.child": (
            "BookCharges Booked BookFile Books NotBooked Open Release SetAside Unreadable"
        ),
        "settlement.books": "BooksProcess ChargesNotBooked",
        "settlement.journal": (
            "GROWTH_BYTES Journal JournalContents journals_in parse RECORD_BYTES SHRINK_BYTES"
        ),
        "settlement.records": "JournalNotes JournalPart MissingCharges payload_of record_of",
        "settlement.postgresql": "PostgresqlDriver",
        "settlement.recovery": "RecoveredCharges Recovery",
        "settlement.settler": "Flusher Settler",
        "settlement.sqlite": "SqliteDriver",
        "statements": "Activity activity ActivityQuery Statement statement StatementQuery",
        "types": (
            "Attempt attempts_json Attribution BudgetScope Charge Cost CostState "
            "Credits FREE FreeRequests GenerationRecord KeyLimit KeyUsage Posting "
            "PostingKind Price Rates Reservation Reset Right Spend Tier Usage"
        ),
    },
)
