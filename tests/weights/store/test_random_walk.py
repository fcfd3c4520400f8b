"""A random walk over the store: downloads, stops at any byte, new commits, removals and gc. Names always lead to whole
files, a removal frees what it reported, and nothing is left that no verb removes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiers import fewer
from tests.weights.fake_hub import FakeHub, Repo, serve
from twostroke.cli.store.gc import PARTIALS
from twostroke.types.errors import ModelError
from twostroke.weights.gguf.file_names import whole_models
from twostroke.weights.hub.hub import resolve_model
from twostroke.weights.store.cached import cached_models, files_meant, removal_of, remove
from twostroke.weights.store.unused import partial_waste, remove_waste

REPOS = ("acme/one", "acme/two")
QUANTS = ("Q4_0", "Q8_0")
FIRST = "a" * 40
STEPS = fewer(160, quick=40)


class Killed(BaseException):
    """Ends a download in the middle, as a signal would."""


def content_of(repo: str, commit: str, quant: str) -> bytes:
    """The content. It is the same for both commits where the quantization is Q8_0, because an update keeps that
    file."""
    mark = f"GGUF {repo} {quant} {'' if quant == 'Q8_0' else commit}".encode()
    return mark * (3000 // len(mark) if quant == "Q4_0" else 5000 // len(mark))


def files_of(repo: str, commit: str) -> dict[str, bytes]:
    return {f"t-{quant}.gguf": content_of(repo, commit, quant) for quant in QUANTS}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve({repo: Repo({FIRST: files_of(repo, FIRST)}, {"main": FIRST}) for repo in REPOS}) as running:
        running.refuse_after_cuts = True
        yield running


class Walk:
    """One cache, and what may be in it."""

    def __init__(self, hub: FakeHub, cache: Path, seed: int) -> None:
        self.hub, self.cache, self.dice = hub, cache, random.Random(seed)
        self.commits = {repo: [FIRST] for repo in REPOS}
        self.done = dict.fromkeys(("pull", "cut", "kill", "update", "rm", "gc"), 0)

    def step(self) -> None:
        verb = self.dice.choice(("pull", "pull", "cut", "kill", "update", "rm", "rm", "gc"))
        getattr(self, verb)(self.dice.choice(REPOS), self.dice.choice(QUANTS))
        self.done[verb] += 1
        self.check()

    def pull(self, repo: str, quant: str) -> None:
        found = resolve_model(f"{repo}:{quant}", cache_dir=self.cache, endpoint=self.hub.url)
        assert found.path.read_bytes() == content_of(repo, self.hub.repos[repo].refs["main"], quant)

    def cut(self, repo: str, quant: str) -> None:
        """Cuts the connection at some byte, for good."""
        self.hub.cut_after_bytes[f"t-{quant}.gguf"] = self.dice.randrange(1, 2000)
        self.hub.cuts_left = 1
        try:
            self.pull(repo, quant)  # it is here already, or the file is small
        except ModelError as error:
            assert error.fix
        self.hub.cut_after_bytes.clear()

    def kill(self, repo: str, quant: str) -> None:
        left = self.dice.randrange(4)

        def progress(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        try:
            resolve_model(f"{repo}:{quant}", cache_dir=self.cache, endpoint=self.hub.url, progress=progress)
        except Killed:
            pass

    def update(self, repo: str, _quant: str) -> None:
        """Makes a new commit, or goes back to an old one."""
        if self.dice.randrange(2):
            commit = f"{len(self.commits[repo]):040x}"
            self.commits[repo].append(commit)
            self.hub.repos[repo].commits[commit] = files_of(repo, commit)
        self.hub.repos[repo].refs["main"] = self.dice.choice(self.commits[repo])

    def rm(self, repo: str, quant: str) -> None:
        names = [name for model in cached_models(self.cache) if model.repo_id == repo for name in model.files]
        wanted = files_meant(names, quant) if self.dice.randrange(2) else None
        removal = removal_of(self.cache, repo, wanted)
        if removal is None or (wanted is not None and not wanted):
            return
        before = self.bytes()
        remove(removal)
        assert before - self.bytes() == removal.num_bytes

    def gc(self, _repo: str, _quant: str) -> None:
        for waste in partial_waste(self.cache, 1e12, 0.0, PARTIALS):
            remove_waste(waste)
        assert partial_waste(self.cache, 1e12, 0.0, PARTIALS) == []

    def bytes(self) -> int:
        """The bytes of all blobs and of their beginnings."""
        return sum(path.stat().st_size for path in self.cache.glob("models--*/blobs/*") if not path.is_symlink())

    def check(self) -> None:
        """Checks that each name leads to a whole file of its commit, and that each blob has a name or is the beginning
        of one."""
        named = set()
        for folder in self.cache.glob("models--*"):
            repo = folder.name.removeprefix("models--").replace("--", "/")
            for path in folder.glob("snapshots/*/*"):
                assert path.read_bytes() == content_of(repo, path.parent.name, path.stem.removeprefix("t-"))
                named.add(os.path.realpath(path))
            for blob in folder.glob("blobs/*"):
                if not blob.name.endswith(PARTIALS):
                    assert os.path.realpath(blob) in named, f"nobody names {blob}"

    def end(self) -> None:
        """Checks that all can be removed."""
        for repo in REPOS:
            removal = removal_of(self.cache, repo)
            if removal is not None:
                remove(removal)
        assert self.bytes() == 0 and cached_models(self.cache) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_nothing_is_left(hub: FakeHub, tmp_path: Path, seed: int) -> None:
    walk = Walk(hub, tmp_path / "hub", seed)
    for _ in range(STEPS // 2):
        walk.step()
    assert min(walk.done.values()) > 0 and whole_models(files_of(REPOS[0], FIRST))
    walk.end()
