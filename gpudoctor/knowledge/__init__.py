"""Reference tables, each with its source and date."""

TABLES_DATE = "2026-11-29"
"""When the newest table was last compared with its source."""
