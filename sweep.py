"""Train many runs: over games, agents, seeds and options, each in a folder of its own.

python sweep.py sweep.yaml --at-once 2     # two at a time, on this machine
python sweep.py sweep.yaml --slurm         # write results/sweep/sweep.sbatch, an array of Slurm

A file such as

  games: [pong, breakout]             # or environments: [gymnasium:CartPole-v1], or both
  agents: [impala, r2d2]
  seeds: [1, 2, 3]
  options: {preset: cpu, T-max: 200000}    # of every run: options of the learner
  vary: {hidden-size: [64, 256]}           # each value makes runs of its own

makes 24 runs of start_learning_atari.sh. Each has a Redis server of its own. Ctrl-C saves and stops them; the same
command goes on with those that have not finished. Runs of Atari come into one report, in report/ beside their folders.

Exit codes: 0 all have finished, or were stopped in good order; 1 a run has failed; 2 bad command or file.
"""

import sys

from rainbow_iqn_apex.programs.process import StopRequest, checked_output


def main() -> None:
    """Run the sweep; installed, apex-sweep does."""
    stop = StopRequest()
    stop.listen()
    from rainbow_iqn_apex.common.errors import UserError
    from rainbow_iqn_apex.options import command_line
    from rainbow_iqn_apex.programs.sweep.program import PROGRAM, run

    name = command_line.name_of(PROGRAM)
    with checked_output(name):
        try:
            sys.exit(run(sys.argv[1:], __doc__ or "", stop))
        except UserError as error:
            command_line.fail(name, error)


if __name__ == "__main__":
    main()
