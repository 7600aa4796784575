"""The public contract suite on our three backends."""

from __future__ import annotations

import pytest

from turnkeeper.testing import BackendContract


@pytest.mark.claim("T-020")
class TestContract(BackendContract):
    """Takes `connect` from tests/conftest.py, which takes `backend`."""
