"""Fixtures: each scenario runs once in a session, however many tests look at it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .cache import default_cache
from .guest_image import GuestParts, guest_parts
from .kernel import Kernel, installed_kernel, missing_parts
from .machine import GuestRun, boot
from .scenarios import boots

Boots = Callable[[str], GuestRun]


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The kernel to boot; what this machine lacks skips the test and is named."""
    lacking = missing_parts()
    found = installed_kernel()
    if lacking or found is None:
        pytest.skip(f"no virtual machine here: needs {'; '.join(lacking)} (tests/vm/install-packages.sh)")
    return found


@pytest.fixture(scope="session")
def parts(kernel: Kernel) -> GuestParts:
    """What all guests share, built or cached."""
    return guest_parts(kernel, default_cache())


@pytest.fixture(scope="session")
def booted(kernel: Kernel, parts: GuestParts, tmp_path_factory: pytest.TempPathFactory) -> Boots:
    """The finished run of a scenario, by its name."""
    finished: dict[str, GuestRun | Exception] = {}

    def boot_once(name: str) -> GuestRun:
        if name not in finished:
            (scenarios,) = (scenarios for scenarios in boots() if name in [scenario.name for scenario in scenarios])
            folder: Path = tmp_path_factory.mktemp(scenarios[0].name)
            try:
                finished.update(boot(kernel, parts, scenarios, folder))
            except Exception as failure:  # kept, so that a machine that does not start fails each test at once
                finished.update(dict.fromkeys((scenario.name for scenario in scenarios), failure))
        run = finished[name]
        if isinstance(run, Exception):
            raise run
        return run

    return boot_once
