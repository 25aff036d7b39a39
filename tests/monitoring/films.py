"""Films for the tests: each number of their descriptions is another, and so is each picture."""

import numpy as np

from rainbow_iqn_apex.monitoring.video import Film, FilmInfo

INFO = FilmInfo(
    score=12.5, at=1.5e9, rate=15.0, step=7000, version=31, actor=4, episode=9, stride=2, pictures=6, height=5, width=7
)


def film(
    score: float = INFO.score, pictures: int = INFO.pictures, height: int = 5, width: int = 7, **more: float
) -> Film:
    """Return a film of moving stripes."""
    shape = (pictures, height, width, 3)
    moving = np.fromfunction(lambda n, y, x, c: 40 * n + 9 * y + 5 * x + 80 * c, shape).astype(np.uint8)
    values = INFO.__dict__ | {"score": score, "pictures": pictures, "height": height, "width": width} | more
    return Film(FilmInfo(**values), moving)
