"""Databases, transactions, migrations, blobs and the data folder. Knows tables, knows no business."""
