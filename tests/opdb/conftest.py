"""Which operators and dtypes a run takes.

By default a part of the operators, another part in each test, in one dtype: minutes. With --op '.' all operators in
that dtype, with --every all dtypes and nearly all samples (make opdb).
"""

import re
import zlib

import pytest
import torch

PART = 4  # one operator of so many in each test


def pytest_addoption(parser):
    parser.addoption("--every", action="store_true", help="tests/opdb: every dtype and nearly every sample")
    parser.addoption(
        "--op", default="", help="tests/opdb: operators whose name matches this regular expression"
    )


def option(config, name, default):
    # The options exist only when pytest is started with this directory.
    return config.getoption(name, default=default)


@pytest.fixture(scope="session")
def every(pytestconfig):
    return option(pytestconfig, "--every", False)


@pytest.fixture(autouse=True)
def one_thread():
    """Small inputs: threads cost more than they bring, and there are as many workers as cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_generate_tests(metafunc):
    wanted = getattr(metafunc.function, "operators", None)
    if wanted is None:
        return
    import database  # takes seconds to import: not for runs without a test of it
    import known

    when, order, ops, once = wanted
    test = metafunc.function.__name__
    every, name = option(metafunc.config, "--every", False), option(metafunc.config, "--op", "")
    cases = []
    for op in ops:
        if (when and not when(op)) or not re.search(name, op.full_name):
            continue
        if not every and not name and zlib.crc32(f"{test} {op.full_name}".encode()) % PART:
            continue
        supported = database.dtypes_of(op, gradient=test.startswith("test_grad"))
        dtypes = [d for d in order if d in supported]
        if every and not once:
            dtypes = dtypes if order[0] is torch.float64 else sorted(supported, key=str)
        for dtype in dtypes if every and not once else dtypes[:1]:
            label = f"{op.full_name}-{str(dtype).removeprefix('torch.')}"
            # A few samples may not show what differs.
            marks = known.marks(test, op.full_name, dtype, strict=every)
            cases.append(pytest.param(op, dtype, id=label, marks=marks))
    metafunc.parametrize(("op", "dtype"), cases)
