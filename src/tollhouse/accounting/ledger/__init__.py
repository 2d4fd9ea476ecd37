"""The ledger: what the books say, whether they are right, and statements. It only reads."""
