"""A run on a cluster of three masters and three replicas, of which any may die, and whose slots may move."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.admin import memory_use, rewrite_file
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, ResponseError, believed
from rainbow_iqn_apex.memory.broker.keys import slot_of
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import find_runs, read_run
from rainbow_iqn_apex.memory.broker.reports import ReportStore, ViewListener
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.memory.messages import RoundEnd
from rainbow_iqn_apex.programs.dashboard.watcher import Watcher
from rainbow_iqn_apex.programs.make_redis_users import acl
from tests.cluster import Cluster, started
from tests.conftest import RedisServer
from tests.deadline import Deadline, wait_until
from tests.memory.inbox import SCHEMA
from tests.memory.links import entries_of, weights
from tests.memory.test_shards import leading as leading_in
from tests.memory.test_shards import playing as playing_in

pytestmark = [pytest.mark.redis, pytest.mark.slow]
SHARDS = 3
leading = partial(leading_in, shards=SHARDS, actors=SHARDS)
playing = partial(playing_in, shards=SHARDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, redis_program: str) -> Iterator[Cluster]:
    with started(Cluster(tmp_path_factory.mktemp("cluster") / "nodes", redis_program)) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with closing(open_url(cluster.url)) as client:
        yield client


def open_url(url: str, **environment: str) -> Client:
    return open_servers(find_server("", 0, url, environment))


class Players:
    """Actors that commit a round after the other until they are told to stop, each with a client of its own."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(SHARDS)
        self.acknowledged = dict.fromkeys(range(SHARDS), 0)
        self._ends: list[Future[None]] = [self._pool.submit(self._play, actor) for actor in range(SHARDS)]

    def _play(self, actor: int) -> None:
        with closing(open_url(self._url)) as client, playing(client, self._name, actor) as link:
            while not self._stop.is_set() or self.acknowledged[actor] < max(self.acknowledged.values()):
                link.commit([RoundEnd(self.acknowledged[actor])], b"state")
                self.acknowledged[actor] += 1
                self._stop.wait(0.01)

    def get_on(self, rounds: int = 20) -> None:
        """Wait until all have played so many more rounds."""
        before = dict(self.acknowledged)

        def have_played() -> bool:
            assert not any(end.done() for end in self._ends), [end.exception() for end in self._ends if end.done()]
            return all(self.acknowledged[actor] >= before[actor] + rounds for actor in before)

        wait_until(have_played, "actors to get on", 60)

    def finish(self) -> int:
        """Stop, and return how many rounds all have played."""
        self._stop.set()
        for end in self._ends:
            end.result(60)
        (rounds,) = set(self.acknowledged.values())
        return rounds


def test_any_node_leads_to_all(cluster: Cluster, client: Client, run_name: str) -> None:
    client.set(f"riqx:{{{run_name}}}", "x")
    for url in (
        f"redis://127.0.0.1:{cluster.replicas[1].port}",
        f"redis://127.0.0.1:1,127.0.0.1:{cluster.nodes[0].port}",
    ):
        with closing(open_url(url)) as other:
            assert other.get(f"riqx:{{{run_name}}}") == b"x"
    assert len(client.servers()) == 3
    with pytest.raises(TypeError, match="names no key"):
        client.info()


def test_shards_are_on_all_masters(cluster: Cluster, client: Client, run_name: str) -> None:
    with leading(client, run_name) as learner:
        masters = {cluster.master_of(keys.run).port for keys in learner.keys.every_shard()}
    assert len(masters) == SHARDS
    assert run_name in find_runs(client.aside()).names
    use, of_one = memory_use(client, run_name, SHARDS), memory_use(client, run_name)
    assert use.ours > 0
    assert use.machine == 3 * of_one.machine  # mutation: count all masters, whichever hold the run


def test_a_key_is_found_while_its_slot_moves(cluster: Cluster, client: Client, run_name: str) -> None:
    # Mutations: no ASKING; ASK taken for MOVED.
    first, *others = (f"riqx:{{{run_name}}}:{i}" for i in range(4))
    for key in (first, *others):
        client.set(key, key)
    for _ in cluster.move(first):
        for key in (first, *others):
            assert client.get(key) == key.encode()
            assert client.aside().get(key) == key.encode()
    assert client.mget(first, *others) == [key.encode() for key in (first, *others)]


def test_an_answer_in_doubt_is_asked_for_on_another_connection(client: Client, run_name: str) -> None:
    # Mutation: end the connections of the client's own pool, over which no command goes.
    for server in (client.of(f"riqx:{{{run_name}}}"), client.replica().of(f"riqx:{{{run_name}}}")):
        used: list[int] = []

        def ask(server: Client = server, used: list[int] = used) -> None:
            used.append(server.execute_command("CLIENT", "ID"))
            raise KeyError

        with pytest.raises(KeyError):
            believed(server, ask, KeyError)
        with pytest.raises(ResponseError):  # a refusal is doubted, too
            server.execute_command("NONE")
        used.append(server.execute_command("CLIENT", "ID"))
        assert len(set(used)) == 4


def test_a_commit_waits_while_its_slot_moves(cluster: Cluster, client: Client, run_name: str) -> None:
    # Mutations: TRYAGAIN is raised; scripts are sent by their digest alone, which the slot's next node does not know.
    with leading(client, run_name), playing(client, run_name, 0) as actor, ThreadPoolExecutor(1) as pool:
        actor.commit([RoundEnd(0)], b"")
        source, moving = cluster.master_of(log := actor.keys.log(0)), cluster.move(log)
        next(moving)
        for node in cluster.nodes:
            node.ask("SCRIPT", "FLUSH")
        refused = sum(node.errors("TRYAGAIN") for node in cluster.nodes)
        commit = pool.submit(actor.commit, [RoundEnd(1)], b"")
        wait_until(lambda: sum(node.errors("TRYAGAIN") for node in cluster.nodes) > refused, "a refusal", 20)
        while source.ask("CLUSTER", "COUNTKEYSINSLOT", slot_of(log)):
            next(moving)
        commit.result(30)
        assert (list(moving), client.xlen(log)) == ([], 2)


def test_a_master_without_enough_replicas_is_waited_for(cluster: Cluster, client: Client, run_name: str) -> None:
    # Mutation: NOREPLICAS is raised.
    key = f"riqx:{{{run_name}}}"
    master = cluster.master_of(key)
    master.ask("CONFIG", "SET", "min-replicas-to-write", 2)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(client.set, key, "x")
        wait_until(lambda: master.errors("NOREPLICAS") > 0, "a refusal", 20)
        master.ask("CONFIG", "SET", "min-replicas-to-write", 0)
        assert written.result(30)


def test_the_dashboard_finds_a_run(cluster: Cluster, client: Client, run_name: str, tmp_path: Path) -> None:
    with leading(client, run_name), Watcher(find_server("", 0, cluster.url, {}), run_name, tmp_path) as watcher:
        wait_until(lambda: watcher.last.overview is not None, lambda: watcher.last.problem, 20)


def test_a_cluster_that_lacks_slots_and_an_address_that_is_none_are_refused(
    tmp_path: Path, redis_server: RedisServer, redis_program: str
) -> None:
    with started(Cluster(tmp_path / "nodes", redis_program, 1, replicas=False), lacking=3) as cluster:
        with pytest.raises(UserError, match=r"no node of the cluster has 3 of its 16384 slots") as refused:
            open_url(cluster.url)
        assert "\n" not in str(refused.value)
        both = f"{cluster.url},127.0.0.1:{redis_server.port}"
        with pytest.raises(UserError, match=f"127.0.0.1:{redis_server.port} is no node of a cluster") as refused:
            open_url(both)
        assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="no Redis server answers"):
        open_url("redis://127.0.0.1:1,127.0.0.1:2")


def test_masters_die_and_slots_move_and_nothing_acknowledged_is_lost(
    cluster: Cluster, client: Client, run_name: str
) -> None:
    # Mutations: a client that raises MOVED, or TRYAGAIN after ASK, or that stays with the server it had.
    with leading(client, run_name) as learner:
        keys = learner.keys
        players = Players(cluster.url, run_name)
        reader = learner.inbox(SCHEMA, threading.Event())
        with closing(reader):
            players.get_on()
            cluster.fail_over(keys.log(0))
            players.get_on()
            list(cluster.move(keys.log(1)))
            players.get_on()
            cluster.fail_over(keys.log(1))
            players.get_on()
            learner.publish(0, weights(0))
            rounds = players.finish()
            entries = [entry for round_ in range(rounds) for entry in reader.take_round(round_) if entry]
    assert [(entry.id.actor, entry.message) for entry in entries] == [
        (actor, RoundEnd(round_)) for round_ in range(rounds) for actor in range(SHARDS)
    ]
    for actor in range(SHARDS):
        held = [(entry_id, SCHEMA.decode(fields[b"m"])) for entry_id, fields in entries_of(client, keys.log(actor))]
        assert held == [(b"%d-0" % (round_ + 1), RoundEnd(round_)) for round_ in range(rounds)]


def test_what_a_replica_did_not_have_is_sent_again(
    cluster: Cluster, client: Client, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replica stops following its master, and takes its place; the learner has read what is lost then.

    Mutations: no WAIT (the line about it is missing); an actor that keeps nothing to send again.
    """
    with (
        leading(client, run_name) as learner,
        playing(client, run_name, 0) as actor,
        closing(learner.inbox(SCHEMA, threading.Event())) as reader,
    ):
        log = actor.keys.log(0)
        actor.commit([RoundEnd(0)], b"")
        master, replica = cluster.master_of(log), cluster.replica_of(log)
        replica.ask("CONFIG", "SET", "masterauth", "none that it knows")
        replica.ask("CLIENT", "KILL", "TYPE", "master")
        wait_until(lambda: replica.ask("ROLE")[3] != b"connected", "a replica that has lost its master", 20)
        for round_ in (1, 2):
            actor.commit([RoundEnd(round_)], b"")
        entries = [entry for round_ in range(3) for entry in reader.take_round(round_, 1) if entry]
        replica.ask("CONFIG", "SET", "masterauth", "")
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        wait_until(lambda: cluster.master_of(log) is replica and not master.is_master, "a takeover", 30)
        assert replica.ask("XLEN", log) == 1, "the loss is real"
        actor.commit([RoundEnd(3)], b"")
        entries += [entry for entry in reader.take_round(3, 1) if entry]
        assert [entry.message for entry in entries] == [RoundEnd(round_) for round_ in range(4)]
        assert client.xlen(log) == 4
    said = capsys.readouterr().out
    assert "No replica of " in said
    assert "sending again" in said


def test_weights_come_from_a_replica_where_asked_for(
    cluster: Cluster, client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that has them serves them; one that lags behind, or is gone, leaves that to its master.

    Mutation: weights that no replica gets.
    """
    with (
        LearnerClient(client, run_name, {}, 1, shards=SHARDS, replicas=True) as learner,
        ActorClient(client, run_name, "id", 0, threading.Event(), shards=SHARDS, replicas=True) as actor,
    ):
        learner.lead("id")
        learner.publish(0, weights(0))
        key = actor.keys.weights(0)
        master, replica = cluster.master_of(key), cluster.replica_of(key)

        def is_served_by_the_replica() -> bool:
            before = master.count("get"), replica.count("get")
            actor.weights(0)
            return (master.count("get"), replica.count("get")) == (before[0], before[1] + 1)

        wait_until(is_served_by_the_replica, "a replica that serves weights", 20)
        replica.pause()
        monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection._SOCKET_TIMEOUT_S", 0.5)
        try:
            learner.publish(2, weights(2))
            actor.weights(2)
            replica.go_on()
            before = replica.count("get")
            for _ in range(5):
                actor.weights(2)
            assert replica.count("get") <= before + 1, "one that has failed is left alone for a while"
            replica.pause()
        finally:
            replica.go_on()
        assert actor.weights(2).meta["version"] == 2


def test_reports_and_views_are_found_wherever_they_are(cluster: Cluster, client: Client, run_name: str) -> None:
    with leading(client, run_name) as learner:
        keys = learner.keys
        stores = [playing(client, run_name, actor).reports() for actor in range(SHARDS)]
        for actor, store in enumerate(stores):
            store.write(actor, b"report of %d" % actor)
        with closing(ReportStore(client, keys)) as store:
            found = store.read([None, *range(SHARDS)], 100)
            assert {actor: raw.data for actor, raw in found.items()} == {
                actor: b"report of %d" % actor for actor in range(SHARDS)
            }
            list(cluster.move(keys.report(1)))
            assert store.read([1], 100)[1].data == b"report of 1"
            assert store.server({}).used > 0
        with closing(ViewListener(client)) as listener:
            listener.listen({keys.view(actor) for actor in range(SHARDS)})
            for actor, store in enumerate(stores):
                view = b"view of %d" % actor
                wait_until(partial(store.write_and_show, actor, b"", view), "a listener to be known", 10)
            deadline, seen = Deadline(20, "three views"), dict[str, bytes]()
            while len(seen) < SHARDS:
                deadline.check()
                seen |= listener.next(1000)
            assert seen == {keys.view(actor): b"view of %d" % actor for actor in range(SHARDS)}
            assert listener.next(1000) == {}, "each comes once"
        for store in stores:
            store.close()
        rewrite_file(client)
        record = read_run(client.aside(), run_name)
        assert record and record.shards == SHARDS


def test_the_rights_of_our_users_suffice_on_a_cluster(cluster: Cluster, run_name: str) -> None:
    passwords = dict.fromkeys(("learner", "actor", "viewer"), "secret")
    with ExitStack() as stack:
        for node in cluster.nodes:
            node.ask("ACL", "LOG", "RESET")
            for line in acl(passwords, redis_7=False).splitlines()[1:]:
                node.ask("ACL", "SETUSER", *line.split()[1:])
            stack.callback(node.ask, "ACL", "DELUSER", *passwords)
        clients = {
            user: stack.enter_context(closing(open_url(cluster.url, REDIS_USERNAME=user, REDIS_PASSWORD="secret")))
            for user in passwords
        }
        with leading(clients["learner"], run_name) as learner:
            learner.publish(0, weights(0))
            with playing(clients["actor"], run_name, 1) as actor:
                actor.commit([RoundEnd(0)], b"")
                list(cluster.move(actor.keys.log(1)))
                actor.commit([RoundEnd(1)], b"")
                assert actor.weights(0).meta["version"] == 0
        assert run_name in find_runs(clients["viewer"].aside()).names
        for node in cluster.nodes:
            assert node.ask("ACL", "LOG") == []


def test_a_cluster_that_is_down_is_given_up_in_time(
    tmp_path: Path, redis_program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(Cluster(tmp_path / "nodes", redis_program, replicas=False)) as cluster:
        monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection.AWAY_S", 3.0)
        with closing(open_url(cluster.url)) as client, closing(client.aside()) as aside:
            key = "riqx:{run}"
            cluster.master_of(key).close()
            with pytest.raises(Exception, match="the Redis server, tried for 3 sec, stays away"):
                client.get(key)
            with pytest.raises(BrokerError):
                aside.get(key)


def test_a_number_of_a_database_is_none_of_a_cluster(cluster: Cluster) -> None:
    with pytest.raises(UserError, match="has no database of that number, and a Redis Cluster has 0 alone") as refused:
        open_url(f"redis://127.0.0.1:{cluster.masters[0].port}/3")
    assert "\n" not in str(refused.value)
