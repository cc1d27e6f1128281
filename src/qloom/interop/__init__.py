"""Objects that existing code is written against, with a job or a broker behind them: dimod, Qiskit, Pulser, futures.

`transport.py` carries payloads to a QPU for all of them; `futures.py` carries calls to nodes.
"""
