"""The encoder of all agents: pictures of any size, colours and stack through every architecture, and vectors."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.duelling import DuellingNetwork, NetworkSpec
from rainbow_iqn_apex.agents.networks.encoder import Encoder, EncoderSpec, Trunk, Words
from rainbow_iqn_apex.agents.networks.trunks import TRUNKS
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.environment_spec import Field, pack, packed

SHAPES = {"grey": (84, 84), "colours": (3, 96, 80), "planes": (4, 72, 96)}
FIELDS = {name: Field(shape, "uint8") for name, shape in SHAPES.items()}
every_trunk = pytest.mark.parametrize("architecture", TRUNKS)
B, S = 3, 2


def observations(field: Field) -> Tensor:
    return torch.randint(256, (B, S, *field.shape), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


def slow(trunk: Trunk, obs: Tensor) -> Tensor:
    """The features in float64, of one sample after the other."""
    body = copy.deepcopy(trunk.body).double()
    pictures = (obs.double() / 255).reshape(B, -1, *obs.shape[-2:])  # [B, S * C, H, W]
    return torch.stack([body(picture[None]).flatten() for picture in pictures])


@every_trunk
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("learns", [True, False])
def test_features_are_those_of_the_layers(architecture: str, name: str, learns: bool) -> None:
    # Mutations: do not scale the bytes; take the colours of a stack for its pictures (a transposed flatten).
    field = FIELDS[name]
    trunk = Trunk(EncoderSpec(field, S, architecture, 7, learns=learns))
    obs = observations(field)
    features = trunk(obs)
    assert features.shape == (B, trunk.nb_features)
    torch.testing.assert_close(features.double(), slow(trunk, obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("architecture", "precision"), [("canonical", torch.bfloat16), ("deep", torch.float32)])
def test_a_pool_leaves_the_largest_of_each_part(architecture: str, precision: torch.dtype) -> None:
    # Mutations: take means; pool to one row and column more.
    field = Field((3, 64, 80), "uint8")
    spec = EncoderSpec(field, S, architecture, 7, precision)
    trunk, pooled = Trunk(spec), Trunk(replace(spec, pool=3))
    pooled.body.load_state_dict(trunk.body.state_dict())
    obs = observations(field)
    with trunk.rounding(obs):
        maps = trunk.body(obs.flatten(1, 2).to(precision) * trunk.observation.scale)  # [B, C, H, W]
    height, width = maps.shape[2:]
    for y, x in itertools.product(range(3), range(3)):
        part = maps[:, :, y * height // 3 : -(-(y + 1) * height // 3), x * width // 3 : -(-(x + 1) * width // 3)]
        found = pooled(obs).view(B, -1, 3, 3)[:, :, y, x]
        torch.testing.assert_close(found.float(), part.amax((2, 3)).float(), rtol=0.05, atol=0.02)
    assert pooled.nb_features == maps.shape[1] * 9
    assert pooled._kept[:-2] == trunk._kept[:-1], "the same layers come before"
    assert pooled._kept[-2] == maps.shape[1] * 9 * 8 // precision.itemsize, "a pool keeps the places of its outputs"


def test_a_pool_never_makes_maps_larger() -> None:
    spec = EncoderSpec(Field((3, 64, 80), "uint8"), S, "canonical", 7, pool=5)
    with pytest.raises(UserError, match=r"^--pool: .* canonical are 4x6 here; expected at most 4, or 0, got 5$"):
        Trunk(spec)


@every_trunk
@pytest.mark.parametrize("name", FIELDS)
def test_every_weight_counts(architecture: str, name: str) -> None:
    field = FIELDS[name]
    encoder = Encoder(EncoderSpec(field, S, architecture, 32))  # so many that some are above 0
    obs = observations(field)
    features = encoder(obs)
    assert features.shape == (B, 32)
    features.sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())


@pytest.mark.parametrize("kind", [Trunk, Encoder])
def test_vectors_go_through_linear_layers(kind: type[Trunk]) -> None:
    encoder = kind(EncoderSpec(Field((5,), "uint8"), S, "deep", 7))
    obs = torch.randint(256, (B, S, 5), dtype=torch.uint8)
    first = encoder.body[0]
    assert isinstance(first, nn.Linear)
    x = functional.relu(functional.linear(obs.flatten(1) / 255, first.weight, first.bias))
    expected = functional.relu(encoder.dense(x)) if isinstance(encoder, Encoder) else x
    torch.testing.assert_close(encoder(obs), expected)


SCENE = packed(
    Field((3, 24, 20), "uint8"), Field((5,), "float32"), Field((30, 16), "uint8"), Field((3, 17, 19), "bool"),
    Field((17, 23), "int16", vocabulary=256), Field((6,), "int16", vocabulary=256),
)  # fmt: skip


@pytest.mark.parametrize("sizes", [(B, S), (1, 1)])
@pytest.mark.parametrize("learns", [True, False])
def test_each_kind_goes_through_a_trunk_of_its_own(sizes: tuple[int, int], learns: bool) -> None:
    # Mutations: take the numbers from a byte later; look at one kind alone; take bits from the last to the first.
    draw = np.random.default_rng(1)
    kinds = [draw.integers(256, size=(*sizes, *field.shape)).astype(field.dtype) for field in SCENE.inner]
    rows = [[pack(kind[b, s] for kind in kinds) for s in range(sizes[1])] for b in range(sizes[0])]
    obs = torch.from_numpy(np.array(rows))  # [B, S, n]
    trunk = Trunk(EncoderSpec(SCENE, sizes[1], "deep", 7, learns=learns))
    expected = [inner(torch.from_numpy(kind)) for inner, kind in zip(trunk.inner, kinds, strict=True)]
    torch.testing.assert_close(trunk(obs), torch.cat(expected, 1))
    encoder = Encoder(EncoderSpec(SCENE, sizes[1], "deep", 7, torch.bfloat16, learns))
    encoder(obs).sum().backward()
    assert encoder.update_bytes(4, 2) > obs[0].numel()
    network = DuellingNetwork(NetworkSpec(EncoderSpec(SCENE, sizes[1], "deep", 8), 4, 0.1), outputs=1)
    assert network.features(obs).shape == (sizes[0], network.nb_features)
    torch.autograd.grad(network.features(obs).sum(), list(network._trunk[0].parameters()))  # all have one


@pytest.mark.parametrize(("architecture", "side"), [("canonical", 33), ("data-efficient", 24), ("shallow", 33)])
def test_a_picture_smaller_than_what_an_architecture_looks_at_is_refused(architecture: str, side: int) -> None:
    Trunk(EncoderSpec(Field((side + 1, side + 1), "uint8"), 1, architecture, 7))
    line = rf"--architecture {architecture}: .* pictures of 3x40x{side} \(\[H, W\] or \[C, H, W\]\); choose .* deep"
    with pytest.raises(UserError, match=line) as raised:
        Trunk(EncoderSpec(Field((3, 40, side), "uint8"), 1, architecture, 7))
    assert "\n" not in str(raised.value)


@every_trunk
def test_value_agents_take_every_trunk_and_name_the_published_ones(architecture: str) -> None:
    network = DuellingNetwork(NetworkSpec(EncoderSpec(FIELDS["colours"], S, architecture, 8), 4, 0.1), outputs=1)
    names = {name.partition(".")[0] for name, _ in network.named_parameters() if not name.startswith("fcnoisy")}
    published = {"canonical": {"conv1", "conv2", "conv3"}, "data-efficient": {"conv1", "conv2"}}
    assert names == published.get(architecture, {"trunk"})
    obs = observations(FIELDS["colours"])
    torch.testing.assert_close(network.features(obs).double(), slow(network._trunk[0], obs), rtol=1e-4, atol=1e-5)
    torch.autograd.grad(network.features(obs).sum(), list(network._trunk[0].parameters()))  # all have one


def test_a_text_is_read_to_its_last_word_by_an_lstm() -> None:
    # Mutations: read the zeros behind the last word; the older of the stacked texts; numbers beyond the vocabulary.
    torch.manual_seed(0)
    texts = torch.tensor([[5, 9, 2, 0, 0], [7, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 9]])
    words = Words(10)
    found = words(texts)
    for text, features in zip(texts, found, strict=True):
        read = text[text > 0]
        expected = words.lstm(words.embedding(read)[None])[1][0].flatten() if len(read) else torch.zeros(64)
        torch.testing.assert_close(features, expected)
    torch.testing.assert_close(words(torch.tensor([[300]])), words(torch.tensor([[9]])))
    trunk = Trunk(EncoderSpec(Field((5,), "int16", vocabulary=10), 2, "deep", 7))
    stacked = torch.stack([torch.roll(texts, 1, 0), texts], 1)  # [B, S, W]
    torch.testing.assert_close(trunk(stacked), trunk.body[0](texts))


def test_the_football_network_begins_lecun_normal() -> None:
    # Mutation: leave out the cut's deviation, or the dense layer.
    torch.manual_seed(0)
    encoder = Encoder(EncoderSpec(Field((4, 72, 96), "uint8"), 1, "deep-football", 256))
    layers = [layer for layer in encoder.modules() if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(layers) == 4 * 5 + 1 and encoder.dense.weight.shape == (256, 32 * 5 * 6)
    for layer in layers:
        scaled = layer.weight.detach() * layer.weight[0].numel() ** 0.5
        assert scaled.std().item() == pytest.approx(1, abs=4 / scaled.numel() ** 0.5)
        assert scaled.abs().max() <= 2 / 0.8796
        assert layer.bias is not None and not layer.bias.any()


@every_trunk
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_a_map_of_symbols_is_seen_as_what_is_learned_of_each(architecture: str, dtype: str) -> None:
    # Mutations: scale the symbols as shades; mix up planes and places; leave the embedding out of a value network.
    field = Field((2, 40, 48), dtype, vocabulary=200)
    obs = observations(field).remainder(210).to(getattr(torch, dtype))  # some beyond the vocabulary, as the last
    trunk = Trunk(EncoderSpec(field, S, architecture, 7))
    assert trunk.symbols is not None
    table = trunk.symbols.embedding.weight
    maps = [table[plane.long().clamp(max=199)].permute(0, 3, 1, 2) for plane in obs.flatten(1, 2).unbind(1)]
    torch.testing.assert_close(trunk(obs), trunk.body(torch.cat(maps, 1)).flatten(1), rtol=1e-4, atol=1e-5)
    network = DuellingNetwork(NetworkSpec(EncoderSpec(field, S, architecture, 8), 4, 0.1), outputs=1)
    assert any(name.endswith("symbols.embedding.weight") for name in network.state_dict())
