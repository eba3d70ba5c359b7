"""The tests of gpudoctor."""
