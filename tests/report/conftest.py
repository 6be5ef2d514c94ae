import pytest

from tests.report import kernels


@pytest.fixture(scope="session")
def reports():
    return kernels.reports()
