"""Objects that existing code is written against, with a job or a broker behind them: Qiskit, Pulser, dimod."""
