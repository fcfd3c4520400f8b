"""Builds the disk cache, which is a source of prefix pages."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from twostroke.assembly.arithmetic import arithmetic_here
from twostroke.assembly.images.sight_files import SightFiles
from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu.library import library_path
from twostroke.cost.disk_price import DiskPrice
from twostroke.cost.shape import StepCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import hash_of
from twostroke.engine.disk.contract import DiskSides
from twostroke.engine.disk.disk_book import DiskBook
from twostroke.engine.disk.disk_pages import DiskPages
from twostroke.engine.disk.files import KV_FOLDER, DiskFiles
from twostroke.engine.disk.parts import STATES
from twostroke.engine.disk.store import DiskStore
from twostroke.engine.disk.workers import DiskReader, DiskWriter
from twostroke.engine.executor import Executor
from twostroke.ops.program.model import Model
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.pool_pages import PoolPages
from twostroke.types.cache_pools import CachePools
from twostroke.types.reading.user_path import user_path
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.packed.fingerprint import content_of_folder
from twostroke.weights.packed.polite import give_way

__all__ = ["DiskBook", "DiskFacts", "build_disk"]


class DiskFacts(Struct, frozen=True):
    """What the disk cache of pages must know: the facts that decide the bits of K and V, and the cost of computing
    them.

    folder: the folder of the model. trusted: a function that waits up to this many seconds until the weights are
    checked, and returns whether they are undamaged. sight: the files of the image encoder.
    """

    folder: Path
    spec: Model
    resolved: Resolved
    pools: CachePools
    cost: StepCost
    trusted: Callable[[float], bool]
    sight: SightFiles | None


def build_disk(
    facts: DiskFacts,
    cache: CacheManager,
    memory: StepMemory,
    executor: Executor,
    report: Callable[[str], None],
    closing: ExitStack,
) -> DiskPages:
    """Builds the disk cache of pages. When `closing` closes it, pages that wait to be written are written first. The
    objects that the writing needs are closed after that."""
    resolved, pages = facts.resolved, PoolPages(memory)
    files = DiskFiles(user_path(resolved.disk.cache) / KV_FOLDER)
    store = DiskStore(files, _identity(facts, pages, executor), resolved.disk.kv_disk, report)
    store.open()
    price = DiskPrice(facts.cost, resolved.steps.max_step_tokens)
    sides = DiskSides(store, DiskReader(store), DiskWriter(store, give_way))
    disk = DiskPages(cache, pages, sides, price, time.perf_counter, facts.trusted)
    closing.callback(disk.close)
    return disk


def _identity(facts: DiskFacts, pages: PoolPages, executor: Executor) -> bytes:
    """Returns everything that the bits of a page depend on. Engines that differ in any part of it have pages of their
    own."""
    resolved, spec, pools = facts.resolved, facts.spec, facts.pools
    content = content_of_folder(facts.folder)
    arithmetic = arithmetic_here(executor, spec, resolved, pools, resolved.cpu.cpu_level)
    windows = [pool.window for pool in pools.pages]
    sizes = [pages.part_bytes(group) for group in range(len(windows))]
    states = pages.part_bytes(STATES) if pools.state_slots else 0
    kernels = hash_of(library_path(resolved.cpu.cpu_level).read_bytes())
    words = (kernels, content, resolved.cpu.cpu_level, arithmetic, PAGE_TOKENS, windows, sizes, states)
    return hashlib.blake2b(repr((words, _encoder(facts.sight))).encode(), digest_size=16).digest()


def _encoder(files: SightFiles | None) -> list[tuple[str, int, int, bytes]]:
    """Returns the identity of the image encoder's files, where the encoder lies in files of its own; else an empty
    list."""
    if files is None or not files.apart:
        return []
    with files.open() as checkpoint:
        found = [(name, os.stat(shard.path), shard.header) for name, shard in sorted(checkpoint.shards.items())]
    return [(name, status.st_size, status.st_mtime_ns, hash_of(header)) for name, status, header in found]
