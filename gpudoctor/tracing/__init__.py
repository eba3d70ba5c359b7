"""The steps of a trace: pure functions from what was seen of a workload and its node to how each step ended."""
