"""Sends K and V of a prompt from the replica that computed them to the replica that decodes.

Pages that arrive are put into the receiver's prefix tree, where the production scheduler finds them like any prefix.
Only those full pages are sent that the receiver does not have. The receiver computes the few positions after the last
full page again.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.engine.cache.manager import CacheManager
from twostroke.lab.sim.fleet.routing import Member
from twostroke.types.request import Request


@dataclass(frozen=True, slots=True)
class Link:
    """The network connection that each replica has. It sends and receives at the same rate, and carries one transfer in
    each direction at a time. A transfer uses the sender's and the receiver's connection at the same time."""

    bytes_per_s: float
    latency_s: float = 20e-6


@dataclass(slots=True)
class Traffic:
    """What was sent over all links. wait_s: seconds of waiting for a busy link. on_the_way_s: seconds of the transfers
    themselves.
    """

    transfers: int = 0
    bytes: int = 0
    wait_s: float = 0.0
    on_the_way_s: float = 0.0


def send(sender: Member, receiver: Member, num_bytes: int, at_s: float, link: Link, traffic: Traffic) -> float:
    """Sends bytes as soon as the sender's way out and the receiver's way in are free, at at_s or later. Returns the
    time at which the last byte has arrived."""
    begin_s = max(at_s, sender.out_free_s, receiver.in_free_s)
    free_s = begin_s + num_bytes / link.bytes_per_s
    sender.out_free_s = receiver.in_free_s = free_s
    traffic.transfers += 1
    traffic.bytes += num_bytes
    traffic.wait_s += begin_s - at_s
    traffic.on_the_way_s += free_s - begin_s + link.latency_s
    return free_s + link.latency_s


def missing_tokens(cache: CacheManager, request: Request) -> int:
    """Returns how many tokens of the prompt's full pages the receiver does not have. cache: the receiver's cache."""
    tokens = request.prompt_token_ids
    full = (len(tokens) - 1) // cache.page_tokens
    return max(0, full - len(cache.match(request.cache_salt, tokens))) * cache.page_tokens


def adopt(cache: CacheManager, request: Request) -> bool:
    """Puts the prompt's full pages into the prefix tree. Returns False, with nothing changed, where there is no room.
    """
    tokens, name = request.prompt_token_ids, f"{request.request_id} on its way"
    arrived = (len(tokens) - 1) // cache.page_tokens * cache.page_tokens
    cache.open(name, request.cache_salt, cache.match(request.cache_salt, tokens))
    fits, step = True, min(arrived, cache.chunk_tokens // cache.page_tokens * cache.page_tokens)
    for end in [*range(step, arrived, max(1, step)), arrived]:  # the pool of a window need not hold the whole prompt
        fits = fits and cache.grow(name, end)
        if fits:
            cache.commit(name, end, tokens)
    cache.close(name)
    return fits
