"""A real kernel in an emulated machine, with stand-ins for the GPUs, runs the installed gpudoctor."""
