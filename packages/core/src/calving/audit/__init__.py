"""Judges tables: metadata, manifests, files and ledgers, read from storage as the specification defines them.

Shares no code with what writes, commits, or reads ledgers, so that a fault there is no fault here as well.
"""
