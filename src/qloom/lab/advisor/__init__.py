"""Which strategy a job should take: tried in virtual time, over durations and waiting times that may come."""

from qloom.lab.advisor.advice import FALLBACK, Advice, Estimate, advise

__all__ = ["FALLBACK", "Advice", "Estimate", "advise"]
