"""Train an agent on the experience that actors send through Redis."""

from rainbow_iqn_apex.programs.process import end_at_once, prepare_processor


def main() -> None:
    """Run the learner; installed, apex-learner does."""
    end_at_once()  # first: the imports that follow take seconds
    prepare_processor()
    from rainbow_iqn_apex.programs.launch import run_program

    run_program("rainbow_iqn_apex.programs.learner.program:run_learner", "launch_learner.py", __doc__ or "")


if __name__ == "__main__":
    main()
