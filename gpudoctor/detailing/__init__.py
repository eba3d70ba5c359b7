"""Makers of the details of a report."""
