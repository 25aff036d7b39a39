"""Train an agent on the experience that actors send through Redis."""

from programs import processor, stopping

if __name__ == "__main__":
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    processor.prepare()
    from programs.common import run_program
    from programs.learner.program import run_learner

    run_program(run_learner, "launch_learner.py", "Train an agent on the experience that actors send through Redis.")
