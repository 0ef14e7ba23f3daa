"""The drivers: they turn the machines' effects into actions. Wired together in ``app``."""
