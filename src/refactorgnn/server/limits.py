"""How much one client may ask: sizes of requests, and how many in a second."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields

from refactorgnn.errors import UserError

# Clients whose requests are counted. Beyond these the one not heard of for longest is forgotten, and starts afresh.
_MOST_CLIENTS = 10_000
# Addresses of one IPv6 customer; a bucket for each of them would be no limit at all.
_IPV6_PREFIX = 64


@dataclass(frozen=True)
class Limits:
    """What a server takes from its clients.

    Args:
        max_body_bytes: Bytes of a request's body.
        max_k: Answers to one question, and names found by one search.
        max_questions: Questions in a batch.
        max_facts: Facts, and texts, of one addition.
        max_depth: Layers that an explanation splits.
        max_counterfactuals: Facts that an explanation takes away.
        max_waiting: Requests that wait for a thread, all clients together; more are sent away with 503.
        rate: Requests of a client in a second, in the long run; 0: as many as it likes.
        body_seconds: How long a body may take to arrive.
    """

    max_body_bytes: int = 2**20
    max_k: int = 100
    max_questions: int = 256
    max_facts: int = 10_000
    max_depth: int = 16
    max_counterfactuals: int = 10
    max_waiting: int = 256
    rate: int = 300
    body_seconds: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("rate", "max_counterfactuals") else 1
            if getattr(self, field.name) < least:
                raise UserError(f"{field.name}={getattr(self, field.name)} cannot be used: choose {least} or more.")


class TokenBuckets:
    """A bucket of tokens for each client: a request takes one, and ``rate`` of them come back every second.

    A bucket holds the tokens of one second, so a client that was quiet may send that many at once.

    Args:
        rate: Tokens in a second.
        most_clients: Buckets that are kept.
        clock: Seconds, ever rising.
    """

    def __init__(
        self, rate: float, most_clients: int = _MOST_CLIENTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._most_clients, self._clock = rate, most_clients, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client: tokens, when they were counted

    def wait(self, address: str) -> float:
        """Take a token of that client: 0, or the seconds until there is one."""
        client, now = client_of(address), self._clock()
        tokens, then = self._buckets.get(client, (self._rate, now))
        tokens = min(self._rate, tokens + (now - then) * self._rate)
        granted = tokens >= 1
        self._buckets[client] = (tokens - granted, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > self._most_clients:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - tokens) / self._rate

    def __len__(self) -> int:
        return len(self._buckets)


def client_of(address: str) -> str:
    """Whose address this is: an IPv4 address is a client, an IPv6 network of /64 is one."""
    if ":" not in address:
        return address
    try:
        number = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return str(ipaddress.IPv6Network((number, _IPV6_PREFIX), strict=False))
