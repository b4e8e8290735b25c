"""Records, filtered and grouped for whoever renders them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Lines"]

_SAME = ("data", "protocol", "method", "reconstructor", "k", "seed")


class Lines:
    """Records of one benchmark, to be filtered and grouped.

    Parameters
    ----------
    records
        The records.

    Examples
    --------
    >>> lines = Lines([{"k": 20, "metrics": {"mse": 0.5}}, {"k": 30, "metrics": {"mse": 0.25}}])
    >>> lines.where(k=30).metric("mse")
    [0.25]
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.records)

    def where(self, **words: Any) -> Lines:
        """Select the records that have given values.

        Parameters
        ----------
        words
            Fields of the record, with their values.

        Returns
        -------
        Lines
            The matching records.
        """
        return Lines([one for one in self.records if all(one[name] == word for name, word in words.items())])

    def each(self, word: str) -> list[Any]:
        """Return the distinct values of a field, in the order of their first occurrence.

        Parameters
        ----------
        word
            Name of the field.

        Returns
        -------
        list
            Distinct values.
        """
        return list(dict.fromkeys(one[word] for one in self.records))

    def whatever_protocol(self) -> Lines:
        """Select the last record of each data set, method, K and seed, whatever its protocol.

        Returns
        -------
        Lines
            For benchmarks whose protocol, such as a time limit, changes some of the methods only.
        """
        names = ("data", "method", "reconstructor", "k", "seed")
        return Lines(list({tuple(one[name] for name in names): one for one in self.records}.values()))

    def latest(self, *swept: str) -> Lines:
        """Select the last successful record of each case, whatever its other settings: older ones are out of date.

        ``swept`` are settings of the selector that a benchmark varies: they make lines of different kinds.

        Parameters
        ----------
        swept
            Settings of the selector that the benchmark varies; records that differ in them are different cases.

        Returns
        -------
        Lines
            The latest records.
        """
        good = [one for one in self.records if one["status"] == "ok"]
        return Lines(list({_kind(one, swept): one for one in good}.values()))

    def metric(self, name: str, times: float = 1.0) -> list[float]:
        """Return one metric of each record that has it.

        Parameters
        ----------
        name
            Name of the metric.
        times
            Factor.

        Returns
        -------
        list of float
            One value for each record.
        """
        return [times * one["metrics"][name] for one in self.records if one["metrics"].get(name) is not None]

    def note(self, name: str) -> list[float]:
        """Return one note of each record that has it.

        Parameters
        ----------
        name
            Name of the note.

        Returns
        -------
        list of float
            One value for each record.
        """
        return [one["notes"][name] for one in self.records if name in one["notes"]]

    def provenance(self) -> str:
        """Describe when the records were made, with how many threads of which processor, and from which commits.

        Returns
        -------
        str
            One sentence.
        """
        commits = ", ".join(sorted({str(one["commit"])[:7] + (" + changes" if one["dirty"] else "") for one in self}))
        dates, threads = sorted(self.each("date")), ", ".join(map(str, sorted(self.each("threads"))))
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        hours = sum(one["seconds"] for one in self) / 3600
        kinds = sorted({str(one["processor"]) for one in self if "processor" in one})
        on = f" ({', '.join(kinds)})" if kinds else ""
        return f"{len(self)} lines, {when}, {hours:.1f} hours of {threads} thread(s){on}; commits {commits}."


def _kind(line: Mapping[str, Any], swept: Sequence[str]) -> tuple[Any, ...]:
    selector = line["settings"].get("selector", {})
    return *(line[name] for name in _SAME), *(selector.get(name) for name in swept)
