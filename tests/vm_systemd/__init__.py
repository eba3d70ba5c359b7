"""Tests that boot systemd in a virtual machine, where containers keep or lose their devices at a real daemon-reload."""
