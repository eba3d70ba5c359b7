"""Facts: typed, frozen records and the pure parsers that make them from raw answers."""
