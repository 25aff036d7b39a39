"""Play games and send the experience to the learner through Redis."""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in these imports, which take seconds: no traceback
    from agents.actor import run_actor
    from agents.programs import run_program

    run_program(run_actor, "launch_actor.py", "Play games and send the experience to the learner through Redis.")
