"""The parts of `gpudoctor diff`: each compares one thing of two sides and claims nothing that a side does not hold."""
