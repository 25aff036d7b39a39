"""Play games and send the experience to the learner through Redis; an evaluation actor sends its scores alone."""

from rainbow_iqn_apex.programs.process import end_at_once, prepare_processor


def main() -> None:
    """Run an actor; installed, apex-actor does."""
    end_at_once()  # first: the imports that follow take seconds
    prepare_processor()
    from rainbow_iqn_apex.programs.launch import run_program

    actor = "rainbow_iqn_apex.programs.actor"
    run_program(f"{actor}.program:run_actor", "launch_actor.py", __doc__ or "", load=f"{actor}.player:load")


if __name__ == "__main__":
    main()
