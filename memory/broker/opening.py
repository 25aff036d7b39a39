"""Opens the connections to a run's servers: one server, a cluster, or a service that Sentinels watch."""

import threading
from collections.abc import Sequence
from contextlib import closing

import redis

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import SENTINEL_PASSWORD, SENTINEL_USERNAME, Server, explain_tls
from rainbow_iqn_apex.memory.broker.connection import (
    ASIDE_S,
    Aside,
    Away,
    BrokerError,
    Client,
    connect,
    open_aside,
    open_once,
)
from rainbow_iqn_apex.memory.broker.places import Address, ClusterPlaces, Places, SentinelPlaces
from rainbow_iqn_apex.memory.broker.routing import Route, RoutedAside, RoutedClient


def open_servers(server: Server, stop: threading.Event | None = None, away_s: float | None = None) -> Client:
    """Connect as `connect` does, to all servers where several are named, or one answers as the node of a cluster."""
    if server.service:
        return _open_service(server, stop, away_s)
    nodes = [Address(server.host, server.port), *(Address(*other) for other in server.others)]
    found = _connect_all(nodes, server, stop, away_s)
    (first, client), *others = found
    if not server.others and client.mode != "cluster":
        return client
    for node, there in found:
        if there.mode != "cluster":
            raise UserError(
                f"{client.where}: {node.host}:{node.port} is no node of a cluster, and several addresses are those of "
                "one: name one server alone, or nodes of a cluster"
            )
    for _, there in others:
        there.close()
    places = ClusterPlaces(nodes, lambda node: open_aside(node.host, node.port, server.access))
    places.look()
    if places.missing:
        raise UserError(
            f"{client.where}: no node of the cluster has {places.missing} of its 16384 slots: give each slot a node, "
            f"as `redis-cli --cluster fix {first.host}:{first.port}` does"
        )
    if server.access.tls:
        _check_certificates(client, server, places)
    return _route(client, server, places, reads_need_leave=True)


def _connect_all(
    nodes: Sequence[Address], server: Server, stop: threading.Event | None, away_s: float | None
) -> list[tuple[Address, Client]]:
    """Connect to each node that lets us in; raises UserError, with the first refusal, if there is none."""
    found, refusals = [], []
    for node in nodes:
        try:
            found.append((node, connect(node.host, node.port, stop, server.access, away_s)))
        except UserError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found


def _check_certificates(client: Client, server: Server, places: Places) -> None:
    """Raise UserError for a master that the cluster names by a host which is not in that one's certificate."""
    for place in filter(None, map(places.of, places.slots())):
        host, port = place.master
        try:
            with closing(open_aside(host, port, server.access)) as aside:
                aside.ping()
        except BrokerError as error:
            if fault := explain_tls(error):
                raise UserError(f"{client.where}: the cluster names {host}:{port}: {fault}") from error


def _open_service(server: Server, stop: threading.Event | None, away_s: float | None) -> Client:
    sentinels = [Address(server.host, server.port), *(Address(*other) for other in server.others)]
    places = SentinelPlaces(server.service, sentinels, lambda node: open_aside(node.host, node.port, server.sentinel))
    places.look()
    if not (place := places.of(0)):
        raise UserError(f"{server.access.told_by}: {_explain(places.failure, server.service)}")
    client = connect(place.master.host, place.master.port, stop, server.access, away_s)
    return _route(client, server, places, reads_need_leave=False)


def _explain(failure: Exception | None, service: str) -> str:
    """Explain why no Sentinel has told of the service's master."""
    if isinstance(failure, redis.AuthenticationError):
        advice = f"{SENTINEL_USERNAME} and {SENTINEL_PASSWORD} must be those of a user of the Sentinels"
        return f"a Sentinel does not let us in ({failure}); {advice}"
    if failure and (fault := explain_tls(failure)):
        return f"of a Sentinel: {fault}"
    return (
        f"no Sentinel there answers, or none knows a master {service!r}: name a Sentinel's host and port, and the "
        "service by the name that it has in sentinel.conf"
    )


def _route(seed: Client, server: Server, places: Places, *, reads_need_leave: bool) -> Client:
    """Return what sends each command to its server; replicas of a cluster must be asked for leave to read there."""

    def route(away: Away, timeout: float = 0.0) -> Route:
        def open_node(node: Address, reads: bool) -> redis.Redis:
            asks = reads and reads_need_leave
            return open_once(redis.Redis, node.host, node.port, server.access, away, timeout, reads=asks)

        return Route(places, open_node)

    client = RoutedClient.open(seed, route(seed.away))

    def aside() -> Aside:
        away = Away(threading.Event())
        return RoutedAside.open(away, seed, route(away, ASIDE_S))

    client.aside = aside
    return client
