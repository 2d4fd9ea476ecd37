"""Databases, transactions, migrations, blobs, the data folder. Knows tables, knows no business."""
