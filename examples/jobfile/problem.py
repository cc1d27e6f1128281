"""Write the QUBO of a maximum independent set: each sensor earns 1, each pair that interferes costs a penalty."""

import json
import sys

edges_file, step, iteration, qubo_file = sys.argv[1:]
with open(edges_file) as file:
    edges = [line.strip().split(",") for line in file if line.strip()]
penalty = float(step) * int(iteration)
sensors = sorted({sensor for edge in edges for sensor in edge})
qubo = {"linear": dict.fromkeys(sensors, -1), "quadratic": [[u, v, penalty] for u, v in edges], "offset": 0}
with open(qubo_file, "w") as file:
    json.dump(qubo, file)
