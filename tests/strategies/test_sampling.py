from hypothesis import given
from hypothesis import strategies as st

from strategies.sampling import sample_partitions


@given(st.integers(0, 2**40), st.integers(1, 10**6), st.integers(1, 200), st.floats(0.001, 1.0))
def test_samples_are_sorted_distinct_and_of_the_right_number(
    seed: int, server_round: int, clients: int, fraction: float
) -> None:
    sampled = sample_partitions(seed, server_round, clients, fraction)
    assert sampled == sorted(set(sampled))
    assert set(sampled) <= set(range(clients))
    assert len(sampled) == max(1, round(fraction * clients))
    assert sampled == sample_partitions(seed, server_round, clients, fraction)


def test_a_fraction_is_rounded_and_not_cut() -> None:
    """Flower takes int(n * fraction), which makes 28 of 100 x 0.29."""
    assert len(sample_partitions(0, 1, 100, 0.29)) == 29


def test_rounds_and_seeds_differ_and_every_client_has_its_turn() -> None:
    samples = [tuple(sample_partitions(0, r, 20, 0.25)) for r in range(1, 101)]
    assert len(set(samples)) > 90
    counts = [sum(client in sample for sample in samples) for client in range(20)]
    assert min(counts) > 8  # 25 expected; 8 is four standard deviations below
    assert sample_partitions(1, 1, 20, 0.25) != sample_partitions(0, 1, 20, 0.25)
