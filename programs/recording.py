"""Checks, before hours are spent, that an environment can be filmed."""

import tempfile
from contextlib import closing
from pathlib import Path

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.monitoring.video import write_video
from rainbow_iqn_apex.programs.common import open_environment

EVALUATIONS = "--record-evaluations"


def try_to_record(args: Args, option: str, folder: Path) -> None:
    """Film one picture in a folder, to fail now if anything for films is missing; raises UserError."""
    with closing(open_environment(args, args.seed, recorded_by=option)) as environment:
        environment.reset()
        if not (pictures := environment.pictures() if hasattr(environment, "pictures") else []):
            raise UserError(f"{option}: {args.env} draws no pictures")
        if not hasattr(environment, "pictures_per_second"):
            raise UserError(f"{option}: {args.env} has no pictures_per_second; see environments/interface.py")
        try:
            with (
                tempfile.TemporaryDirectory(dir=folder) as place,
                write_video(Path(place) / "x.webm", environment.pictures_per_second) as video,
            ):
                video.add(pictures)
        except OSError as error:
            raise UserError(f"{option}: {error}") from error
