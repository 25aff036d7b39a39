"""Evaluate a snapshot over several seeds and print its scores."""

from programs import processor, stopping

if __name__ == "__main__":
    stopping.end_at_once()  # also during the imports that follow, which take seconds
    processor.prepare()
    from programs.common import run_program
    from programs.evaluation.program import run_evaluation

    run_program(
        run_evaluation,
        "test_multiple_seed.py",
        "Evaluate a snapshot (--model) over several seeds, and print its scores. What belongs to its network and "
        "policy is read from it: the defaults told here for these do not count.",
    )
