"""A grid search of scikit-learn over joblib, and an executor, on the nodes of a job in Slurm."""

from __future__ import annotations

import pytest

import qloom

joblib = pytest.importorskip("joblib", reason="NOT TESTED: pip install 'qloom[joblib]'")
pytest.importorskip("sklearn", reason="NOT TESTED: pip install scikit-learn")


def search(job):
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    with joblib.parallel_config("qloom"):
        found = GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=2).fit(*load_iris(return_X_y=True))
    with job.executor() as executor:
        powers = list(executor.map(pow, [2, 3], [5, 2]))
    return found.best_params_, powers, job.dimod_sampler().sample_qubo({(0, 0): -1.0}).first.sample


def test_a_grid_search_and_an_executor_on_slurm(slurm_env):
    site = qloom.Site(nodes=2)
    outcome = qloom.run(search, world="slurm", site=site, strategy="malleable")
    assert outcome.result == ({"C": 1.0}, [32, 9], {0: 1})
