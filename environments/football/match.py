"""What both engines of football have in common: planes, actions, how a match ends, and pictures of the pitch."""

import cv2
import numpy as np

from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, packed, unpack
from rainbow_iqn_apex.memory.rows import Array

PLANES = ("left team", "right team", "ball", "active player")
CHOICE = Discrete(19)  # of gfootball's default set
STEPS_PER_SECOND = 10.0  # of game time
ENDS = ("", "game_over", "time_limit")
_SCALE = 8  # pixels of a picture for a point of a plane
_GRASS, _LINE = (52, 120, 60), (220, 230, 220)
_COLOURS = ((220, 60, 50), (60, 90, 230), (255, 255, 255), (255, 220, 60))  # of the planes
_RADII = (7, 7, 4, 10)
_ORDER = (3, 0, 1, 2)  # the active player is a ring behind the player, and the ball lies above all


def spec_of(size: tuple[int, int]) -> EnvironmentSpec:
    """Return the spec of planes of this height and width, a bit for each of their points."""
    return EnvironmentSpec(packed(Field((len(PLANES), *size), "bool")), CHOICE)


def draw(obs: Array, field: Field) -> Array:
    """Return a picture [8 height, 8 width, 3] uint8 RGB of packed planes."""
    planes = unpack(field, obs)[0]  # [4, height, width]
    height, width = (_SCALE * side for side in planes.shape[1:])
    picture = np.full((height, width, 3), _GRASS, np.uint8)
    _draw_lines(picture, height, width)
    for plane in _ORDER:
        for y, x in np.argwhere(planes[plane]):
            centre = (int(x) * _SCALE + _SCALE // 2, int(y) * _SCALE + _SCALE // 2)
            cv2.circle(picture, centre, _RADII[plane], _COLOURS[plane], cv2.FILLED, cv2.LINE_AA)
    return picture


def _draw_lines(picture: Array, height: int, width: int) -> None:
    """Draw the touchlines at 0.42 of the engine's coordinates, which reach to 1 / 2.25, and the goals."""
    edge = round(height * (1 - 0.42 * 2.25) / 2)
    middle = (width // 2, height // 2)
    goal = round(height * 0.044 * 2.25 / 2)
    cv2.rectangle(picture, (0, edge), (width - 1, height - 1 - edge), _LINE, 2)
    cv2.line(picture, (middle[0], edge), (middle[0], height - 1 - edge), _LINE, 2)
    cv2.circle(picture, middle, height // 8, _LINE, 2)
    for x in (0, width - 1):
        cv2.line(picture, (x, middle[1] - goal), (x, middle[1] + goal), _LINE, 12)
