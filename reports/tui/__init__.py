"""The interactive report."""
