"""Fixtures: each machine is booted once in a session, however many tests look at it."""

import os
from collections.abc import Callable

import pytest

from tests.vm.cache import default_cache
from tests.vm.kernel import installed_kernel, missing_parts

from .image import image, missing_programs
from .machine import TrialRun, boot
from .trials import MACHINES

Booted = Callable[[tuple[str, str]], TrialRun]


@pytest.fixture(scope="session")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Booted:
    """The finished run of a machine; what this machine lacks skips the test and is named."""
    lacking = [*missing_parts(), *missing_programs(), *(["root, to build the disk"] if os.geteuid() != 0 else [])]
    kernel = installed_kernel()
    if lacking or kernel is None:
        pytest.skip(f"no virtual machine here: needs {'; '.join(lacking)} (tests/vm_systemd/install-packages.sh)")
    finished: dict[tuple[str, str], TrialRun | Exception] = {}

    def boot_once(machine: tuple[str, str]) -> TrialRun:
        if machine not in finished:
            suite, hierarchy = machine
            folder = tmp_path_factory.mktemp(f"{suite}-{hierarchy}", numbered=False)
            try:
                finished[machine] = boot(kernel, image(kernel, default_cache(), suite), suite, hierarchy, folder)
            except Exception as failure:  # kept, so that a machine that does not start fails each test at once
                finished[machine] = failure
        run = finished[machine]
        if isinstance(run, Exception):
            raise run
        return run

    return boot_once


@pytest.fixture(params=MACHINES, ids=["-".join(machine) for machine in MACHINES])
def run(booted: Booted, request: pytest.FixtureRequest) -> TrialRun:
    """The finished run of each machine."""
    suite, hierarchy = request.param
    return booted((suite, hierarchy))
