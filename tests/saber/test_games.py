from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.saber.games import check_game, games, rom_path


def test_games_are_sorted_and_without_those_for_several_players_only() -> None:
    assert list(games()) == sorted(set(games()))
    assert len(games()) == 104
    assert not {"combat", "joust", "maze_craze", "warlords"} & set(games())  # loading one ends the process


@pytest.mark.parametrize(("wrong", "right"), [("pongg", "pong"), ("SpaceInvaderNoFrameskip-v4", "space_invaders")])
def test_an_unknown_game_is_answered_with_the_close_names(wrong: str, right: str) -> None:
    assert f"{wrong!r}; did you mean {right}" in str(check_game(wrong))


def ids(game: str) -> list[str]:
    """The ids under which Gymnasium and the old Gym know a game (ale_py/registration.py), and a person's spellings."""
    name = "".join(word.capitalize() for word in game.split("_"))
    kinds = [f"{ram}{kind}" for ram in ("", "-ram") for kind in ("", "NoFrameskip", "Deterministic")]
    old = [f"{name}{kind}-v{version}" for kind in kinds for version in (0, 4)]
    return [*old, f"ALE/{name}-v5", f"ALE/{name}-ram-v5", name, game.replace("_", " ").upper(), game.replace("_", "-")]


@pytest.mark.parametrize("game", games())
def test_an_id_of_gymnasium_leads_to_its_game_alone(game: str) -> None:
    for name in set(ids(game)) - {game}:
        assert check_game(name) == f"unknown game {name!r}; did you mean {game}?"


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    assert "there are adventure, air_raid, alien" in str(check_game("%%%"))


@pytest.mark.parametrize("game", ["combat", "Pong", "../pong", ""])
def test_no_environment_of_an_unknown_game(game: str) -> None:
    with pytest.raises(ValueError, match="unknown game"):
        make_environment(EnvironmentSettings(game=game), 0)


@pytest.fixture
def roms_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ROMs in the place of ale-py's, with pong's own and another file under breakout's name."""
    (tmp_path / "pong.bin").write_bytes(Path(rom_path("pong")).read_bytes())
    (tmp_path / "breakout.bin").write_bytes(b"not breakout" * 200)
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    games.cache_clear()
    yield tmp_path
    games.cache_clear()


@pytest.mark.usefixtures("roms_dir")
def test_a_wrong_rom_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_game("pong") is None
    wrong, missing = str(check_game("breakout")), str(check_game("asterix"))
    for message, game in ((wrong, "breakout"), (missing, "asterix")):
        assert message.startswith(f"the ROM of {game} cannot be used: ")
        assert message.endswith("; reinstall ale-py, or correct ALE_ROMS_DIR if you have set it")
        assert "\n" not in message
    assert "does not match" in wrong and "No such file" in missing and "asterix.bin" in missing
    assert "unknown game 'pongg'; did you mean pong?" in str(check_game("pongg"))
    with pytest.raises(ValueError, match="the ROM of breakout cannot be used"):
        make_environment(EnvironmentSettings(game="breakout"), 0)
    assert make_environment(EnvironmentSettings(game="pong"), 0).reset().reward == 0
    assert capsys.readouterr().out == "", "ale-py says where it looks, for every game"


def test_a_folder_of_roms_that_is_not_there(roms_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(roms_dir / "gone"))
    assert f"{roms_dir / 'gone'} doesn't exist" in str(check_game("pong"))
