"""Customers' own keys of providers: kept sealed, asked before the gateway's own."""
