"""Snapshots: checkpoints `last_model_<game>_<steps>.pth`, `best_model_<game>.pth`, and other people's for evaluation.

A snapshot is a dictionary of tensors and plain values that `torch.load(weights_only=True, map_location="cpu")` opens.
Each has `T_actors, T_learner, model_state_dict, optimiser_state_dict`. Snapshots of this program hold all that a resume
needs, except `model_<game>_<steps>.pth`, which hold weights alone.
"""

import errno
import hashlib
import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from rainbow_iqn_apex.agents.foreign_snapshot import check_weights, misfits, paired_moments
from rainbow_iqn_apex.agents.interface import Agent, Stateful
from rainbow_iqn_apex.agents.networks.network import Network, acting_tensors
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import ANYWHERE, open_regular, replace_file, short_path
from rainbow_iqn_apex.common.text import name_error, one_line

_SUFFIX = "_state_dict"
_MODEL = f"model{_SUFFIX}"
_KEPT = (torch.optim.Adam, torch.optim.RAdam)  # optimisers whose moments `paired_moments` reads
_OF_STEPS = re.compile(r"(last_)?model_([\w.-]+)_(\d+)\.pth")
_ZIP = b"PK\3\4"  # by these four bytes torch.load distinguishes an archive from a snapshot of the old format
_FOLDER = 0x10  # attribute of an archive's entry
_READ_BYTES = 1 << 20
_SHARED = 8  # times that parts of an agent may hold the same weights
_MAKES_BYTES = b"bytearray\n"  # in a pickle: from a number, it makes as many bytes as that is


class DamagedError(UserError):
    """A file is not what was written: torn, changed, or of another kind."""


class _ChecksumError(ValueError):
    """A record of an archive does not fit its checksum."""


def save(path: Path, agent: Agent, values: dict[str, Any]) -> None:
    """Write the agent's parts and `values` to a snapshot, all or nothing; raises OSError for a full disk."""
    _write(path, values | {f"{name}{_SUFFIX}": part.state_dict() for name, part in agent.parts.items()})


def save_weights(path: Path, agent: Agent, values: dict[str, Any]) -> None:
    """Write a snapshot of weights alone, which cannot be resumed from; as `save` in all else."""
    _write(path, values | {_MODEL: agent.model.state_dict()})


def save_exported(path: Path, saved: dict[str, Any]) -> None:
    """Write the weights of a loaded snapshot, their steps and settings, without what only its run goes on with."""
    _write(path, {name: saved[name] for name in (_MODEL, "T_actors", "T_learner", "settings") if name in saved})


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        with replace_file(path) as file:
            torch.save(content, file)
    except RuntimeError as error:
        if isinstance(cause := error.__context__, OSError):  # PyTorch's own text names only positions in the file
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise


def check_parts(agent: Agent) -> None:
    """Raise UserError for a part of which a snapshot could be written, perhaps, but not read again."""
    for name, part in agent.parts.items():
        file = io.BytesIO()
        try:
            torch.save(part.state_dict(), file)
            file.seek(0)
            _check_archive(file)
            torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            raise UserError(
                f"--agent: no snapshot could be read again, because of the part {name!r}: expected tensors and plain "
                f"values in its state_dict ({name_error(error)})"
            ) from error


def load(path: Path, option: str, folder: Path = ANYWHERE) -> dict[str, Any]:
    """Open a snapshot, which `option` has named, on the CPU; its checksums are verified before anything is decoded.

    The file has to lie in `folder`; see `open_regular`. The old format of torch.save has no checksums: such a file is
    taken as it is.

    Raises:
        DamagedError: the file holds no snapshot, or one that has changed since it was written.
        UserError: the file cannot be opened or read, there is no memory for it, or no network can use its weights.
    """
    named = f"{option}: {short_path(path)}"
    try:
        with (
            open_regular(path, folder) as file,
            warnings.catch_warnings(action="ignore"),
        ):  # one line names the fault
            size = os.fstat(file.fileno()).st_size
            _check_archive(file)
            snapshot = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        hindrance = _hindrance(error)
        kind = UserError if hindrance else DamagedError
        raise kind(f"{named} cannot be read as a snapshot ({hindrance or _damage(error)})") from error
    if fault := _oversized(snapshot, size):
        raise DamagedError(f"{named} cannot be read as a snapshot ({fault})")
    if not isinstance(snapshot, dict) or not isinstance(weights := snapshot.get(_MODEL), dict):
        raise UserError(f"{named} is not a snapshot: it holds no {_MODEL}")
    if fault := check_weights(weights):
        raise UserError(f"{named} cannot be used: {fault}")
    return snapshot


def _oversized(content: Any, file_bytes: int) -> str:
    """Name a tensor that would take more memory than the file has of it; empty if none would.

    The elements of an expanded tensor share their memory until it is copied: a file of a few bytes may hold one of any
    size. All lists and dictionaries are searched, each once, before anything is computed with what they hold.
    """
    seen: set[int] = set()
    left = _SHARED * file_bytes
    waiting: list[tuple[str, Any]] = [("content", content)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            if value.device.type != "cpu" or value.is_nested or _overlaps(value):
                return f"its tensor {name} has more elements than are stored"
            left -= value.numel() * value.itemsize
            if left < 0:
                return f"its tensors, up to {name}, have more elements than are stored"
        elif isinstance(value, dict):
            waiting += ((one_line(key, 80) if isinstance(key, str | int) else "?", of) for key, of in value.items())
        elif isinstance(value, list | tuple):
            waiting += ((name, of) for of in value)
    return ""


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether two elements may share their memory: whether a step along an axis ends within the axes before."""
    end = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= end:
            return tensor.numel() > 0
        end += step * (size - 1)
    return False


def settings_of(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the run that wrote a snapshot, as they stand there; empty in other programs' snapshots."""
    try:
        settings = json.loads(snapshot.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _check_archive(file: BinaryIO) -> None:
    """Verify sizes and checksums of an archive, which torch.load would not; leaves the file at its beginning.

    torch.save compresses nothing, so a file needs no more memory than it has bytes. Raises ValueError for one that
    would, _ChecksumError for a changed record, BadZipFile and others for an archive without structure.
    """
    is_archive = file.read(len(_ZIP)) == _ZIP
    if is_archive:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("it is compressed")
            if any(entry.is_dir() or entry.external_attr & _FOLDER for entry in entries):
                raise ValueError("it has a folder, of which torch.load reads nothing into a tensor without values")
            if sum(entry.file_size for entry in entries) > file.seek(0, os.SEEK_END):
                raise ValueError("it announces more than it holds")
            for entry in entries:  # by entry: ZipFile.testzip opens them by name, and two may share one
                _check_record(archive, entry)
    file.seek(0)
    end = b""
    while block := file.read(_READ_BYTES):
        if _MAKES_BYTES in end + block:
            raise ValueError("it makes bytes of a number")
        end = block[-len(_MAKES_BYTES) :]
    file.seek(0)


def _check_record(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Read a record to its end, where zipfile compares the checksum: 0.6 s a GB, a third of torch.load's time."""
    with archive.open(entry) as record:
        try:
            while record.read(_READ_BYTES):
                pass
        except zipfile.BadZipFile as error:
            raise _ChecksumError from error


def restore(agent: Agent, snapshot: dict[str, Any]) -> None:
    """Restore the state of every part of the agent; raises UserError if a part is missing, or of another size."""
    for name, part in agent.parts.items():
        if f"{name}{_SUFFIX}" not in snapshot:
            raise UserError(f"the snapshot holds nothing of {name!r}, which belongs to these settings")
        _restore_part(name, part, snapshot)


def _restore_part(name: str, part: Stateful, snapshot: dict[str, Any]) -> None:
    try:
        part.load_state_dict(snapshot[f"{name}{_SUFFIX}"])
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"the snapshot's {name} does not fit these settings: {name_error(error)}") from error


def restore_weights(agent: Agent, snapshot: dict[str, Any], *, trains: bool = True) -> None:
    """Start from a snapshot, perhaps another project's: its weights go into all networks, its moments into Adam.

    Networks are the model and all parts with weights of the same names and shapes. In further training, the next steps
    should be as long as the last ones were. Adam would begin with longer steps if it estimated the moments anew, so it
    keeps the snapshot's moments; Adam's settings are those of the command line. What networks cannot be trained further
    without, as an agent's critics, is taken over, too (`Agent.learned`). All else belongs to a run, and this run is
    new: counts, random numbers and replay begin afresh, and a target network of what acts begins equal to it. Noise
    buffers may be missing; they are drawn before they are used.

    Raises UserError if the weights do not fit the agent. What is missing, and moments that do not fit, are left out,
    and a line is printed. An agent that never `trains` needs the weights alone.
    """
    weights = snapshot[_MODEL]
    for name, part in agent.parts.items():
        if trains and name in agent.learned:
            if f"{name}{_SUFFIX}" in snapshot:
                _restore_part(name, part, snapshot)
            else:
                print(f"What was learned as {name!r} begins anew: the snapshot holds weights alone", flush=True)
        elif isinstance(part, Network) and _shapes(own := part.state_dict()) == _shapes(agent.model.state_dict()):
            if lines := list(misfits(weights, own, agent.sizes_of)):
                raise UserError("\n".join(lines))
            part.load_state_dict(own | weights)
        elif trains and isinstance(part, torch.optim.Optimizer):
            _restore_moments(part, agent, snapshot)
        elif trains and isinstance(part, Network):
            print(f"The network {name!r} begins anew: the agent's `learned` does not name it", flush=True)


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def _restore_moments(optimiser: torch.optim.Optimizer, agent: Agent, snapshot: dict[str, Any]) -> None:
    whose = type(optimiser).__name__
    kept = isinstance(optimiser, _KEPT)
    if f"optimiser{_SUFFIX}" not in snapshot or not kept:
        why = "the snapshot holds weights alone" if kept else "only moments of Adam and its kin are kept"
        print(f"{whose} begins anew: {why}", flush=True)
        return
    names = [name for name, _ in agent.model.named_parameters()]
    weights = {name: weight for name, weight in snapshot[_MODEL].items() if name in names}  # without buffers
    trained = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    if [*map(id, trained)] != [*map(id, agent.model.parameters())]:  # then the snapshot is ours, and in our order
        weights = {f"trained weight {number}": parameter for number, parameter in enumerate(trained)}
        names = list(weights)
    try:
        state = paired_moments(snapshot[f"optimiser{_SUFFIX}"], weights, names)
    except ValueError as error:
        print(f"{whose} begins anew, without the snapshot's moments: {error}", flush=True)
    else:
        optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
        print(f"{whose} goes on with the snapshot's moments", flush=True)


def weights_hash(model: torch.nn.Module, weights: Mapping[str, torch.Tensor] | None = None) -> str:
    """Return 16 hex digits that are the same for two runs exactly if both have learned the same, but for chance.

    The digits begin the SHA-256 of name, dtype, shape and bytes of all that is published, in the order of names: not of
    the noise of the moment, which is drawn. `weights` are those that the model has been given, as it may keep them
    rounded.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(acting_tensors(model).items()):
        array = (tensor if weights is None else weights[name]).detach().cpu().float().numpy()
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def last_model(folder: Path, game: str, steps: int) -> Path:
    """Return the path of a checkpoint."""
    return folder / f"last_model_{game}_{steps}.pth"


def choose(path: Path, game: str | None, *, or_the_only: bool = False) -> Path:
    """Return the snapshot that `--model` names, or the newest of a game in the folder that it names, and print which.

    The newest is the checkpoint with the most steps; without a checkpoint, the kept weights with the most steps. The
    two are not compared: without lockstep, checkpoints count the learner's steps and kept weights the actors'.
    `best_model_<game>.pth` is never chosen: its scores were selected to be high.

    Args:
        path: a file, which is taken as it is, or a folder.
        game: as it stands in the names of files; None for that of the newest run in the folder, by the files' times.
        or_the_only: takes the snapshots of the only run in the folder in the place of the game's, which that run may
            have played with others: its settings name them.

    Raises:
        UserError: the folder cannot be read, or holds no snapshot of the game.
    """
    if not path.is_dir():
        return path
    shown = short_path(path)
    try:
        matches = [(_OF_STEPS.fullmatch(file.name), file) for file in path.iterdir()]
    except OSError as error:
        raise UserError(f"--model: {shown} cannot be read ({error.strerror})") from error
    found = [(bool(match[1]), int(match[3]), file, match[2]) for match, file in matches if match]
    games = ", ".join(sorted({of for *_, of in found}))
    fitting = [candidate for candidate in found if game in (None, candidate[-1])]
    if or_the_only and not fitting and ", " not in games:
        fitting = found
    if not fitting:
        name = f"model_{game or '<game>'}_<steps>.pth"
        wanted = f"{'' if game is None else f' of {game}'} ({name} or last_{name})"
        raise UserError(f"--model: {shown} holds no snapshot{wanted}{games and f', only of {games}'}{_below(path)}")
    if game is None and ", " in games:
        *_, game = max(fitting, key=lambda candidate: (_written_at(candidate[2]), candidate))
        fitting = [candidate for candidate in fitting if candidate[-1] == game]
        print(
            f"{shown} holds snapshots of {games}; {game} is the newest run: --game chooses another (--env, if it is no "
            "Atari game)",
            flush=True,
        )
    _, _, newest, _ = max(fitting)
    print(f"The newest snapshot in {shown} is {newest.name}", flush=True)
    return newest


def _written_at(path: Path) -> int:
    """Return when a file was written [ns since 1970]; 0 if the learner of a running game has just removed it."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _below(path: Path) -> str:
    """Return a hint at folders below this one that have snapshots, as those of a sweep's runs; empty without any."""
    found = (file for depth in ("*", "*/*") for file in path.glob(f"{depth}/*model_*.pth"))
    there = {str(file.parent) for file in found if file.resolve().is_relative_to(path.resolve())}
    return f"; there are snapshots in {short_path(Path(min(there)))}" if there else ""


def last_models(folder: Path, game: str) -> list[Path]:
    """Return the paths of a game's checkpoints, the newest first."""
    matches = ((_OF_STEPS.fullmatch(path.name), path) for path in folder.glob("last_model_*.pth"))
    found = [(int(match[3]), path) for match, path in matches if match and match[2] == game]
    return [path for _, path in sorted(found, reverse=True)]


def _hindrance(error: Exception) -> str:
    """Return what keeps this process from reading a file that may be whole; empty if the file is at fault."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: an offset in a torn archive
        return error.strerror or type(error).__name__
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return "there is not enough memory for it"
    return ""


def _damage(error: Exception) -> str:
    """Return what is wrong with a file; the class of torch's error does not show it, as that depends on the content."""
    if isinstance(error, _ChecksumError):
        return "its content has changed since it was written: a checksum in it does not fit; use another copy"
    # torch's own text explains how to run code from the file, or names details of torch's reader.
    return "it is of another kind, or torn, or holds more than plain data"
