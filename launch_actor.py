"""Play games and send the experience to the learner through Redis."""

import stopping

if __name__ == "__main__":
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    from agents.actor import run_actor
    from agents.programs import run_program

    run_program(run_actor, "launch_actor.py", "Play games and send the experience to the learner through Redis.")
