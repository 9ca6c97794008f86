import pytest
from scripted import Endpoint


@pytest.fixture
def endpoint():
    with Endpoint() as made:
        yield made
