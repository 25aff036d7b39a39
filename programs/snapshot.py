"""Snapshots: checkpoints `last_model_<game>_<steps>.pth`, `best_model_<game>.pth`, and other people's for evaluation.

A snapshot is a dictionary of tensors and plain values that `torch.load(weights_only=True, map_location="cpu")` opens.
Each has `T_actors, T_learner, model_state_dict, optimiser_state_dict`. Snapshots of this program hold all that a resume
needs, except `model_<game>_<steps>.pth`, which hold weights alone.
"""

import errno
import hashlib
import io
import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent, Stateful
from rainbow_iqn_apex.agents.networks.network import Network, acting_tensors
from rainbow_iqn_apex.agents.ops.shapes import shape_text
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import ANYWHERE, open_regular, replace_file, short_path
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.text import name_error, one_line

_SUFFIX = "_state_dict"
_MODEL = f"model{_SUFFIX}"
_KEPT = (torch.optim.Adam, torch.optim.RAdam)  # optimisers whose moments `_paired_moments` reads
_MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam and its kin
_NOISE = "_epsilon"  # buffers that are drawn again before they are used: a snapshot may leave them out
_OF_STEPS = re.compile(r"(last_)?model_([\w.-]+)_(\d+)\.pth")
_ZIP = b"PK\3\4"  # by these four bytes torch.load distinguishes an archive from a snapshot of the old format
_FOLDER = 0x10  # attribute of an archive's entry
_READ_BYTES = 1 << 20
_SHARED = 8  # times that parts of an agent may hold the same weights
_MAKES_BYTES = b"bytearray\n"  # in a pickle: from a number, it makes as many bytes as that is


class DamagedError(UserError):
    """A file is not what was written: torn, changed, or of another kind."""


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
    unreadable = f"{named} cannot be read as a snapshot"
    try:
        with open_regular(path, folder) as file, warnings.catch_warnings(action="ignore"):  # one line names the fault
            size = os.fstat(file.fileno()).st_size
            _check_archive(file)
            snapshot = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(unreadable, error) from error
    if fault := _oversized(snapshot, size):
        raise DamagedError(f"{unreadable} ({fault})")
    if not isinstance(snapshot, dict) or not isinstance(weights := snapshot.get(_MODEL), dict):
        raise UserError(f"{named} is not a snapshot: it holds no {_MODEL}")
    if fault := check_weights(weights):
        raise UserError(f"{named} cannot be used: {fault}")
    return snapshot


def _check_archive(file: BinaryIO) -> None:
    """Verify sizes and checksums of an archive, which torch.load would not; leaves the file at its beginning.

    torch.save compresses nothing, so a file needs no more memory than it has bytes. Raises ValueError for one that
    would, BadZipFile for a changed record or an archive without structure.
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
                with archive.open(entry) as record:
                    while record.read(_READ_BYTES):  # zipfile compares the checksum at its end: 0.6 s a GB
                        pass
    file.seek(0)
    end = b""
    while block := file.read(_READ_BYTES):
        if _MAKES_BYTES in end + block:
            raise ValueError("it makes bytes of a number")
        end = block[-len(_MAKES_BYTES) :]
    file.seek(0)


def _unreadable(named: str, error: Exception) -> UserError:
    """Return the error that names what keeps this process from reading a file; a DamagedError if it is the file."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: an offset in a torn archive
        return UserError(f"{named} ({error.strerror or type(error).__name__})")
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return UserError(f"{named} (there is not enough memory for it)")
    if isinstance(error, zipfile.BadZipFile) and "CRC" in str(error):
        return DamagedError(
            f"{named} (its content has changed since it was written: a checksum in it does not fit; use another copy)"
        )
    # torch's own text explains how to run code from the file, or names details of torch's reader.
    return DamagedError(f"{named} (it is of another kind, or torn, or holds more than plain data)")


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
        if isinstance(value, Tensor) and value.layout == torch.strided:
            size = value.numel() * value.itemsize
            if value.device.type != "cpu" or value.is_nested or size > value.untyped_storage().nbytes():
                return f"its tensor {name} has more elements than are stored"
            left -= size
            if left < 0:
                return f"its tensors, up to {name}, have more elements than are stored"
        elif isinstance(value, dict):
            waiting += ((one_line(key, 80) if isinstance(key, str | int) else "?", of) for key, of in value.items())
        elif isinstance(value, list | tuple):
            waiting += ((name, of) for of in value)
    return ""


def check_weights(weights: dict[str, Any]) -> str:
    """Return why no network can use a state dict; empty if one can."""
    strange = [str(name) for name, value in weights.items() if not (isinstance(name, str) and _is_plain(value))]
    if strange:
        return f"{_some(strange)} is not a tensor of numbers"
    if broken := [name for name, value in weights.items() if not value.float().isfinite().all()]:
        return f"{_some(broken)} has values that are not finite"
    return ""


def _is_plain(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return not (value.is_complex() or value.is_quantized)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def settings_of(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the run that wrote a snapshot, as they stand there; empty in other programs' snapshots."""
    try:
        settings = json.loads(snapshot.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


# --- which file ---


def last_model(folder: Path, game: str, steps: int) -> Path:
    """Return the path of a checkpoint."""
    return folder / f"last_model_{game}_{steps}.pth"


class _Found(NamedTuple):
    """A snapshot in a folder; the largest of a game is its newest."""

    is_checkpoint: bool
    steps: int
    path: Path
    game: str


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
    found = [_Found(bool(match[1]), int(match[3]), file, match[2]) for match, file in matches if match]
    games = ", ".join(sorted({one.game for one in found}))
    fitting = [one for one in found if game in (None, one.game)]
    if or_the_only and not fitting and ", " not in games:
        fitting = found
    if not fitting:
        name = f"model_{game or '<game>'}_<steps>.pth"
        wanted = f"{'' if game is None else f' of {game}'} ({name} or last_{name})"
        raise UserError(f"--model: {shown} holds no snapshot{wanted}{games and f', only of {games}'}{_below(path)}")
    if game is None and ", " in games:
        game = max(fitting, key=lambda one: (_written_at(one.path), one)).game
        fitting = [one for one in fitting if one.game == game]
        print(
            f"{shown} holds snapshots of {games}; {game} is the newest run: --game chooses another (--env, if it is no "
            "Atari game)",
            flush=True,
        )
    newest = max(fitting).path
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


# --- into an agent ---


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
            if lines := list(_misfits(weights, own, agent.sizes_of)):
                raise UserError("\n".join(lines))
            part.load_state_dict(own | weights)
        elif trains and isinstance(part, torch.optim.Optimizer):
            _restore_moments(part, agent, snapshot)
        elif trains and isinstance(part, Network):
            print(f"The network {name!r} begins anew: the agent's `learned` does not name it", flush=True)


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
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
        state = _paired_moments(snapshot[f"optimiser{_SUFFIX}"], weights, names)
    except ValueError as error:
        print(f"{whose} begins anew, without the snapshot's moments: {error}", flush=True)
    else:
        optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
        print(f"{whose} goes on with the snapshot's moments", flush=True)


def weights_hash(model: torch.nn.Module, weights: Mapping[str, Tensor] | None = None) -> str:
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


# --- weights that do not fit, and moments that may ---


def _misfits(
    weights: dict[str, Tensor], own: dict[str, Tensor], read: Callable[[dict[str, Tensor]], dict[str, Any]]
) -> Iterator[str]:
    """Yield why `weights` do not fit a network whose state is `own`: lines that name the setting to change.

    `read` is the agent's way to read its settings from weights, `Agent.sizes_of`.
    """
    try:
        saved = read(weights)
        wanted = read(own)
    except ValueError as error:
        yield f"--model: the snapshot is not of Rainbow-IQN or Rainbow: {error}"
        return
    lines = differences(saved, wanted)
    yield from lines
    if not lines:  # else the names and shapes that follow from a wrong setting would only hide it
        yield from (f"--model: {text}" for text in _other_names(weights, own) or _other_shapes(weights, own))


def differences(saved: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return a line for each setting that a snapshot has with another value than is `wanted`."""
    return [_line(name, saved[name], wanted[name]) for name in wanted if saved.get(name, wanted[name]) != wanted[name]]


def _line(name: str, saved: Any, wanted: Any) -> str:
    if name == "nb_actions":
        return f"--model: the snapshot chooses among {saved} actions, this environment has {wanted}"
    if name == "history_length":  # the shapes show their product alone
        return f"{flag_of(name)}: the snapshot's weights need {saved} pictures (of colour: times 3), here are {wanted}"
    return f"{flag_of(name)}: the snapshot's weights need {saved}, is {wanted}"


def _other_names(weights: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    missing = sorted(name for name in own.keys() - weights.keys() if not name.endswith(_NOISE))
    extra = sorted(weights.keys() - own.keys())
    texts = [f"the snapshot lacks {_some(missing)}"] if missing else []
    return texts + ([f"the snapshot has {_some(extra)}, which these settings have no place for"] if extra else [])


def _other_shapes(weights: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    texts = [
        f"the snapshot's {name} is {shape_text(tensor.shape)}, expected {shape_text(own[name].shape)}"
        for name, tensor in weights.items()
        if tensor.shape != own[name].shape
    ]
    whole = [name for name, value in weights.items() if own[name].is_floating_point() > value.is_floating_point()]
    return texts + ([f"the snapshot's {_some(whole)} is of whole numbers"] if whole else [])


def _paired_moments(optimiser: Any, weights: dict[str, Tensor], own: Iterable[str]) -> dict[int, dict[str, Tensor]]:
    """Return a snapshot's state of Adam, for parameters that stand in the order `own`.

    An optimiser knows its parameters by number, in the order of the module that they come from. That order is the one
    of the snapshot's `weights`; networks with the same names may have been built in another.

    Raises:
        ValueError: there is none, or it is not one of such an optimiser for these weights.
    """
    names = [name for name in weights if not name.endswith(_NOISE)]
    try:
        if optimiser["param_groups"] and not optimiser["state"]:
            raise ValueError("its optimiser has made no step yet, as in snapshots that an actor has saved")
        numbers = [number for group in optimiser["param_groups"] for number in group["params"]]
        if len(numbers) != len(names):
            raise ValueError(f"they are of {len(numbers)} weights, and {len(names)} are trained")
        states = {name: optimiser["state"][number] for name, number in zip(names, numbers, strict=True)}
        return {i: _checked_moments(name, states[name], weights[name]) for i, name in enumerate(own)}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a state of Adam: {type(error).__name__} {error}") from error


def _checked_moments(name: str, state: dict[str, Any], weight: Tensor) -> dict[str, Tensor]:
    moments = {key: state[key] for key in _MOMENTS}
    for key, tensor in moments.items():
        if not _is_plain(tensor) or tensor.shape != weight.shape or not tensor.float().isfinite().all():
            raise ValueError(f"{key} of {name} does not fit the weights, or is not finite")
    step = float(state["step"])
    if not 0 <= step < math.inf or (moments["exp_avg_sq"].float() < 0).any():
        raise ValueError(f"the step or the second moment of {name} is negative, or not finite")
    return {"step": torch.tensor(step)} | moments
