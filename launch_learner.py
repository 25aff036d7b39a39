"""Train an agent on the experience that actors send through Redis."""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in these imports, which take seconds: no traceback
    from agents.learner_program import run_learner
    from agents.programs import run_program

    run_program(run_learner, "launch_learner.py", "Train an agent on the experience that actors send through Redis.")
