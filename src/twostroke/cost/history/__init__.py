"""Keeps what steps and completions took: records, the ledger, accounts."""
