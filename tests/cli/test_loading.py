"""What ``FILE.py:NAME`` means, and what is said when it means nothing."""

import pytest

from metalwright.cli import loading
from metalwright.cli.loading import TargetError, UserCodeError, parse_target


def test_a_target_is_a_file_or_a_name_in_one(tmp_path):
    path = tmp_path / "a.py"
    path.touch()
    assert parse_target(str(path)).name is None
    target = parse_target(f"{path}:some.name")
    assert (target.path, target.name) == (path, "some.name")


def test_a_file_with_a_colon_in_its_name(tmp_path):
    path = tmp_path / "a:b.py"
    path.touch()
    assert parse_target(str(path)).path == path
    assert parse_target(f"{path}:k").name == "k"


@pytest.mark.parametrize("text", ["nowhere.py", "nowhere.py:kernel", "C:nowhere"])
def test_a_missing_file_is_named(text):
    with pytest.raises(TargetError, match=r"no such file: .*nowhere"):
        parse_target(text)


def test_a_file_that_is_not_python_is_refused(tmp_path):
    (tmp_path / "k.metal").touch()
    with pytest.raises(TargetError, match="is not a .py file"):
        parse_target(str(tmp_path / "k.metal"))


def test_an_artifact_is_told_where_it_goes(tmp_path):
    (tmp_path / "m.aimodel").mkdir()
    with pytest.raises(TargetError, match="is an artifact: run, verify, inspect and diff take those"):
        parse_target(f"{tmp_path}/m.aimodel:main")


def test_a_missing_name_lists_what_there_is(kernels):
    with pytest.raises(TargetError, match=r"has no 'better'; its kernels: good; its modules: module"):
        loading.kernels(parse_target(f"{kernels()}:better"))


def test_something_else_than_a_kernel_lists_what_there_is(kernels):
    with pytest.raises(TargetError, match=r":sizes is not a kernel but a function; its kernels: good"):
        loading.kernels(parse_target(f"{kernels()}:sizes"))
    with pytest.raises(TargetError, match=r":good is not an nn.Module but a MetalKernel"):
        loading.module(parse_target(f"{kernels()}:good"))


def test_a_file_without_kernels(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(TargetError, match="defines no kernel"):
        loading.kernels(parse_target(str(tmp_path / "empty.py")))


def test_several_kernels_must_be_told_apart(kernels):
    path = kernels("other = make('other', 'out[gid] = x[gid];')\nalias = other\n")
    assert list(loading.kernels(parse_target(str(path)))) == ["good", "other"], "one object, one kernel"
    with pytest.raises(TargetError, match="several kernels; name one: good, other"):
        loading.kernel(parse_target(str(path)))


def test_a_module_may_be_an_object_or_a_class(kernels):
    path = kernels()
    for name in ("", ":module", ":Model"):
        assert type(loading.module(parse_target(f"{path}{name}"))).__name__ == "Model"


def test_a_class_that_needs_arguments_says_so(kernels):
    more = """
class Sized(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
"""
    with pytest.raises(TargetError, match=r":Sized cannot be made without arguments.*size.*instance"):
        loading.module(parse_target(f"{kernels(more)}:Sized"))


def test_a_module_without_example_args_says_so(kernels):
    target = parse_target(f"{kernels('class Bare(torch.nn.Module): pass')}:Bare")
    with pytest.raises(TargetError, match="Bare has no example_args"):
        loading.example_args(target, loading.module(target))


def test_a_file_may_import_its_neighbours_and_have_any_name(tmp_path):
    (tmp_path / "neighbour_of_random.py").write_text("value = 41\n")
    path = tmp_path / "random.py"
    path.write_text("import random as standard\nfrom neighbour_of_random import value\nanswer = value + 1\n")
    assert loading.load(path).answer == 42


def test_the_traceback_is_the_users(tmp_path):
    path = tmp_path / "raises.py"
    path.write_text("def inner():\n    return {}['key']\n\ninner()\n")
    with pytest.raises(UserCodeError) as caught:
        loading.load(path)
    text = str(caught.value)
    assert "raises.py raised KeyError" in text and "line 4" in text and "line 2, in inner" in text
    assert "importlib" not in text and "loading.py" not in text


def test_a_syntax_error_shows_its_line(tmp_path):
    path = tmp_path / "syntax.py"
    path.write_text("good = 1\nbad = = 2\n")
    with pytest.raises(UserCodeError, match=r"(?s)syntax.py raised SyntaxError.*line 2.*bad = = 2"):
        loading.load(path)


def test_a_kernel_that_cannot_be_defined_shows_where(kernels):
    path = kernels("\nbad = make('not a name', 'x')\n")
    with pytest.raises(UserCodeError) as caught:
        loading.load(path)
    text = str(caught.value)
    assert "bad = make('not a name', 'x')" in text and "KernelDefinitionError" in text
    assert "authoring" not in text, "our own frames are no help"


def test_a_script_that_ends_the_program_is_explained(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("raise SystemExit(3)\n")
    with pytest.raises(UserCodeError, match=r"ended the program \(exit code 3\).*__name__"):
        loading.load(path)


def test_a_failed_import_can_be_tried_again(tmp_path):
    path = tmp_path / "later.py"
    path.write_text("raise ValueError\n")
    with pytest.raises(UserCodeError):
        loading.load(path)
    path.write_text("value = 1\n")
    assert loading.load(path).value == 1
