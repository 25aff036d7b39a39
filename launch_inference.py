"""Compute the actions of actors that are started with --inference server: they load no torch, and only play."""

from rainbow_iqn_apex.programs.process import end_at_once, prepare_processor


def main() -> None:
    """Run an inference server; installed, apex-inference does."""
    end_at_once()  # first: the imports that follow take seconds
    prepare_processor()
    from rainbow_iqn_apex.programs.launch import run_program

    run_program("rainbow_iqn_apex.programs.inference.program:run_inference", "launch_inference.py", __doc__ or "")


if __name__ == "__main__":
    main()
