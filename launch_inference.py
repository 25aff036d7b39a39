"""Compute the actions of actors that are started with --inference server: they load no torch, and only play."""

from rainbow_iqn_apex.programs import stopping


def main() -> None:
    """Run an inference server; installed, apex-inference does."""
    stopping.end_at_once()  # first: the imports that follow take seconds
    from rainbow_iqn_apex.programs import processor

    processor.prepare()
    from rainbow_iqn_apex.programs.launch import run_program

    run_program("rainbow_iqn_apex.programs.inference.program:run_inference", "launch_inference.py", __doc__ or "")


if __name__ == "__main__":
    main()
