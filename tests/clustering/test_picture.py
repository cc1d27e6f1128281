"""Pictures say what they show. In an SVG, matplotlib keeps each text as a comment beside its outline."""

from __future__ import annotations

import numpy as np
import pytest

from qloom.clustering import program
from qloom.clustering.data import Data, load
from qloom.clustering.picture import colours_of, draw_panels, draw_result, principal_components
from tests.clustering.fakejob import FakeJob, run


def drawn(tmp_path, points, labels, columns=()):
    path = tmp_path / "clusters.svg"
    draw_result(path, Data(points, "points", columns=columns), labels, "a title")
    return path.read_text()


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_axes_are_named_after_the_columns_of_the_file(tmp_path):
    path = tmp_path / "points.csv"
    random = np.random.default_rng(3)
    points = np.concatenate([random.normal(middle, 0.1, (50, 2)) for middle in range(4)])
    kinds = np.repeat(np.arange(4), 50)
    table = np.column_stack([points[:, 0], kinds, points[:, 1]])
    np.savetxt(path, table, delimiter=",", header="length,kind,width", comments="")
    run(program, FakeJob(output_dir=tmp_path), data=str(path), label="kind", iterations=1, plot="svg")
    text = (tmp_path / "clusters.svg").read_text()
    assert "<!-- length -->" in text
    assert "<!-- width -->" in text
    assert "kind" not in text
    assert "silhouette" in text


def test_axes_without_names_are_numbered(tmp_path, random):
    text = drawn(tmp_path, random.normal(size=(20, 2)), np.arange(20) % 2)
    assert "<!-- column 1 -->" in text
    assert "<!-- column 2 -->" in text


def test_one_column_is_a_histogram(tmp_path, random):
    text = drawn(tmp_path, random.normal(size=(200, 1)), np.arange(200) % 2, ("height",))
    assert "<!-- height -->" in text
    assert "<!-- points -->" in text


def test_many_columns_are_drawn_by_principal_components(tmp_path, random):
    points = random.normal(size=(300, 64)) * np.array([9.0, 5.0] + [1.0] * 62)
    text = drawn(tmp_path, points, np.arange(300) % 3)
    shares = principal_components(points)[1]
    assert f"first principal component ({shares[0]:.1%} of the variance)" in text
    assert f"second principal component ({shares[1]:.1%} of the variance)" in text
    assert f"first two principal components of 64 columns, {shares.sum():.1%} of the variance" in text


def test_principal_components_are_those_of_scikit_learn(random):
    from sklearn.decomposition import PCA

    points = random.normal(size=(200, 5)) @ random.normal(size=(5, 5))
    ours, shares = principal_components(points)
    theirs = PCA(2).fit(points)
    assert shares == pytest.approx(theirs.explained_variance_ratio_)
    assert np.abs(ours) == pytest.approx(np.abs(theirs.transform(points)))


def test_a_legend_as_long_as_it_fits_and_numbers_for_more(tmp_path, random):
    points = random.normal(size=(200, 2))
    assert "<!-- 3: 50 points -->" in drawn(tmp_path, points, np.arange(200) % 4)
    many = drawn(tmp_path, points, np.arange(200) % 40)
    assert "points -->" not in many
    assert many.count('id="text_') >= 40


@pytest.mark.parametrize("count", [1, 9, 10, 18, 19, 60, 300])
def test_every_cluster_has_a_colour_of_its_own_that_is_not_the_grey_of_noise(count):
    colours = colours_of(count)
    assert len({tuple(colour) for colour in colours.round(4)}) == count
    assert (np.ptp(colours, axis=1) > 0.05).all()


def test_a_picture_of_much_data_says_how_much_is_drawn(tmp_path, random):
    text = drawn(tmp_path, random.normal(size=(50_000, 2)), np.arange(50_000) % 4)
    assert "16,667 of 50,000 points drawn" in text


def test_panels_show_noise_too(tmp_path, random):
    path = tmp_path / "panels.svg"
    labels = np.arange(30) % 3 - 1
    draw_panels(
        path, Data(random.normal(size=(30, 2)), "points", columns=("x", "y")), [("one", labels), ("two", labels)]
    )
    assert path.read_text().count("<!-- x -->") == 2


def test_a_header_names_columns_but_not_the_labels(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,kind,y\n1,cat,2\n3,dog,4\n5,cat,7\n")
    assert load(path, "kind").columns == ("x", "y")
    path.write_text("1,2\n3,4\n")
    assert load(path).columns == ()
