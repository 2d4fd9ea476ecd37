"""The ledger: what the books say, whether they are right, and what an account did in a period.

It only reads; postings are made by the slice's service and by `settlement`.

    types, differences, statements      decisions
    checks, lines, activity             SQL
    service                             use cases
"""
