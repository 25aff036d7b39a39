"""Train an agent on the experience that actors send through Redis."""

import stopping

if __name__ == "__main__":
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    from agents.learner_program import run_learner
    from agents.programs import run_program

    run_program(run_learner, "launch_learner.py", "Train an agent on the experience that actors send through Redis.")
