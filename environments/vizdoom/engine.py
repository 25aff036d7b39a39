"""Starts and stops the engine of one VizDoom environment, a process of its own.

The engine must outlive a request to stop, which a terminal or systemd sends to it as well: an actor still finishes its
step. And it must end with its actor, also with one that is killed: alone it would wait for orders for ever. Its folder
and the names of its shared memory are removed once it runs, as nobody could remove them for a killed actor: it needs
neither any more.
"""

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import vizdoom

from rainbow_iqn_apex.common.signals import STOP_SIGNALS, blocked
from rainbow_iqn_apex.common.text import one_line

ERRORS = (
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)


def start(scenario: str, *, window: bool) -> tuple[vizdoom.DoomGame, int]:
    """Return a running game of a scenario, and the time limit [tics] that it shall have; 0: none.

    The engine draws 256 x 144 pixels in colour. Buttons that take a number are left out. Raises ValueError, in one
    line, if the engine does not start.
    """
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path, f"{scenario}.cfg")))
    game.set_mode(vizdoom.Mode.PLAYER)
    limit = game.get_episode_timeout()
    game.set_episode_timeout(0)  # the engine has no picture of the moment at which it ends an episode
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_256X144)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_available_buttons([each for each in game.get_available_buttons() if not each.name.endswith("_DELTA")])
    game.set_audio_buffer_enabled(False)
    game.set_automap_buffer_enabled(False)
    game.set_window_visible(window)
    game.set_doom_config_path(os.devnull)  # it saves its settings when it ends
    with tempfile.TemporaryDirectory(prefix="vizdoom-", ignore_cleanup_errors=True) as folder:
        game.set_vizdoom_path(str(_launcher(Path(folder))))
        try:
            with blocked(*STOP_SIGNALS):
                game.init()
        except ERRORS as error:
            raise ValueError(f"VizDoom's engine does not start: {one_line(error)}") from error
        finally:
            for kind in ("SM", "MQCtr", "MQDoom"):
                Path(f"/dev/shm/ViZDoom{kind}{game.get_instance_id()}").unlink(missing_ok=True)
    return game, limit


def _launcher(folder: Path) -> Path:
    """Write a script that runs the engine in a folder, for its files, and lets Linux kill it when its actor ends."""
    bound = "setpriv --pdeathsig KILL -- " if shutil.which("setpriv") else ""
    launcher = folder / "engine"
    launcher.write_text(f'#!/bin/sh\ncd {shlex.quote(str(folder))}\nexec {bound}{shlex.quote(vizdoom.exe_path)} "$@"\n')
    launcher.chmod(0o700)
    return launcher
