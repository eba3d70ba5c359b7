"""Stand-ins for the parts of a GPU node that a test machine lacks: NVML, and a kernel that does not answer."""
