"""Objects that existing code is written against, with a broker behind them: Qiskit, Pulser, dimod."""
