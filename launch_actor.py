"""Play games and send the experience to the learner through Redis."""

from agents.actor import run_actor
from agents.programs import run_program

if __name__ == "__main__":
    run_program(run_actor, "launch_actor.py", "Play games and send the experience to the learner through Redis.")
