"""Reading points, and one clear line for every way in which a file can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from qloom.clustering.data import blobs, load
from qloom.errors import InputError


def test_blobs_are_the_points_of_the_paper():
    points, truth = make_blobs(5003, centers=8, random_state=0x1337, center_box=(-20, 20))
    ours = blobs(5003)
    assert (ours.points == points).all()
    assert (ours.truth == truth).all()


@pytest.mark.parametrize(
    "text",
    ["1,2\n3,4\n5,7\n", "x,y\n1,2\n3,4\n5,7\n", "x;y\n1;2\n3;4\n5;7", "1 2\n3 4\n5 7\n", "\n1\t2\n\n3\t4\n5\t7\n"],
)
def test_a_csv_needs_no_header_and_no_comma(tmp_path, text):
    path = tmp_path / "points.csv"
    path.write_text(text)
    assert load(path).points.tolist() == [[1, 2], [3, 4], [5, 7]]


def test_what_spreadsheets_write(tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes(b'\xef\xbb\xbf"x","name","y"\r\n"1","a, b","2"\r\n"3","c","4"\r\n')
    data = load(path, "name")
    assert data.points.tolist() == [[1, 2], [3, 4]]
    assert data.truth.tolist() == [0, 1]


@pytest.mark.parametrize("label", ["kind", 1, "1", "-2"])
def test_a_label_column_is_kept_out_of_the_data(tmp_path, label):
    path = tmp_path / "points.csv"
    path.write_text("x,kind,y\n1,cat,2\n3,dog,4\n5,cat,7\n")
    data = load(path, label)
    assert data.points.tolist() == [[1, 2], [3, 4], [5, 7]]
    assert data.truth.tolist() == [0, 1, 0]


def test_an_npy_file_can_have_any_dimension_and_type(tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, np.arange(12, dtype=np.int16).reshape(3, 4))
    data = load(path, label=-1)
    assert data.points.shape == (3, 3)
    assert data.points.dtype == np.float64
    assert data.truth.tolist() == [0, 1, 2]
    np.save(path, np.array([1.0, 2, 4]))
    assert load(path).points.shape == (3, 1)


BAD = {
    "": "the file is empty",
    "\n\n": "the file is empty",
    "x,y\n": "at least 2 points are needed, found 0",
    "1,2\n": "at least 2 points are needed, found 1",
    "x,y\n1,2\n": "at least 2 points are needed, found 1",
    "1,2\n3,nan\n": "point 2 holds NaN or infinity",
    "1,2\ninf,4\n": "point 2 holds NaN or infinity",
    "x,y\n1,2\n3,cat\n": "line 3: column y holds 'cat', not a number",
    "1,2\n3,\n": "line 2: column 2 holds '', not a number",
    "1,2\n1,2\n1,2\n": "all points are equal",
    "1,2\n3,4,5\n6,7\n": "line 2: 3 columns, but 2 in the first line",
    "1,2,3\n3,4\n6,7,8\n": "line 2: 2 columns, but 3 in the first line",
    "1 2\n3 4 5\n": "line 2: 3 columns, but 2 in the first line",
}


@pytest.mark.parametrize(("text", "said"), BAD.items(), ids=range(len(BAD)))
def test_bad_text_is_one_clear_line(tmp_path, text, said):
    path = tmp_path / "points.csv"
    path.write_text(text)
    _refused(path, said)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x,y,kind\n1,2,cat\n3,4,dog\n", "label=kind"),
        ("1,cat,2\n3,dog,4\n", "label=1"),
        ("1 2 cat\n3 4 dog\n", "label=2"),
    ],
)
def test_a_column_of_text_may_be_labels(tmp_path, text, hint):
    path = tmp_path / "points.csv"
    path.write_text(text)
    _refused(path, hint)
    assert load(path, hint.removeprefix("label=")).points.shape == (2, 2)


def test_a_label_column_that_is_missing(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    _refused(path, "no label column 'kind' (columns: x, y)", label="kind")
    _refused(path, "no label column '2'", label=2)
    path.write_text("kind\na\nb\n")
    _refused(path, "no column is left besides the labels", label="kind")


def test_bad_npy_files(tmp_path):
    path = tmp_path / "points.npy"
    _refused(path, "no such file")
    path.write_bytes(b"")
    _refused(path, "the file is empty")
    path.write_bytes(b"not numpy")
    _refused(path, "not an npy file")
    for array, said in {
        "text": (np.array(["a", "b"]), "not numbers"),
        "objects": (np.array([{}, []], dtype=object), "not an npy file"),
        "cube": (np.zeros((2, 2, 2)), "of shape (2, 2, 2)"),
        "flat": (np.zeros((2, 0)), "of shape (2, 0)"),
        "none": (np.zeros((0, 2)), "found 0"),
    }.values():
        np.save(path, array)
        _refused(path, said)


def test_a_picture_is_no_csv(tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes(bytes(range(128, 256)))
    _refused(path, "not a text file")


def _refused(path, said, **how):
    with pytest.raises(InputError) as refused:
        load(path, **how)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
