"""Films as animated GIFs, by Pillow, which comes with TensorBoard."""

import io

from PIL import Image

from rainbow_iqn_apex.monitoring.film import Film

MAX_BYTES = 1 << 20  # of a GIF; a tenth of that is usual
_MAX_PICTURES = 300  # 20 s of an Atari game
_COLOURS = 64  # of a picture: games have fewer
_LEAST_MS = 20  # of a picture: browsers show shorter ones for longer


def animate(film: Film) -> bytes:
    """Return a film as an endless GIF, with fewer pictures than the film if it would be too large."""
    film = film.thinned(_MAX_PICTURES)
    first, *others = (
        Image.fromarray(picture).quantize(_COLOURS, Image.Quantize.FASTOCTREE) for picture in film.pictures
    )
    buffer, duration = io.BytesIO(), max(_LEAST_MS, round(1000 / film.info.rate))
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    if buffer.tell() > MAX_BYTES and others:
        return animate(film.thinned((len(film.pictures) + 1) // 2))
    return buffer.getvalue()
