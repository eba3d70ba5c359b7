"""gpudoctor: which link of a node's GPU chain is broken, how do we know, and what is the next safe step."""

__version__ = "0.1.0"
