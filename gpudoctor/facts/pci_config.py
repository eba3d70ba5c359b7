"""Configuration space: the bytes behind the text that a source gives, and the list of extended capabilities in them."""

import re

HEADER_BYTES = 64
"""What sysfs shows without CAP_SYS_ADMIN: "several chips lock up trying to read undefined config space" (pci_read_config)."""

EXTENDED = 0x100
"""Where extended configuration space begins (PCI Express Base Specification, PCI Express Extended Capabilities)."""

SIZES = (HEADER_BYTES, EXTENDED, 4096)
"""Lengths in bytes that sysfs' `config` can have: without privilege, conventional, extended."""

ABSENT_READ = 0xFFFFFFFF
"""What a read gives that nobody answers (PCI Local Bus Specification, master abort)."""

_ESCAPE = re.compile(rb"\\x([89a-f][0-9a-f])")


def unescaped(text: str) -> bytes:
    """The bytes of a file from its text, in which those that are not UTF-8 stand as `\\x80` to `\\xff`."""
    return _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), text.encode())


def config_bytes(text: str) -> bytes | None:
    """The bytes of a `config` file from its text, in which bytes that are not UTF-8 stand as `\\x80` to `\\xff`; None if not certain.

    Four bytes that spell such an escape themselves look the same, and would shorten the result by three. No mixture of them turns one
    of the possible lengths into another (but for a header of nothing else, which has no vendor), so the length proves each byte.
    """
    content = unescaped(text)
    return content if len(content) in SIZES else None


def word(config: bytes, offset: int) -> int:
    """Two bytes, little-endian."""
    return int.from_bytes(config[offset : offset + 2], "little")


def double_word(config: bytes, offset: int) -> int:
    """Four bytes, little-endian."""
    return int.from_bytes(config[offset : offset + 4], "little")


def extended_capability(config: bytes, identity: int) -> int | None:
    """The offset of an extended capability, None when the list has none: pci_find_next_ext_capability in drivers/pci/pci.c.

    A header holds the id in its low 16 bits, then 4 of version, and in its high 12 the offset of the next (include/uapi/linux/pci_regs.h).
    """
    offset = EXTENDED
    for _ in range((len(config) - EXTENDED) // 8):
        header = double_word(config, offset)
        if header == 0:
            return None
        if header & 0xFFFF == identity:
            return offset
        offset = header >> 20 & 0xFFC
        if offset < EXTENDED:
            return None
    return None
