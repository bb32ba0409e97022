import pytest

from tests.hosts.checkpoints import memory_url


@pytest.fixture(params=["folder", "memory"])
def base(request, tmp_path):
    """Where stores lie: a folder of this machine, or a URL."""
    return str(tmp_path / "stores") if request.param == "folder" else memory_url()
