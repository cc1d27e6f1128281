"""Functions that other packages ship, run as programs: each is given an object of the job, and nothing is changed."""

import dwave.graphs
import joblib
import networkx
import pennylane as qml
from dwave.system import EmbeddingComposite
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC


def independent_set(job, nodes=8):
    """dwave-graphs: the largest set of nodes of a ring of which no two are neighbours."""
    sampler = job.dimod_sampler()
    return len(dwave.graphs.maximum_independent_set(networkx.cycle_graph(nodes), sampler))


def embedded_cut(job, nodes=5):
    """dwave-graphs and dwave-system: a maximum cut of a complete graph, embedded in the graph of an annealer."""
    sampler = EmbeddingComposite(job.dimod_sampler(), embedding_parameters={"random_seed": 1})
    return len(dwave.graphs.maximum_cut(networkx.complete_graph(nodes), sampler)) in (nodes // 2, nodes - nodes // 2)


def kernel_matrix(job):
    """PennyLane: the kernel matrix of three points."""
    device = job.pennylane_device(wires=2)

    @qml.set_shots(500)
    @qml.qnode(device)
    def overlap(x, y):
        qml.AngleEmbedding(x, wires=range(2))
        qml.adjoint(qml.AngleEmbedding)(y, wires=range(2))
        return qml.probs(wires=range(2))

    points = [[0.1, 0.2], [0.3, 0.1], [3.0, 2.8]]
    matrix = qml.kernels.square_kernel_matrix(points, lambda x, y: overlap(x, y)[0], assume_normalized_kernel=True)
    return [[round(float(value), 1) for value in row] for row in matrix]


def qaoa_layer(job):
    """PennyLane: the cost of one layer of QAOA for the maximum cut of a triangle."""
    cost, mixer = qml.qaoa.maxcut(networkx.cycle_graph(3))

    @qml.set_shots(2000)
    @qml.qnode(job.pennylane_device(wires=3))
    def energy(gamma, alpha):
        for wire in range(3):
            qml.H(wires=wire)
        qml.qaoa.cost_layer(gamma, cost)
        qml.qaoa.mixer_layer(alpha, mixer)
        return qml.expval(cost)

    return round(float(energy(0.5, 0.5)), 1)


def grid_search(job):
    """scikit-learn: a grid search whose fits are tasks on the nodes of the job."""
    with joblib.parallel_config("qloom", expected_s=1.0):
        search = GridSearchCV(SVC(), {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}, cv=2)
        search.fit(*load_iris(return_X_y=True))
    return search.best_params_
