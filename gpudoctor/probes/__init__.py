"""Probes: the only code that touches a machine."""
