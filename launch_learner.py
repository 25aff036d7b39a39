"""Train an agent on the experience that actors send through Redis."""

from programs import processor, stopping


def main() -> None:
    """Run the learner; installed, apex-learner does."""
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    processor.prepare()
    from programs.launch import run_program

    run_program("programs.learner.program:run_learner", "launch_learner.py", str(__doc__))


if __name__ == "__main__":
    main()
