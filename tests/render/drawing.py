"""Render workers that the tests of a file share: one takes two CPU seconds to start, a small deck a quarter of one."""

import asyncio

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.render import pool, site

_loop = asyncio.new_event_loop()
_kept = {}


@pytest.fixture(scope="module", autouse=True)
def shared_workers():
    """Ends the workers when the file is done; a file imports it to use `shared`."""
    yield
    while _kept:
        _loop.run_until_complete(_kept.popitem()[1].close())


def shared(work, protocol="offline", formats=None, **settings):
    """What `await work(pool)` returns; the pool (a site.Builder where formats are given) is kept for the file.

    settings: of the protocol's `render` table, in place of its own.
    """
    key = (protocol, formats, tuple(sorted(settings.items())))
    if key not in _kept:
        chosen = Protocol.load(protocol)
        chosen.render.update(settings)
        _kept[key] = site.Builder(chosen, formats) if formats else pool.Pool(chosen)
    return _loop.run_until_complete(work(_kept[key]))
