"""Play games and send the experience to the learner through Redis."""

from programs import processor, stopping

if __name__ == "__main__":
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    from programs.actor.program import run_actor

    processor.prepare()
    from programs.common import run_program

    run_program(run_actor, "launch_actor.py", "Play games and send the experience to the learner through Redis.")
