"""Which strategy a job should take: tried in virtual time, over durations and waiting times that may come."""

from qloom.advisor.advice import DEFAULT, Advice, Estimate, advise

__all__ = ["DEFAULT", "Advice", "Estimate", "advise"]
