"""Databases, transactions, migrations and the data folder. Knows tables, knows no business."""
