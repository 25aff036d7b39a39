"""Evaluate a snapshot (--model) over several seeds, and print its scores.

What belongs to its network and policy is read from the snapshot: the defaults below do not apply to these.
"""

from rainbow_iqn_apex.programs.process import end_at_once, prepare_processor


def main() -> None:
    """Run the evaluation; installed, apex-eval does."""
    end_at_once()  # first: the imports that follow take seconds
    prepare_processor()
    from rainbow_iqn_apex.programs.launch import run_program

    run_program("rainbow_iqn_apex.programs.evaluation.program:run_evaluation", "test_multiple_seed.py", __doc__ or "")


if __name__ == "__main__":
    main()
