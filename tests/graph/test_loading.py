"""Loading a user's file: nothing is started, and what is wrong is shown in the user's lines."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.declare.loading import load
from holdfast.errors import HoldfastError, ProcessRefused

ONE = 'import holdfast as hf\nward = hf.StreamProcess("ward_4", frame="1 second", time="ts")\n'
TWO = ONE + 'night = hf.StreamProcess("ward_5", frame="1 second", time="ts")\n'


def refused(path):
    with pytest.raises(HoldfastError) as caught:
        load(path)
    return caught.value


def written(tmp_path, text, name="ward.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_one_process_of_a_file_is_found(tmp_path):
    process = load(written(tmp_path, ONE + "also = ward\nraise_nothing = __name__ == '__main__' and 1 / 0\n"))
    assert process.name == "ward_4"
    assert Path(process.graph().base) == tmp_path


def test_one_of_several_is_named_by_variable_or_by_name(tmp_path):
    path = written(tmp_path, TWO)
    error = refused(path)
    assert (error.code, error.exit_code) == ("HF-C018", 2)
    assert "ward, night" in error.why
    assert load(f"{path}:night").name == "ward_5"
    assert load(f"{path}:ward_4").name == "ward_4"
    error = refused(f"{path}:nigth")
    assert (error.code, error.do) == ("HF-C017", "did you mean 'night'?")


def test_a_missing_file_is_answered_with_the_nearest(tmp_path, monkeypatch):
    written(tmp_path, ONE)
    monkeypatch.chdir(tmp_path)
    error = refused("wrad.py")
    assert (error.code, error.do) == ("HF-C016", "did you mean 'ward.py'?")
    assert refused(tmp_path).why == "it is a folder"


def test_a_file_without_a_process_says_how_to_declare_one(tmp_path):
    assert refused(written(tmp_path, "x = 1\n")).code == "HF-C017"


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("import json\n\njson.loads('{')\n", "JSONDecodeError", "ward.py:3"),
        ("import no_such_module_here\n", "ModuleNotFoundError", "ward.py:1"),
        ("x = 1\ndef broken(:\n", "SyntaxError", "ward.py:2"),
        ("import sys\nsys.exit(3)\n", "SystemExit", "ward.py:2"),
    ],
)
def test_what_the_file_raises_is_shown_with_the_users_lines_only(tmp_path, text, why, line):
    error = refused(written(tmp_path, text))
    assert error.code == "HF-C019"
    assert why in error.why
    assert line in error.where
    assert "importlib" not in str(error) and "json/decoder" not in str(error)


def test_a_misspelt_name_of_ours_is_answered(tmp_path):
    error = refused(written(tmp_path, "import holdfast as hf\nhf.StreamProces('x')\n"))
    assert error.do == "did you mean 'StreamProcess'?"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hf.read.file('x.csv')", "files"),
        ("ward.opertor(over='frame')", "operator"),
        ("ward.operator(ovre='frame')", "over"),
        ("hf.read.files('x.csv', rat='fast')", "rate"),
    ],
)
def test_a_misspelt_reader_method_or_option_is_answered(tmp_path, line, meant):
    assert refused(written(tmp_path, ONE + line)).do == f"did you mean '{meant}'?"


def test_a_refused_declaration_names_the_line_it_stands_on(tmp_path):
    """Which of ten sources has the schema that cannot be read?"""
    error = refused(written(tmp_path, ONE + "\nward.source('a', hf.read.files('a.csv'), schema='ts timestmp')\n"))
    assert (error.code, error.exit_code) == ("HF-C002", 2)
    assert error.where.endswith("ward.py:4")


def test_our_own_refusals_pass_unchanged(tmp_path):
    error = refused(written(tmp_path, ONE + 'ward.source("x", object(), schema="a int", late="soon")\n'))
    assert (error.code, error.where) == ("HF-C003", "ward.py:3")


def test_a_column_at_module_level_is_explained(tmp_path):
    """Spark's own answer is a bare AssertionError with an empty message."""
    text = "from pyspark.sql import functions as F\nHOT = F.col('celsius') > 80\n" + ONE
    error = refused(written(tmp_path, text))
    assert isinstance(error, ProcessRefused)
    assert (error.code, error.exit_code) == ("HF-G026", 3)
    assert "ward.py:2" in error.where


def test_a_udf_at_module_level_may_stay_there_with_its_type_as_an_object(tmp_path):
    """The most ordinary line of PySpark there is; only its text needs a session."""
    text = "from pyspark.sql import functions as F\nfrom pyspark.sql.types import DoubleType\n" + ONE
    error = refused(written(tmp_path, text + "@F.udf('double')\ndef twice(x):\n    return 2 * x\n"))
    assert (error.code, error.exit_code) == ("HF-G026", 3)
    assert "F.udf(DoubleType())" in error.do
    load(written(tmp_path, text + "@F.udf(DoubleType())\ndef twice(x):\n    return 2 * x\n"))


def test_functions_of_the_file_travel_by_value(tmp_path):
    """A worker cannot import the file by name, so the name must not stay behind."""
    before = set(sys.modules)
    load(written(tmp_path, ONE, "quite_new.py"))
    assert not any("quite_new" in name for name in set(sys.modules) - before)


def test_neighbours_of_the_file_can_be_imported(tmp_path):
    written(tmp_path, "FRAME = '3 seconds'\n", "ward_settings.py")
    text = "import holdfast as hf\nfrom ward_settings import FRAME\nw = hf.StreamProcess('w', frame=FRAME, time='ts')\n"
    assert load(written(tmp_path, text)).graph().frame_ms == 3000


def test_an_edit_within_a_second_is_seen(tmp_path, monkeypatch):
    """Python's own cache knows a file by its second and size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = written(tmp_path, ONE)
    before = path.stat()
    load(path)
    path.write_text(path.read_text().replace("ward", "yard"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert load(path).name.startswith("yard")
