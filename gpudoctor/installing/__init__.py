"""Files that `gpudoctor install` prints for a node; it changes nothing."""
