import pytest

from saber.environment import EnvironmentSettings, make_environment
from saber.games import check_game, games

# Every game with a published score: the usual 57, and 5 more that Dopamine played.
SCORED = """
alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk bowling boxing breakout
centipede chopper_command crazy_climber defender demon_attack double_dunk enduro fishing_derby freeway frostbite gopher
gravitar hero ice_hockey jamesbond kangaroo krull kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix
pitfall pong private_eye qbert riverraid road_runner robotank seaquest skiing solaris space_invaders star_gunner
surround tennis time_pilot tutankham up_n_down venture video_pinball wizard_of_wor yars_revenge zaxxon
air_raid carnival elevator_action journey_escape pooyan
""".split()


def test_every_scored_game_is_there():
    assert [name for name in SCORED if check_game(name)] == []
    assert len(set(SCORED)) == 62


def test_games_are_sorted_and_without_those_for_several_players_only():
    assert games() == sorted(set(games()))
    assert len(games()) == 104
    assert not {"combat", "joust", "maze_craze", "warlords"} & set(games())  # loading one ends the process


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("MsPacman", "ms_pacman"), ("ms-pacman", "ms_pacman"), ("Space Invaders", "space_invaders"), ("pongg", "pong")],
)
def test_an_unknown_game_is_answered_with_the_close_names(wrong, right):
    assert f"{wrong!r}; did you mean {right}" in check_game(wrong)


def test_a_name_like_no_other_is_answered_with_all_names():
    assert "there are adventure, air_raid, alien" in check_game("%%%")


def test_changing_the_list_changes_nothing_for_the_next_caller():
    games().clear()
    assert "pong" in games()


@pytest.mark.parametrize("game", ["combat", "Pong", "../pong", ""])
def test_no_environment_of_an_unknown_game(game):
    with pytest.raises(ValueError, match="unknown game"):
        make_environment(EnvironmentSettings(game=game), 0)
