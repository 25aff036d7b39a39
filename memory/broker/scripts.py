"""The scripts that run within the Redis server, for all that must happen in one step or not at all."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from rainbow_iqn_apex.common.errors import LeaseLostError, RunError
from rainbow_iqn_apex.memory.broker.connection import Argument, Client, NoScriptError, ResponseError, believed
from rainbow_iqn_apex.memory.broker.keys import Keys

# A field of XINFO STREAM of the log KEYS[1]; the id of the last entry ever appended outlives trimming.
_ABOUT = """
local function about(field)
  if redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for n = 1, #info, 2 do if info[n] == field then return info[n + 1] end end
end
"""

# Replies with the id of the last entry ever appended, and with that of the newest entry that the log holds, 0-0 for
# none. The entries, which may be large, stay in Redis.
EXTENT = (
    _ABOUT
    + """
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', '1')[1]
return {about('last-generated-id') or '0-0', newest and newest[1] or '0-0'}
"""
)

# Checks the lease, appends the messages under explicit increasing ids and replaces the state: all in one step, or
# nothing. MULTI would not do: it goes on after a refused XADD. Replies -1 when done, also when the commit was done
# before and its reply was lost. If a restarted broker has lost the messages before these, it appends nothing, unless
# the caller allows a gap, and replies with the number of the last message that Redis holds. The reply is that number,
# too, if the log has one of these numbers already.
#
# With an actor's first message, its number is added to the stream of actors, where a learner finds actors that it did
# not expect. An actor that was suspended finds its lease free where a successor has come and gone: the successor's
# number shows it. Once the learner has left in good order, nothing is appended: it logs the episodes of the messages
# before that only.
COMMIT = (
    _ABOUT
    + """
local first = tonumber(ARGV[2])
local last = string.format('%.0f', first + #ARGV - 6)
local holder = redis.call('GET', KEYS[3])
local owner, sequence = unpack(redis.call('HMGET', KEYS[2], 'owner', 'sequence'))
local stored = tonumber(sequence or '0')
local function newest() return tonumber(string.match(about('last-generated-id') or '0', '^%d+')) end
local replaced = owner and owner ~= ARGV[1] and stored >= first
if (holder and holder ~= ARGV[1]) or replaced then return redis.error_reply('LEASELOST') end
local run_id, status = unpack(redis.call('HMGET', KEYS[4], 'run_id', 'status'))
if status == 'stopped' or status == 'finished' then return redis.error_reply('RUNOVER') end
if run_id and not string.find(KEYS[1], ':' .. run_id .. ':', 1, true) then return redis.error_reply('RUNOVER') end
if not holder then redis.call('SET', KEYS[3], ARGV[1], 'PX', 10000) end
if owner == ARGV[1] and sequence == last then return -1 end
if stored ~= first - 1 and ARGV[3] == '0' and newest() ~= first - 1 then return newest() end
if not sequence or redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XADD', KEYS[5], 'MAXLEN', '4096', '*', 'actor', ARGV[4])
end
for i = 6, #ARGV do
  local added = redis.pcall('XADD', KEYS[1], string.format('%.0f-0', first + i - 6), 'm', ARGV[i])
  if type(added) == 'table' and added.err then
    if string.find(added.err, 'equal or smaller', 1, true) then return newest() end
    return added
  end
end
redis.call('HSET', KEYS[2], 'state', ARGV[5], 'sequence', last, 'owner', ARGV[1])
return -1
"""
)

# Every script that writes for a learner begins with this check. A learner that was suspended for longer than its lease
# lasts goes on as before, although another learner may lead this run now, or another run of this name.
LEADING = """
local holder, run_id = redis.call('GET', KEYS[1]), redis.call('HGET', KEYS[2], 'run_id')
if (holder and holder ~= ARGV[1]) or (run_id and run_id ~= ARGV[2]) then return redis.error_reply('LEASELOST') end
"""

# Keeps weights out of the broker's append-only file, which would get a full copy with every version: the learner
# publishes weights again after a broker's restart. They do not go to replicas either, unless actors read there. Replies
# with the newest version announced before, by which the learner sees a restart. A rewritten file has the versions of
# that moment: after a restart these may be newer than what is published now, as a learner goes back to its checkpoint.
PUBLISH = (
    LEADING
    + """
if redis.replicate_commands then redis.replicate_commands() end
redis.set_repl(ARGV[4] == '1' and redis.REPL_SLAVE or redis.REPL_NONE)
if ARGV[3] == '1' then redis.call('DEL', KEYS[3]) end
local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
local before = last[1] and tonumber(string.match(last[1][1], '^%d+')) or -1
if before > tonumber(ARGV[#ARGV - 1]) then redis.call('DEL', KEYS[3]) before = -1 end
for i = 4, #KEYS do
  local version = ARGV[2 * i - 3]
  redis.call('SET', KEYS[i], ARGV[2 * i - 2])
  if tonumber(version) > before then redis.call('XADD', KEYS[3], 'MAXLEN', '2', version .. '-1', 'v', version) end
end
return before
"""
)

RECORD = LEADING + "for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end return 1"

TRIM = LEADING + "for i = 3, #ARGV do redis.call('XTRIM', KEYS[i], 'MINID', ARGV[i] .. '-0') end return 1"

# Takes a lease from the holder that was seen, if it lasts for longer than a lease ever does.
BREAK_LEASE = """
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if left == -1 or left > tonumber(ARGV[2]) then return redis.call('DEL', KEYS[1]) end
return 0
"""

RENEW = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if holder then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# Replies with the messages, or numbers of actors, after a position in each stream: id, size and bytes of each, by
# stream. They have at most ARGV[1] bytes together, but there is at least one. A message larger than ARGV[1] is cut to
# its first ARGV[2] bytes. A message smaller than ARGV[2] counts as ARGV[2] bytes, so that the server is soon done.
READ = """
local most, least, found = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
local room = most
for k = 1, #KEYS do found[k] = {} end
for k = 1, #KEYS do
  local position = ARGV[k + 2]
  while true do
    local reply = redis.call('XREAD', 'COUNT', '1', 'STREAMS', KEYS[k], position)
    if not reply then break end
    local id, fields = unpack(reply[1][2][1])
    local message = ''
    for i = 1, #fields, 2 do
      if fields[i] == 'm' or fields[i] == 'actor' then message = fields[i + 1] end
    end
    local size = #message
    if size > room and room < most then return found end
    if size > room then message = string.sub(message, 1, least) end
    table.insert(found[k], {id, size, message})
    room, position = room - math.max(size, least), id
    if room <= 0 then return found end
  end
end
return found
"""


_TRIES = 3


class Script:
    """A script of ours, loaded when the server does not hold it; `durable` is as in `Client.durable`."""

    def __init__(self, client: Client, text: str, *, durable: bool = False) -> None:
        self.client = client
        self._text = text
        self._durable = durable
        self._run = client.register_script(text)

    def __call__(self, keys: Sequence[str | bytes], values: Sequence[Argument] = ()) -> Any:
        """Run the script, also where the server is restarted between its loading and its run.

        At last its text is sent: a node to which a slot moves is asked before it is loaded with scripts.
        """
        server = self.client.of(keys[0])
        server = server.durable() if self._durable else server
        for _ in range(_TRIES):
            try:
                return self._run(keys, values, server)
            except NoScriptError:
                continue
        return server.eval(self._text, len(keys), *keys, *values)


READ_BYTES = 1 << 24  # of one read of streams, however many entries of however many actors
CUT_BYTES = 1 << 14  # what is read of a message that is too large
_MOST_LEASE = 400  # bytes: longer than a lease of ours


class Commit(NamedTuple):
    """Messages `first`, `first + 1`, ... of an actor, at least one, and its state after them."""

    first: int
    messages: list[bytes]
    state: bytes

    @property
    def last(self) -> int:
        """Sequence number of the last message."""
        return self.first + len(self.messages) - 1


class HeldLease(NamedTuple):
    """A lease as read by a process that does not hold it."""

    value: bytes  # its beginning; empty for none
    left_ms: float  # infinite for one that never expires


class RawMessage(NamedTuple):
    """An entry of an actor's log, or of the stream of actors, as it was read."""

    id: bytes
    size: int  # of the message in the log
    data: bytes  # the message, or its beginning if it is too large


def raw_message(entry_id: bytes, fields: dict[bytes, bytes]) -> RawMessage:
    """Return an entry from its parts in XREAD's reply."""
    data = fields.get(b"m", fields.get(b"actor", b""))
    return RawMessage(entry_id, len(data), data)


class Scripts:
    """Runs the server-side scripts, one method each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._commit = Script(client, COMMIT, durable=True)
        self._publish = Script(client, PUBLISH)
        self._record = Script(client, RECORD, durable=True)
        self._trim = Script(client, TRIM)
        self._renew = Script(client, RENEW)
        self._break_lease = Script(client, BREAK_LEASE)
        self._read = Script(client, READ)

    def commit(self, keys: Keys, actor: int, token: bytes, commit: Commit, *, allow_gap: bool) -> int | None:
        """Append messages and store the state in one step, if the lease is held.

        Returns None when the commit is done, or was done before. Returns the number of the last message in the log if
        Redis has lost the message before `commit.first`, and `allow_gap` is not set, or if one of these numbers is
        taken. Raises RunError if the lease is lost or Redis refuses.
        """
        names = [keys.log(actor), keys.state(actor), keys.actor_lease(actor), keys.run, keys.actors]
        values: list[Argument] = [token, commit.first, int(allow_gap), actor, commit.state, *commit.messages]
        try:
            known = believed(self._client, lambda: int(self._commit(names, values)), TypeError, ValueError)
        except ResponseError as error:
            if "LEASELOST" in str(error):
                raise LeaseLostError(
                    f"{keys.title(actor)} lost its lease: another process may have taken its place"
                ) from error
            raise RunError(f"Redis refused the messages of {keys.title(actor)}: {error}") from error
        return None if known == -1 else known

    def publish(
        self, keys: Keys, token: bytes, weights: dict[int, bytes], *, restart: bool, replicate: bool = False
    ) -> int:
        """Store the weights of these versions, oldest first, and announce the versions, in one step.

        Returns the newest version that was announced before, -1 for none; `restart` first deletes all announced before.
        With `replicate`, the server's replicas get them, too.
        Only a learner may call this method, `write_record` and `trim`. They raise RunError if the learner's lease is
        lost, or the run was abandoned.
        """
        slots = [keys.weights(version) for version in weights]
        values = [part for item in weights.items() for part in item]
        return self._lead(self._publish, keys, token, [keys.versions, *slots], [int(restart), int(replicate), *values])

    def write_record(self, keys: Keys, token: bytes, fields: dict[str, Argument]) -> None:
        """Write fields of the run's record."""
        self._lead(self._record, keys, token, [], [part for field in fields.items() for part in field])

    def trim(self, keys: Keys, token: bytes, oldest: dict[int, int]) -> None:
        """Drop the messages of each actor that are older than the given sequence number."""
        self._lead(self._trim, keys, token, [keys.log(actor) for actor in oldest], list(oldest.values()))

    def read(self, positions: dict[bytes, bytes], most: int) -> list[tuple[bytes, list[RawMessage]]]:
        """Return the messages after these positions, by stream: at most `most` bytes of them, but at least one message.

        A message that is larger than `most` by itself is cut to its beginning.
        """
        found = self._read(list(positions), [most, CUT_BYTES, *positions.values()])
        streams = zip(positions, found, strict=True)
        return [(stream, [RawMessage(*message) for message in messages]) for stream, messages in streams if messages]

    def _lead(self, script: Script, keys: Keys, token: bytes, more: list[str], arguments: Sequence[Argument]) -> int:
        try:
            return int(script([keys.learner_lease, keys.run, *more], [token, keys.run_id, *arguments]))
        except ResponseError as error:
            if "LEASELOST" not in str(error):
                raise
            raise LeaseLostError(f"the learner of run {keys.name!r} lost its lease to another process") from error

    def renew(self, key: str, token: bytes, ttl_ms: int) -> bool:
        """Prolong a lease, also one that a broker's restart has lost; False if another process holds it."""
        return bool(self._renew([key], [token, ttl_ms]))

    def read_lease(self, key: str) -> HeldLease:
        """Return who holds a lease, and how long the lease still lasts."""
        value = self._client.getrange(key, 0, _MOST_LEASE - 1)
        left = self._client.pttl(key)
        return HeldLease(cast(bytes, value), math.inf if left == -1 else max(0, left))

    def break_lease(self, key: str, value: bytes, longest_ms: int) -> None:
        """Take a lease from the holder with this value if it lasts for longer than `longest_ms`."""
        self._break_lease([key], [value, longest_ms])


class Extent(NamedTuple):
    """Holds which messages a log had at a moment."""

    newest: int  # sequence number of its newest message; 0 for none
    last: int  # of the last message ever appended, trimmed or not; 0 for none
    start: bytes  # position after which all its messages come: of an emptied log the last message's


def log_extent(client: Client, key: str) -> Extent:
    """Return what an actor's log holds now."""
    last, newest = cast(tuple[bytes, bytes], client.eval(EXTENT, 1, key))
    start = last if newest == b"0-0" else b"0-0"
    return Extent(sequence_of(newest), sequence_of(last), start)


def sequence_of(entry_id: bytes) -> int:
    """Return the sequence number in an entry's id."""
    return int(entry_id.split(b"-")[0])


def newest_version(client: Client, keys: Keys) -> int:
    """Return the newest weights version published, -1 if there is none."""
    return believed(client, lambda: _newest_version(client, keys), TypeError, ValueError, LookupError, AttributeError)


def _newest_version(client: Client, keys: Keys) -> int:
    reply: Any = client.xrevrange(keys.versions, count=1)
    return int(reply[0][0].split(b"-")[0]) if reply else -1
