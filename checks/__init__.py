"""The checks, one module per link of the chain."""
