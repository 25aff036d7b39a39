"""Write a sweep as an array of Slurm, a run a task; nothing of ours schedules."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import write_file
from rainbow_iqn_apex.programs.sweep.runs import Run

SCRIPT = "sweep.sbatch"


def write(runs: Sequence[Run], folder: Path, command: Sequence[str], at_once: int | None) -> Path:
    """Write the script that sbatch takes, of these runs; `command` runs one when its name is added. Raises OSError.

    The script has the names of the runs, so that it means the same ones when the sweep's file has changed.
    """
    place = str(folder.resolve())
    if not place.isprintable() or '"' in place or "%" in place:
        raise UserError(f"--path-to-results: expected a folder whose name sbatch can take, got {place!r}")
    limit = f"%{at_once}" if at_once else ""
    lines = [
        "#!/usr/bin/env bash",
        "#SBATCH --job-name=sweep",
        f"#SBATCH --array=0-{len(runs) - 1}{limit}",
        f'#SBATCH --output="{place}/slurm_%A_%a.log"',
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:TERM@120  # time to save before the job's limit",
        "#SBATCH --requeue  # after a node has failed: the run goes on",
        "runs=(",
        *(f"  {shlex.quote(run.name)}" for run in runs),
        ")",
        f"cd -- {shlex.quote(str(Path.cwd()))}",
        f'exec {shlex.join(command)} --only "${{runs[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    path = folder / SCRIPT
    write_file(path, "\n".join([*lines, ""]).encode())
    return path
