"""Unattended passes with a memory: what is new, what lasts, what heals, how fast counters grow, and what happened boots ago."""
