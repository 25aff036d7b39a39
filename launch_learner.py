"""Train an agent on the experience that actors send through Redis."""

from agents.learner_program import run_learner
from agents.programs import run_program

if __name__ == "__main__":
    run_program(run_learner, "launch_learner.py", "Train an agent on the experience that actors send through Redis.")
