"""The process of an envpool engine: python envpool_child.py <scenario> <seed>.

It reads a byte for each step from its input, the action or RESET, and writes a reply to its output: HEADER, then the
four planes, a bit for each point. It ends with its input. It imports nothing of this repository, to start sooner.
"""

import os
import struct
import sys
import warnings

import numpy as np

RESET = 255
HEADER = struct.Struct("<iibb")  # goals of both teams; whether the match is over, and whether the time is up


def main() -> None:
    """Play what is asked for."""
    scenario, seed = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the engine prints is no reply
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about envpool's other environments
        import envpool

        pool = envpool.make_gymnasium(f"gfootball/{scenario}-v1", num_envs=1, num_threads=1, seed=int(seed))
    while request := os.read(0, 1):
        is_over = is_late = False
        if request[0] == RESET:
            obs, info = pool.reset()
        else:
            obs, _, terminated, truncated, info = pool.step(np.array([request[0]], np.int32))
            is_over, is_late = bool(terminated[0]), bool(truncated[0])
        left, right = info["score"][0].tolist()
        planes = np.packbits(obs[0].transpose(2, 0, 1) != 0)
        replies.write(HEADER.pack(left, right, is_over, is_late) + planes.tobytes())
        replies.flush()


if __name__ == "__main__":
    main()
