"""How many bytes a second each topic of a broker may bring in, and when a topic is refused.

    total.bytes.in.per.sec.threshold    of a broker: for all of its topics together
    bytes.in.per.sec.threshold          of a topic, on each broker: explicit, taken out of the total

Topics without one share what the explicit ones leave, equally. Nobody is refused while the total holds: thresholds
decide who gives way when it does not.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Final

from include.tiering.errors import SettingError

TOTAL_THRESHOLD: Final = "total.bytes.in.per.sec.threshold"
TOPIC_THRESHOLD: Final = "bytes.in.per.sec.threshold"
_MOST_NAMED: Final = 5


def check_thresholds(total: int | None, explicit: Mapping[str, int]) -> None:
    """Whether these may be in force together, on one broker: the explicit ones must fit into the total.

    Ask before a topic's threshold is raised, before a topic brings a new one, and before a total is lowered; where
    brokers have totals of their own, once for each. Without a total any explicit ones fit.

    Raises:
        SettingError: naming the thresholds, their sum and the total.
    """
    negative = {topic: value for topic, value in explicit.items() if value < 0}
    if negative:
        raise SettingError(f"{TOPIC_THRESHOLD} must not be negative: {_named(negative)}")
    if total is None:
        return
    if total < 0:
        raise SettingError(f"{TOTAL_THRESHOLD} must not be negative: {total}")
    in_sum = sum(explicit.values())
    if in_sum > total:
        raise SettingError(
            f"the topics' {TOPIC_THRESHOLD} sum to {in_sum} bytes a second ({_named(explicit)}), {in_sum - total} above"
            f" {TOTAL_THRESHOLD} = {total}: lower one of them, or raise the total"
        )


def shared_threshold(total: int, explicit: Mapping[str, int], sharers: int) -> Fraction:
    """What each of `sharers` topics without a threshold may bring in; 0 if the explicit ones left nothing."""
    return Fraction(max(0, total - sum(explicit.values())), max(1, sharers))


def thresholds(total: int | None, explicit: Mapping[str, int], topics: Collection[str]) -> Mapping[str, Fraction | int]:
    """The threshold of each of `topics`. Without a total there is nothing to share: the explicit ones alone."""
    found: dict[str, Fraction | int] = {topic: explicit[topic] for topic in topics if topic in explicit}
    if total is not None:
        sharers = {topic for topic in topics if topic not in explicit}
        found |= dict.fromkeys(sharers, shared_threshold(total, explicit, len(sharers)))
    return found


def is_refused(
    total_rate: float,
    total_threshold: Fraction | int | None,
    topic_rate: float,
    topic_threshold: Fraction | int | None,
) -> bool:
    """Only if both are exceeded; a rate that equals its threshold does not exceed it. None is never exceeded."""
    return _exceeds(total_rate, total_threshold) and _exceeds(topic_rate, topic_threshold)


def _exceeds(rate: float, threshold: Fraction | int | None) -> bool:
    return threshold is not None and rate > threshold


def _named(explicit: Mapping[str, int]) -> str:
    """The largest ones by name, the rest as a number."""
    ordered = sorted(explicit.items(), key=lambda item: (-abs(item[1]), item[0]))
    named = [f"{topic} {value}" for topic, value in ordered[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else "")
