"""Files that are too large for rows: written once, read often, deleted by whole folders.

    port.py     what a store of blobs promises, its errors, the rule for keys
    local.py    a folder on this machine, for one machine
    s3.py       an S3-compatible store, for many

Nobody imports `s3` but who builds one: its library is 15 MB that a single machine never needs.
"""
