"""Money: prices, charges, the ledger, and what callers may read of them."""
